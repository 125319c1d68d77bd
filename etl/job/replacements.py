"""TODO."""

from collections import Counter
from collections.abc import Iterable, Mapping

from etl.lake.work_units import WorkResult


class FileReplacements:
    """Holds back the results of each replaced file until all of them have arrived."""

    def __init__(self, paths: Mapping[str, list[str]], sources: Iterable[str]) -> None:
        self._paths = paths
        self._open = Counter(source for source in sources if source in paths)
        self._held: dict[str, list[WorkResult]] = {}

    def paths(self, source: str) -> list[str]:
        """Return the data files that the new rows of an input file replace; none for a new file."""
        return self._paths.get(source, [])

    def ready(self, results: Iterable[WorkResult]) -> list[WorkResult]:
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
