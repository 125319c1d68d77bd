"""Before and after the first pass: compare input files that may be known by another name or time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from etl.compute.dask_tasks import map_unordered
from etl.job.finished_units import unit_location
from etl.job.run_context import RunContext
from etl.lake.known_files import Comparison
from etl.lake.ledger_entry import LedgerEntry
from etl.sources import Source, Split
from etl.sources.read_split import digest_rows


@dataclass(frozen=True)
class DigestRows:
    """The task that reads a part of a file and returns the digest of its rows."""

    source: Source

    def __call__(self, split: Split, _index: int, _recorded: int | None) -> int:
        """Run the task; the driver needs the index of the file, and the digest that was recorded."""
        return digest_rows(split, self.source)


def compare_files(run: RunContext) -> set[Comparison]:
    """Compare the files in doubt with the rows that the lake holds; return those that have found other rows.

    A file is the same if each of its parts that the lake holds has the recorded digest now. Its name is
    committed. A file that cannot be read is quarantined: it is compared again by the next run.
    """
    doubts, inputs = run.plan.doubts, run.ledgers["documents"].inputs

    def parts() -> Iterator[tuple[Split, int, int | None]]:
        for index, file in enumerate(doubts):
            for part in inputs.digests(file.identity):
                piece = replace(file, start=part.start, stop=part.stop, first_row=0)
                yield piece, index, part.rows

    differing, failed = set[int](), set[int]()
    for (split, index, recorded), answer in map_unordered(
        run.job.client,
        DigestRows(run.recipe.source),
        parts(),
        label="compare",
        time_limit=run.job.time_limit,
    ):
        if isinstance(answer, BaseException):
            failed.add(index)
            run.failed.add("documents", unit_location(split), answer)
            continue
        run.failed.clear("documents", unit_location(split))
        if answer != recorded:
            differing.add(index)
    same = [file for n, file in enumerate(doubts) if n not in differing and n not in failed]
    if same:
        run.commits.commit_names([LedgerEntry("", split=file, is_name=True) for file in same])
    return {Comparison.of(doubts[index], doubts[index].identity) for index in differing}
