"""Hold back the results of a changed input file until all of them can replace its old rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etl.job.finished_units import FinishedUnit
from etl.lake.work_units import WorkResult


class FileReplacements:
    """Holds back the results of each replaced file until all its units have finished."""

    def __init__(self, paths: Mapping[str, Sequence[str]], sources: Iterable[str]) -> None:
        """Set the data files to replace, by input file, and the input file of each unit to come."""
        self._paths = paths
        self._open = Counter(source for source in sources if source in paths)
        self._held: dict[str, list[FinishedUnit[Any]]] = {}

    def paths(self, source: str) -> Sequence[str]:
        """Return the data files that the new rows of an input file replace; none for a new file."""
        return self._paths.get(source, ())

    def add(self, units: Iterable[FinishedUnit[Any]]) -> list[WorkResult]:
        """Add finished units, and return the results that can be committed now.

        If a unit of a replaced file has failed, all its results are dropped: the old rows stay.
        """
        ready: list[FinishedUnit[Any]] = []
        for unit in units:
            if unit.source not in self._paths:
                ready.append(unit)
                continue
            held = self._held.setdefault(unit.source, [])
            held.append(unit)
            if len(held) == self._open[unit.source]:
                is_complete = all(each.result is not None for each in held)
                ready.extend(self._held.pop(unit.source) if is_complete else [])
        return [unit.result for unit in ready if unit.result is not None]
