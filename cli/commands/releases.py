"""`etl releases`: list the releases of a lake."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from etl.cli import options, output

if TYPE_CHECKING:
    from etl.lake.releases import Release

app = typer.Typer()


@app.command(epilog=options.examples("etl releases lake"))
def releases(lake: options.LakeArgument, *, as_json: options.AsJson = False) -> None:
    """List the releases of a lake, oldest first."""
    from etl.lake.releases import list_releases

    output.print_result(list_releases(lake), lines, as_json=as_json)


def lines(releases: Sequence["Release"]) -> Iterator[str]:
    """Yield a line for each release, with the version of each table."""
    if not releases:
        yield "no releases"
    width = max((len(release.name) for release in releases), default=0)
    for release in releases:
        versions = "  ".join(f"{kind} {version}" for kind, version in release.versions.items())
        yield f"{release.name:<{width}}  {release.created}  {versions}"
