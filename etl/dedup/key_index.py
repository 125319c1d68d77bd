"""Find rows of the table ``keys`` with their places, to follow a change of the documents that stay."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.dedup.key_lookup import matching_indices
from etl.dedup.numbered_files import address
from etl.delta.live_rows import live_rows
from etl.lake.keys_table import STORED_KINDS, KeyFile, Kind

_MAX_HELD: Final = 1 << 22
"""Keys that are held in memory between searches; chosen here: 170 MB."""


class KeyRows(NamedTuple):
    """Rows of ``keys``: their keys, documents and places."""

    keys: NDArray[np.int64]  # (n,)
    documents: NDArray[np.int64]  # (n,) addresses, -1 for a unit of work without a number
    kinds: NDArray[np.int64]  # (n,) indices into ``STORED_KINDS``
    files: NDArray[np.int64]  # (n,) indices into the data files
    positions: NDArray[np.int64]  # (n,) in the file

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts."""
        none = cls(*(np.empty(0, np.int64) for _ in cls._fields))
        return cls(*map(np.concatenate, zip(none, *parts, strict=True)))

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """Return some of the rows, given by a mask or by their indices."""
        return type(self)(*(column[chosen] for column in self))


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """The data files of ``keys``, and the numbers of the units of work that their rows name.

    A search reads whole files, one after the other: a file of a million keys takes 30 ms.
    """

    files: Sequence[KeyFile]
    ids: NDArray[np.int64]  # (n,) the first 63 bits of the units' keys, ascending
    numbers: NDArray[np.int64]  # (n,) of the same units
    _held: dict[int, KeyRows] = field(default_factory=dict)

    def of_kind(self, kind: Kind) -> KeyRows:
        """Return all rows of a kind."""
        return KeyRows.concatenate([*self._rows(kind)])

    def of_documents(self, documents: NDArray[np.int64], *kinds: Kind) -> KeyRows:
        """Return the rows of some documents, given by their addresses (ascending)."""
        found = list[KeyRows]()
        for rows in self._rows(*kinds) if len(documents) else ():
            places = np.minimum(np.searchsorted(documents, rows.documents), len(documents) - 1)
            found.append(rows.take(np.flatnonzero(documents[places] == rows.documents)))
        return KeyRows.concatenate(found)

    def matching(self, keys: NDArray[np.int64], *kinds: Kind) -> KeyRows:
        """Return the rows with one of some keys (ascending)."""
        rows = self._rows(*kinds) if len(keys) else ()
        return KeyRows.concatenate([each.take(matching_indices(each.keys, keys)) for each in rows])

    def _rows(self, *kinds: Kind) -> Iterator[KeyRows]:
        """Yield the rows of each file with keys of some kinds."""
        holds_all = sum(file.rows for file in self.files) <= _MAX_HELD
        for number, file in enumerate(self.files):
            if file.kind in kinds:
                rows = self._held[number] if number in self._held else self._read(number)
                if holds_all:
                    self._held[number] = rows
                yield rows

    def _read(self, number: int) -> KeyRows:
        file = self.files[number]
        with live_rows(file.table, file.file, ["key", "unit", "row"], at_once=True) as opened:
            table = opened.read()
            positions = [opened.positions(group) for group in opened.groups]
        keys, rows = (np.asarray(table[name].combine_chunks()) for name in ("key", "row"))
        # Few units are in many rows.
        units = pc.dictionary_encode(table["unit"].combine_chunks())
        ids = np.asarray(units.dictionary)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        numbers = np.where(self.ids[places] == ids, self.numbers[places], -1)
        number_of_row = numbers[np.asarray(units.indices)]
        documents = np.where(number_of_row < 0, -1, address(number_of_row, rows))
        kind = np.full(len(keys), STORED_KINDS.index(file.kind))
        return KeyRows(keys, documents, kind, np.full(len(keys), number), np.concatenate(positions))
