"""What the commands that take care of a lake print."""

from collections.abc import Iterator, Sequence

from etl.lake.releases import Release
from etl.maintenance.optimize import Optimized
from etl.maintenance.repair import Repair
from etl.maintenance.vacuum import Vacuum

_MAX_FILES_SHOWN = 20


def releases(found: Sequence[Release]) -> Iterator[str]:
    """A line for each release, with the version of each table."""
    if not found:
        yield "no releases"
    width = max((len(release.name) for release in found), default=0)
    for release in found:
        versions = "  ".join(f"{kind} {version}" for kind, version in release.versions.items())
        yield f"{release.name:<{width}}  {release.created}  {versions}"


def vacuum(found: Vacuum) -> Iterator[str]:
    """What was deleted or would be, and what else stays because of jobs and releases."""
    kept = f"releases kept: {', '.join(found.releases) or 'none'}"
    yield f"unneeded since before {found.horizon:%Y-%m-%d %H:%M} UTC; {kept}"
    for job in found.jobs:
        yield f"at work: {job}: what came or went since then stays"
    for file in found.files[:_MAX_FILES_SHOWN]:
        yield f"{file.table}/{file.file}  {file.size:,} bytes  {file.why}"
    if len(found.files) > _MAX_FILES_SHOWN:
        yield f"... and {len(found.files) - _MAX_FILES_SHOWN:,} more (--json lists them)"
    done = "deleted" if found.deleted else "would be deleted; --yes does it:"
    yield f"{done} {len(found.files):,} files, {found.size:,} bytes"


def repair(found: Repair) -> Iterator[str]:
    """What is damaged, what is dropped for it, and what stays as it is."""
    if not found.problems:
        yield "the lake is whole"
        return
    for problem in found.problems:
        yield str(problem)
    for left in found.left:
        yield f"left: {left.problem.table}/{left.problem.file or ''}: {left.why}"
    verb = "dropped" if found.done else "would be dropped"
    for kind, paths in found.dropped.items():
        yield f"{verb}  {kind}: {len(paths):,} files"
    for source in found.sources:
        yield f"read again  {source}"
    if found.dropped:
        yield (
            "`etl run` makes it again"
            if found.done
            else "--yes does it, and `etl run` makes it again"
        )


def optimized(found: Sequence[Optimized]) -> Iterator[str]:
    """Files and bytes of each table before and after."""
    for table in found:
        yield (
            f"{table.table:<11} version {table.version}: {table.files_before:,} -> {table.files:,} files, "
            f"{table.size_before:,} -> {table.size:,} bytes"
        )
    yield "documents   is left as it is: other tables name its files"
