"""`etl status`: print the running jobs of a lake, its tables, and its last run."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from etl.cli import options, output
from etl.compute.print_listener import duration
from etl.plural import many

if TYPE_CHECKING:
    from etl.audit.lake_status import JobStatus, LakeStatus, RunSummary
    from etl.lake.run_state import RunState

app = typer.Typer()

_MAX_INPUTS_SHOWN = 20


@app.command(
    epilog=options.examples(
        "etl status lake",
        "etl status s3://bucket/lake --json",
    )
)
def status(lake: options.LakeArgument, *, as_json: options.AsJson = False) -> None:
    """Print the running jobs, tables and last run of a lake.

    Works from any machine that can read the lake: a run writes its progress into its lease every 10 seconds.
    """
    from etl.audit.lake_status import lake_status

    output.print_result(lake_status(lake), lines, as_json=as_json)


def lines(status: "LakeStatus") -> Iterator[str]:
    """Yield the jobs, the tables, the quarantined inputs and the last run."""
    now = datetime.now(UTC)
    yield f"lake        {status.lake}"
    for job in status.jobs:
        yield from _job(job, now)
    if not status.jobs:
        yield "no job is running"
    for table in status.tables:
        committed = "" if table.committed is None else f", last commit {_ago(table.committed, now)}"
        yield f"{table.name:<11} version {table.version}, {many(table.rows, 'row')}{committed}"
    yield f"quarantined {many(len(status.quarantined), 'input')}"
    for note in status.quarantined[:_MAX_INPUTS_SHOWN]:
        yield f"  {output.quarantined(note)}"
    if len(status.quarantined) > _MAX_INPUTS_SHOWN:
        yield f"  ... and {len(status.quarantined) - _MAX_INPUTS_SHOWN} more (--json lists all)"
    yield from output.missing(status.missing)
    if status.last_run is not None:
        yield from _last_run(status.last_run)


def _job(job: "JobStatus", now: datetime) -> Iterator[str]:
    who = f"{job.kind:<11} {job.key} on {job.host or 'unknown'}, process {job.process}"
    yield f"{who}, started {_ago(job.started, now)}, renewed {_ago(job.renewed, now)}"
    if not job.is_alive:
        yield "  it has died: `etl run` continues a run after its last commit"
    if job.run is None:
        return
    splits = many(job.run.splits, "split")
    units = f", {many(job.run.units, 'earlier split')}" if job.run.units else ""
    yield f"  planned   {job.run.recipe}: {splits} ({job.run.input_bytes / 1e6:,.1f} MB){units}"
    if job.run.step is not None:
        yield f"  {job.run.step:<11}{_progress(job, job.run)}"


def _progress(job: "JobStatus", run: "RunState") -> str:
    done = f"{run.done:,}/{run.total:,} splits"
    size = f"{run.done_bytes / 1e6:,.1f}/{run.total_bytes / 1e6:,.1f} MB"
    parts = [done, size, f"for {duration(run.seconds)}"]
    if job.bytes_per_second is not None:
        parts.append(f"{job.bytes_per_second / 1e6:,.1f} MB/s")
    if job.step_ends is not None and run.seconds_left is not None and job.is_alive:
        parts.append(f"{duration(run.seconds_left)} left (until {_utc(job.step_ends)})")
    return "  ".join(parts)


def _last_run(last: "RunSummary") -> Iterator[str]:
    run = last.run
    committed = datetime.fromisoformat(last.committed)
    took = committed - datetime.fromisoformat(last.started)
    ended = f"ended {_utc(committed)} after {duration(took.total_seconds())}"
    yield f"last run    {last.run_id} of {last.recipe}, {ended}"
    rows, kept, duplicates = run.documents.rows, run.documents.kept, run.duplicates.duplicates
    counts = [many(rows, "row"), f"{kept:,} kept{output.percent(kept, rows)}"]
    counts += [many(duplicates, "duplicate"), f"{run.quarantined:,} quarantined"]
    yield f"  counts    {', '.join(counts)}"
    yield f"  tokens    {last.tokens_line()}"
    yield from (f"  {line}" for line in output.skipped_items(run.skipped_items))
    yield f"  versions  {', '.join(f'{name} {version}' for name, version in last.versions.items())}"


def _ago(time: datetime, now: datetime) -> str:
    """Return a time and how long ago it was; the clock of the store may be ahead of this machine's."""
    seconds = max(0.0, (now - time).total_seconds())
    return f"{_utc(time)} ({duration(seconds)} ago)"


def _utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
