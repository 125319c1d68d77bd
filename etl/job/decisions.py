"""What ``duplicates`` says: which units are decided, and which of their rows are duplicates."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.ledger import Ledger
from etl.plan import Unit


class Decisions:
    """The decisions at the head of ``duplicates``; without the table, every unit is decided and new."""

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._files: list[tuple[str, str, str]] = []
        if ledger is not None:
            ledger.refresh()
            assert ledger.table is not None
            fragments = ledger.table.fragments()
            if fragments.num_rows:
                columns = [
                    fragments[name].to_pylist() for name in ("path", "min.source", "max.source")
                ]
                self._files = list(zip(*columns, strict=True))

    def include(self, unit: Unit) -> bool:
        """Whether the unit's rows are decided."""
        return self._ledger is None or self._ledger.is_done(self._ledger.key(unit.key))

    def files(self, source: str) -> tuple[str, ...]:
        """The data files of ``duplicates`` that may name rows of an input file.

        Each holds neighbouring sources; the names of data files begin with hashes, and have no order.
        """
        return tuple(name for name, low, high in self._files if low <= source <= high)


def duplicate_rows(
    table_url: str, files: Sequence[str], paths: Sequence[str]
) -> npt.NDArray[np.int64]:
    """The ``row`` of each duplicate that stands in the data files ``paths`` of ``documents``.

    ``files`` are the data files of ``duplicates`` to look in.
    """
    wanted = pc.field("file").isin(pa.array(list(paths), pa.string()))
    found = [np.empty(0, np.int64)]
    for name in files:
        with storage.open_input(storage.join(table_url, name)) as file:
            table = pq.read_table(file, columns=["file", "row"], use_threads=False)
        found.append(np.asarray(table.filter(wanted)["row"].combine_chunks()))
    return np.concatenate(found)
