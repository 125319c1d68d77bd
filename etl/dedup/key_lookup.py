"""Look up the documents kept by earlier runs in the table `keys`."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl import schemas
from etl.dedup.document_reader import DocumentReader
from etl.dedup.integer_ranges import concatenate_ranges
from etl.dedup.numbered_files import address, file_of, row_of
from etl.delta.live_rows import live_rows
from etl.kernels.hashing.minhash_signatures import band_keys
from etl.kernels.hashing.sorted_sets import between, distinct
from etl.kernels.lines.text_units import NOT_COMPARED
from etl.lake.input_log import int63
from etl.lake.keys_table import KeyFile, Kind
from etl.stages.dedup_minhash import DedupMinhash

if TYPE_CHECKING:
    from etl.dedup.stored_file_list import StoredFileList

EMPTY_KEYS: Final = pa.schema(
    [schemas.KEYS.field(n) for n in ("key", "check", "unit", "row")]
).empty_table()

_THREADS = 4  # files read at the same time: in an object store, each takes several requests

SHORT_CHECK: Final = 1
"""The bit of ``check`` that units and intervals of a document have if it was dropped as short."""


@dataclass(frozen=True, eq=False)
class StoredKeys:
    """Stored keys of one kind, and the units of work that they belong to.

    A key whose document has no live row in ``texts`` counts as struck, so it does not matter which of the two
    tables a change reaches first. Only lakes with struck rows pay for that: of the units that a look-up
    finds, the rows are read.
    """

    units: "StoredFileList"
    reader: DocumentReader
    files: tuple[KeyFile, ...]
    ids: NDArray[np.int64]  # (n,) the first 63 bits of the units' keys, ascending
    numbers: NDArray[np.int64]  # (n,) of the same units
    struck: NDArray[np.int64]  # (m,) numbers of units of which rows may be struck, ascending

    @classmethod
    def of(
        cls, stored: Iterable[KeyFile], units: "StoredFileList", kind: Kind, reader: DocumentReader
    ) -> Self:
        """Return the stored keys of a kind for the ``units`` that are marked as keyed for it."""
        keyed = (
            (int63(file.unit), file.number, reader.is_struck(file))
            for file in units
            if kind in file.kinds and kind in file.keyed
        )
        fields = np.fromiter(chain.from_iterable(keyed), np.int64).reshape(-1, 3)
        ids, numbers, is_struck = fields[np.argsort(fields[:, 0])].T
        of_kind = tuple(file for file in stored if file.kind == kind) if len(ids) else ()
        return cls(units, reader, of_kind, ids, numbers, np.sort(numbers[is_struck > 0]))

    @property
    def rows(self) -> int:
        """The number of keys."""
        return sum(file.rows for file in self.files)

    def matching(self, keys: NDArray[np.int64]) -> pd.DataFrame:
        """Return the stored keys that are among ``keys``.

        The columns are ``key``, ``check`` and ``address``, all int64. Keys of unknown or removed units and
        of documents without a live row are left out.
        """
        wanted = distinct(keys) if self.files else keys[:0]
        files = [file for file in self.files if len(between(wanted, file.low, file.high))]
        with ThreadPoolExecutor(_THREADS) as pool:
            tables = pool.map(partial(_read_matching, wanted=wanted), files)
            table = pa.concat_tables([EMPTY_KEYS, *tables])
        key, check, ids, rows = (
            np.asarray(table[n].combine_chunks()) for n in EMPTY_KEYS.column_names
        )
        # Keys of units that were removed since stay in the table until it is rebuilt: their ids are
        # unknown.
        indices = np.minimum(np.searchsorted(self.ids, ids), max(len(self.ids) - 1, 0))
        is_known = self.ids[indices] == ids if len(self.ids) else np.zeros(len(ids), np.bool_)
        documents = address(self.numbers[indices[is_known]], rows[is_known])
        columns = {"key": key[is_known], "check": check[is_known], "address": documents}
        return pd.DataFrame(columns)[self._are_live(documents)]

    def _are_live(self, documents: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each document has a live row in ``texts``."""
        are_live, numbers = np.ones(len(documents), np.bool_), file_of(documents)
        found = np.intersect1d(numbers, self.struck)
        for file in self.units.take(found) if len(found) else ():
            indices = np.flatnonzero(numbers == file.number)
            live = np.asarray(self.reader.read_all(file, ["row"])["row"].combine_chunks())
            are_live[indices] = np.isin(row_of(documents[indices]), live)
        return are_live


def _read_matching(file: KeyFile, wanted: NDArray[np.int64]) -> pa.Table:
    """Return the rows of a file whose key is in ``wanted`` (ascending, unique)."""
    tables = [EMPTY_KEYS]
    with live_rows(file.table, file.file, EMPTY_KEYS.column_names) as opened:
        for group in range(opened.num_row_groups):
            bounds = opened.bounds(group, "key")
            # Row groups are ascending by key: most of them have none of the wanted keys, and only
            # ``key`` is read to see which rows match.
            part = wanted if bounds is None else between(wanted, *bounds)
            if not len(part):
                continue
            keys = opened.row_group(group, ["key"])
            indices = matching_indices(np.asarray(keys["key"].combine_chunks()), part)
            if len(indices):
                rest = opened.row_group(group, ["check", "unit", "row"])
                table = rest.add_column(0, EMPTY_KEYS.field("key"), keys["key"])
                tables.append(table.take(pa.array(indices)))
    return pa.concat_tables(tables)


def matching_indices(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of all ``keys`` (ascending) that are in ``wanted`` (ascending, unique)."""
    first, stop = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
    return concatenate_ranges(first, stop - first)


def halves(hashes: pa.Array) -> NDArray[np.int64]:
    """Return content hashes, none of them null, as int64 (n, 2): the first and the last 8 bytes."""
    fixed = hashes.cast(pa.binary(16))
    data = fixed.buffers()[1]
    words = np.frombuffer(data if data is not None else b"", "<i8").reshape(-1, 2)
    return words[fixed.offset : fixed.offset + len(fixed)]


def keys_of_bands(stage: DedupMinhash, signatures: pa.Array) -> NDArray[np.int64]:
    """Return the band keys of signatures, none of them null, as int64 (n, bands)."""
    return band_keys(stage.numbers(signatures)[:, 1:], stage.bands)


class DocumentUnits(NamedTuple):
    """The units of some documents that are compared."""

    hashes: NDArray[np.int64]  # (n,)
    rows: NDArray[np.int64]  # (n,) of the documents
    ordinals: NDArray[np.int64]  # (n,) positions in their documents


def units_of(table: pa.Table) -> DocumentUnits:
    """Return the units of documents, given their ``row`` and ``unit_hashes``."""
    rows, lists = (table[name].combine_chunks() for name in ("row", "unit_hashes"))
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    hashes = lists.flatten().to_numpy()
    is_compared = hashes != NOT_COMPARED
    rows = np.repeat(rows.to_numpy(), sizes)
    ordinals = concatenate_ranges(0, sizes)
    return DocumentUnits(hashes[is_compared], rows[is_compared], ordinals[is_compared])
