"""The replacement of changed input files: one commit adds all new rows of a file and removes the old.

Readers never see a partly replaced file, and a file whose new content cannot be read keeps its old rows.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from etl.job.tasks import Result
from etl.ledger import Ledger


class Replaced:
    """Holds back the results of each replaced file until all of them have arrived."""

    def __init__(self, paths: Mapping[str, list[str]], sources: Iterable[str]) -> None:
        self._paths = paths
        self._open = Counter(source for source in sources if source in paths)
        self._held: dict[str, list[Result]] = {}

    def paths(self, source: str) -> list[str]:
        """Return the data files that the new rows of an input file replace; none for a new file."""
        return self._paths.get(source, [])

    def ready(self, results: Iterable[Result]) -> list[Result]:
        """Add results and return those that can be committed now, without failed ones."""
        ready = []
        for result in results:
            if result.source not in self._paths:
                ready.append(result)
                continue
            held = self._held.setdefault(result.source, [])
            held.append(result)
            if len(held) == self._open[result.source]:
                is_complete = not any(r.failed for r in held)
                ready.extend(self._held.pop(result.source) if is_complete else [])
        return [result for result in ready if not result.failed]


def fragments_of(ledger: Ledger, sources: Collection[str]) -> dict[str, list[str]]:
    """Return the live data files with rows of the given input files, by input file."""
    if ledger.table is None or not sources:
        return {}
    paths: dict[str, list[str]] = {}
    for file in ledger.table.files("path", "min.source"):
        if file["min.source"] in sources:
            paths.setdefault(file["min.source"], []).append(file["path"])
    return paths
