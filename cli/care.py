"""The commands that take care of a lake: what is kept for good, what is cleared away, what is mended."""

from datetime import timedelta
from typing import Annotated

import typer

from etl.cli import options

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
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the versions are called.")],
    *,
    at_version: Annotated[
        int | None,
        typer.Option("--version", min=0, help="The token table's version; the newest if left out."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take the name away: a vacuum may delete then.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Name the versions of a lake's tables, and keep their data files from vacuum.

    Whatever takes a version takes the name too.
    """
    from etl.cli import render, render_care
    from etl.lake import releases

    if remove and at_version is not None:
        raise typer.BadParameter("give --version or --remove, not both")
    found = (
        releases.remove_release(lake, name)
        if remove
        else releases.create_release(lake, name, version=at_version)
    )
    render.output(found, lambda one: render_care.releases([one]), to_json=as_json)


@app.command("releases", epilog=options.examples("etl releases lake"))
def list_releases(lake: options.LakeArgument, *, as_json: options.AsJson = False) -> None:
    """List the releases of a lake, oldest first."""
    from etl.cli import render, render_care
    from etl.lake import releases

    render.output(releases.list_releases(lake), render_care.releases, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl vacuum lake",
        "etl vacuum lake --retain 30d --yes",
    )
)
def vacuum(
    lake: options.LakeArgument,
    *,
    retain: Annotated[
        str, typer.Option(metavar="TIME", help="How long old versions stay: 12h, 7d, 4w.")
    ] = "7d",
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete data files that no version of late, no release and no running job needs.

    Without --yes it only says which.
    """
    from etl.cli import render, render_care
    from etl.maintenance.vacuum import vacuum as clear

    found = clear(lake, retain=_duration(retain), delete=yes)
    render.output(found, render_care.vacuum, to_json=as_json)


@app.command(
    epilog=options.examples(
        "etl repair lake",
        "etl repair lake --yes",
    )
)
def repair(
    lake: options.LakeArgument, *, yes: options.Yes = False, as_json: options.AsJson = False
) -> None:
    """Drop what `etl verify` finds damaged, so that the next `etl run` makes it again.

    Without --yes it only says what. The exit code is 1 if something cannot be mended.
    """
    from etl.cli import render, render_care
    from etl.maintenance.repair import repair as mend

    found = mend(lake, drop=yes)
    render.output(found, render_care.repair, to_json=as_json)
    if found.left:
        raise typer.Exit(1)


@app.command(
    epilog=options.examples(
        "etl optimize lake",
        "etl optimize lake --target-mb 512",
    )
)
def optimize(
    lake: options.LakeArgument,
    *,
    target_mb: Annotated[
        int, typer.Option(min=1, help="The size that small files are put together to.")
    ] = 256,
    as_json: options.AsJson = False,
) -> None:
    """Put small data files of tokens, duplicates and keys together; no row changes, old versions stay.

    It may run while a run of the recipe or a training goes on.
    """
    from etl.cli import render, render_care
    from etl.maintenance.optimize import optimize as put_together

    found = put_together(lake, target_bytes=target_mb << 20)
    render.output(found, render_care.optimized, to_json=as_json)


def _duration(text: str) -> timedelta:
    """A time as a number and its unit.

    >>> _duration("12h"), _duration("2w")
    (datetime.timedelta(seconds=43200), datetime.timedelta(days=14))
    """
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    if text[-1:] not in units or not text[:-1].isdecimal():
        raise typer.BadParameter(f"{text!r} is no time; write it as 12h, 7d or 4w")
    return timedelta(**{units[text[-1]]: int(text[:-1])})
