"""The keys of documents that are decided in memory, and their rows in the table ``keys``."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from etl import schemas
from etl.dedup.affected import ComparedDocuments
from etl.dedup.key_lookup import EMPTY_KEYS
from etl.dedup.key_order import sort_order
from etl.dedup.numbered_files import file_of, row_of
from etl.kernels.hashing.sorted_sets import among
from etl.lake.keys_table import STORED_KINDS, Kind
from etl.lake.table_specs import KEYS
from etl.parquet.data_file import DataFile, DataFileWriter


class NewKeys(NamedTuple):
    """Keys of documents."""

    keys: NDArray[np.int64]  # (n,)
    checks: NDArray[np.int64]  # (n,)
    documents: NDArray[np.int64]  # (n,) addresses
    kinds: NDArray[np.int64]  # (n,) indices into ``STORED_KINDS``

    @classmethod
    def of(cls, documents: ComparedDocuments, pairs: pd.DataFrame) -> Self:
        """Return the keys of documents, of which ``pairs`` are duplicates."""
        is_near = pairs["kind"].to_numpy() == schemas.WHOLE.index("near")
        dropped = pairs["document"].to_numpy()
        stays = ~among(documents.addresses, dropped)
        near_dropped = among(documents.addresses, dropped[is_near])
        hashes = documents.hashes[stays].T
        parts = [
            (
                *hashes,
                documents.addresses[stays],
                np.full(stays.sum(), STORED_KINDS.index("exact")),
            ),
            cls._bands(documents, stays, "near"),
            cls._bands(documents, near_dropped, "near_dropped"),
        ]
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @classmethod
    def _bands(cls, documents: ComparedDocuments, chosen: NDArray[np.bool_], kind: Kind) -> Self:
        rows = chosen[documents.signed]
        bands = documents.bands[rows]
        addresses = np.repeat(documents.addresses[documents.signed[rows]], bands.shape[1])
        keys, kinds = bands.ravel(), np.full(bands.size, STORED_KINDS.index(kind))
        return cls(keys, np.zeros_like(keys), addresses, kinds)

    def take(self, chosen: NDArray[np.bool_]) -> Self:
        """Return some of the keys."""
        return type(self)(*(column[chosen] for column in self))

    def write(self, url: str, name: str, units: NDArray[np.int64]) -> Iterator[DataFile]:
        """Write the keys to the table at a URL, and yield the data files; ``name`` is their prefix.

        ``units`` has the first 63 bits of the keys of the units of work by number.
        """
        for number, kind in enumerate(STORED_KINDS):
            keys, checks, documents, _ = self.take(self.kinds == number)
            columns = [keys, checks, units[file_of(documents)], row_of(documents)]
            order = sort_order(*columns)
            writer = DataFileWriter(
                url, schemas.KEYS, KEYS.layout, name=name, partition={"kind": kind}
            )
            writer.append(pa.table([each[order] for each in columns], schema=EMPTY_KEYS.schema))
            yield from writer.close()
