"""Rows that take the place of others: all new rows of a file come in the commit that removes the old.

So no reader sees a file half replaced, and a file whose new content cannot be read keeps its old rows.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from etl.job.tasks import Result
from etl.ledger import Ledger


class Replaced:
    """Holds back the results of files that are being replaced until all of a file's are there."""

    def __init__(self, paths: Mapping[str, list[str]], sources: Iterable[str]) -> None:
        self._paths = paths
        self._open = Counter(source for source in sources if source in paths)
        self._held: dict[str, list[Result]] = {}

    def paths(self, source: str) -> list[str]:
        """The data files that go when this input file's new rows come; none for a new file."""
        return self._paths.get(source, [])

    def ready(self, results: Iterable[Result]) -> list[Result]:
        """The results that can be committed now; failed ones never are."""
        found = []
        for result in results:
            if result.source not in self._paths:
                found.append(result)
                continue
            held = self._held.setdefault(result.source, [])
            held.append(result)
            if len(held) == self._open[result.source]:
                complete = not any(r.failed for r in held)
                found.extend(self._held.pop(result.source) if complete else [])
        return [result for result in found if not result.failed]


def fragments_of(ledger: Ledger, sources: Collection[str]) -> dict[str, list[str]]:
    """The live data files of a table that hold rows of these input files, by input file."""
    if ledger.table is None or not sources:
        return {}
    found: dict[str, list[str]] = {}
    for file in ledger.table.files("path", "min.source"):
        if file["min.source"] in sources:
            found.setdefault(file["min.source"], []).append(file["path"])
    return found
