"""`etl release`: name the versions of a lake's tables, or remove the name."""

from typing import Annotated

import typer

from etl.cli import options, output
from etl.cli.commands import releases

app = typer.Typer()


@app.command(
    epilog=options.examples(
        "etl release lake pretraining-1",
        "etl release lake ablation --version 12",
        "etl release lake ablation --remove",
    )
)
def release(
    lake: options.LakeArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the release.")],
    *,
    at_version: Annotated[
        int | None,
        typer.Option(
            "--version", min=0, help="The version of the token table; default: the newest."
        ),
    ] = None,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove", help="Remove the release; `etl vacuum` may then delete its files."
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Name the versions of a lake's tables as a release.

    `etl vacuum` keeps the data files of releases. Where a version is expected, a release may be given.
    """
    from etl.lake.releases import create_release, remove_release

    if remove and at_version is not None:
        raise typer.BadParameter("give --version or --remove, not both")
    result = (
        remove_release(lake, name) if remove else create_release(lake, name, version=at_version)
    )
    output.print_result(result, lambda one: releases.lines([one]), as_json=as_json)
