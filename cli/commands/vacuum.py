"""`etl vacuum`: delete data files that are no longer needed."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli import options, output
from etl.plural import many

if TYPE_CHECKING:
    from etl.maintenance.vacuum import Vacuum

app = typer.Typer()

_MAX_FILES_SHOWN = 20


def _retention() -> str:
    from etl.maintenance.vacuum import RETAIN

    return f"{RETAIN.days}d"


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
        str,
        typer.Option(
            metavar="TIME",
            help="How long to keep old versions, at least 1h: 12h, 7d, 4w.",
            default_factory=options.LibraryDefault(_retention),
        ),
    ],
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete data files that are no longer needed.

    Keeps the files of recent versions, releases and running jobs. Also aborts the uploads that killed jobs
    left in an S3 store. Without --yes it only prints the files.
    """
    from etl.maintenance.vacuum import vacuum as delete_unneeded

    result = delete_unneeded(lake, retain=_duration(retain), delete=yes)
    output.print_result(result, lines, as_json=as_json)


def lines(vacuum: "Vacuum") -> Iterator[str]:
    """Yield the files that were or would be deleted, and the jobs and releases that keep others."""
    kept = f"releases kept: {', '.join(vacuum.releases) or 'none'}"
    yield f"files not needed since {vacuum.horizon:%Y-%m-%d %H:%M} UTC; {kept}"
    for job in vacuum.jobs:
        yield f"running: {job}; files added or removed since then are kept"
    for file in vacuum.files[:_MAX_FILES_SHOWN]:
        yield f"{file.table}/{file.file}  {many(file.size, 'byte')}  {file.why}"
    if len(vacuum.files) > _MAX_FILES_SHOWN:
        yield f"... and {len(vacuum.files) - _MAX_FILES_SHOWN:,} more (--json lists all)"
    for upload in vacuum.uploads[:_MAX_FILES_SHOWN]:
        yield f"{upload.uri}  unfinished upload since {upload.started:%Y-%m-%d %H:%M} UTC"
    if len(vacuum.uploads) > _MAX_FILES_SHOWN:
        yield f"... and {len(vacuum.uploads) - _MAX_FILES_SHOWN:,} more uploads (--json lists all)"
    count = f"{many(len(vacuum.files), 'file')}, {vacuum.size:,} bytes"
    if vacuum.uploads:
        count += f" and {many(len(vacuum.uploads), 'unfinished upload')}"
    yield f"deleted {count}" if vacuum.deleted else f"would delete {count}; --yes deletes them"


def _duration(text: str) -> timedelta:
    """Return a duration that is written as a number and its unit.

    >>> _duration("12h"), _duration("2w")
    (datetime.timedelta(seconds=43200), datetime.timedelta(days=14))
    """
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    if text[-1:] not in units or not text[:-1].isdecimal():
        raise typer.BadParameter(f"{text!r} is not a valid duration; write it as 12h, 7d or 4w")
    return timedelta(**{units[text[-1]]: int(text[:-1])})
