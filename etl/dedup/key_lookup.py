"""Find earlier documents by their keys."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from etl import schemas, storage
from etl.dedup.numbered_files import NumberedFile, address
from etl.kernels.hashing.minhash import band_keys
from etl.kernels.hashing.sorted_sets import between, distinct
from etl.lake.keys_table import KeyFile, Kind, file_id
from etl.stages import DedupMinhash

_EMPTY = pa.schema([schemas.KEYS.field(n) for n in ("key", "check", "file", "row")]).empty_table()


@dataclass(frozen=True, eq=False)
class StoredKeys:
    """The keys of one kind that stand in tables, and the numbers of the data files that they are of."""

    files: tuple[KeyFile, ...]
    ids: NDArray[np.int64]  # of the data files, ascending
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, found: Iterable[KeyFile], files: Iterable[NumberedFile], kind: Kind) -> Self:
        """The keys of those data files whose keys of this kind stand in a table."""
        known = (
            (file_id(file.path), file.number)
            for file in files
            if kind in file.kinds and kind in file.keyed
        )
        pairs = np.fromiter(chain.from_iterable(known), np.int64).reshape(-1, 2)
        ids, numbers = pairs[np.argsort(pairs[:, 0])].T
        chosen = tuple(file for file in found if file.kind == kind) if len(ids) else ()
        return cls(chosen, ids, numbers)

    @property
    def rows(self) -> int:
        """How many keys there are."""
        return sum(file.rows for file in self.files)

    def matching(self, keys: NDArray[np.int64]) -> pd.DataFrame:
        """The old keys that are among some others: ``key``, ``check``, ``address``, all int64.

        Keys of data files that are not known (any more) are left out.
        """
        wanted = distinct(keys)
        tables = [table for file in self.files for table in _read_matching(file, wanted)]
        found = pa.concat_tables([_EMPTY, *tables])
        key, check, ids, rows = (np.asarray(found[n].combine_chunks()) for n in _EMPTY.column_names)
        places = np.minimum(np.searchsorted(self.ids, ids), max(len(self.ids) - 1, 0))
        is_known = self.ids[places] == ids if len(self.ids) else np.zeros(len(ids), np.bool_)
        numbers = self.numbers[places[is_known]]
        return pd.DataFrame(
            {
                "key": key[is_known],
                "check": check[is_known],
                "address": address(numbers, rows[is_known]),
            }
        )


def _read_matching(file: KeyFile, wanted: NDArray[np.int64]) -> Iterator[pa.Table]:
    """The rows of a file whose key is wanted (ascending, each once), by row group."""
    if not len(between(wanted, file.low, file.high)):
        return
    with storage.open_input(file.uri) as source:
        parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
        place = parquet.schema_arrow.names.index("key")
        for group in range(parquet.num_row_groups):
            known = parquet.metadata.row_group(group).column(place).statistics
            part = between(wanted, known.min, known.max)
            if not len(part):
                continue
            keys = parquet.read_row_group(group, columns=["key"], use_threads=False)
            places = _places(np.asarray(keys["key"].combine_chunks()), part)
            if len(places):
                rest = parquet.read_row_group(
                    group, columns=["check", "file", "row"], use_threads=False
                )
                yield rest.add_column(0, _EMPTY.field("key"), keys["key"]).take(pa.array(places))


def _places(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in some keys (ascending) the wanted ones stand, each as often as it is there."""
    first, last = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
    counts = last - first
    starts = first - (np.cumsum(counts) - counts)
    return np.repeat(starts, counts) + np.arange(counts.sum())


def halves(hashes: pa.Array) -> NDArray[np.int64]:
    """Content hashes, none of them null, as int64 (n, 2): the first and the last 8 bytes."""
    fixed = hashes.cast(pa.binary(16))
    data = fixed.buffers()[1]
    every = np.frombuffer(data if data is not None else b"", "<i8").reshape(-1, 2)
    return every[fixed.offset : fixed.offset + len(fixed)]


def keys_of_bands(stage: DedupMinhash, signatures: pa.Array) -> NDArray[np.int64]:
    """The keys of the bands of signatures, none of them null: int64 (n, bands)."""
    return band_keys(stage.numbers(signatures)[:, 1:], stage.bands)
