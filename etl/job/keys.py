"""Reader and writer of the table ``keys``, an index of kept documents for later runs.

With it, a later run compares new documents with old ones without reading the old ones again. The table is
derived from ``documents`` and ``duplicates`` alone and is updated after each decision. Each data file holds
a range of one run's keys in ascending order. A task with new keys looks up those of its range: it reads the
key column of the row groups that may hold them, and the other columns only where a key matches.

Cost: 8 to 12 bytes on disk per key (``etl.fragment.KEYS`` stores differences). A document has one key for
its text and one for each band; for comparison, a signature takes 4 bytes for each of its numbers.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client
from numpy.typing import NDArray

import schemas
from etl import storage
from etl.compact import Spilled
from etl.errors import ConflictError
from etl.fragment import KEYS, Fragment, FragmentWriter
from etl.job.decisions import Decisions
from etl.job.files import DataFile, Lake, address, data_files, file_id
from etl.job.listed import listed
from etl.job.shuffle import by_range, partitions_for, parts
from etl.job.tasks import Result
from etl.job.waves import compute
from etl.kernels.minhash import band_keys
from etl.kernels.ordered import between, distinct
from etl.key_table import KINDS, KeyTable, Kind
from etl.ledger import Describe, Entry, Ledger
from etl.plan import Unit, kept_units
from etl.stages import DedupMinhash
from etl.table import Table

_KEYS = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("key", "check", "file", "row", "kind")}
)
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})
_EMPTY = pa.schema([schemas.KEYS.field(n) for n in ("key", "check", "file", "row")]).empty_table()


@dataclass(frozen=True)
class KeyFile:
    """A data file of a table ``keys``."""

    uri: str
    kind: Kind
    low: int  # least key
    high: int  # greatest key
    rows: int


def key_files(table: Table) -> list[KeyFile]:
    """Return the data files of a table ``keys``."""
    files = table.fragments()
    if not files.num_rows:
        return []
    names = ["path", "partition.kind", "min.key", "max.key", "rows"]
    return [
        KeyFile(storage.join(table.url, path), kind, low, high, rows)
        for path, kind, low, high, rows in zip(
            *(files[name].to_pylist() for name in names), strict=True
        )
    ]


@dataclass(frozen=True, eq=False)
class OldKeys:
    """Stored keys of one kind, and the data files of ``documents`` that they belong to."""

    files: tuple[KeyFile, ...]
    ids: NDArray[np.int64]  # (n,) of the data files of ``documents``, ascending; see ``file_id``
    numbers: NDArray[np.int64]  # (n,) of the same data files

    @classmethod
    def of(cls, stored: Iterable[KeyFile], files: Iterable[DataFile], kind: Kind) -> Self:
        """Return the stored keys of a kind for the ``files`` that are marked as keyed for it."""
        keyed = (
            (file_id(file.path), file.number)
            for file in files
            if kind in file.kinds and kind in file.keyed
        )
        pairs = np.fromiter(chain.from_iterable(keyed), np.int64).reshape(-1, 2)
        ids, numbers = pairs[np.argsort(pairs[:, 0])].T
        of_kind = tuple(file for file in stored if file.kind == kind) if len(ids) else ()
        return cls(of_kind, ids, numbers)

    @property
    def rows(self) -> int:
        """The number of keys."""
        return sum(file.rows for file in self.files)

    def matching(self, keys: NDArray[np.int64]) -> pd.DataFrame:
        """Return the stored keys that are among ``keys``.

        The columns are ``key``, ``check`` and ``address``, all int64. Keys of unknown or removed data files
        are left out.
        """
        wanted = distinct(keys)
        tables = [table for file in self.files for table in _read_matching(file, wanted)]
        table = pa.concat_tables([_EMPTY, *tables])
        key, check, ids, rows = (np.asarray(table[n].combine_chunks()) for n in _EMPTY.column_names)
        indices = np.minimum(np.searchsorted(self.ids, ids), max(len(self.ids) - 1, 0))
        is_known = self.ids[indices] == ids if len(self.ids) else np.zeros(len(ids), np.bool_)
        numbers = self.numbers[indices[is_known]]
        return pd.DataFrame(
            {
                "key": key[is_known],
                "check": check[is_known],
                "address": address(numbers, rows[is_known]),
            }
        )


def _read_matching(file: KeyFile, wanted: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield the rows of a file whose key is in ``wanted`` (ascending, unique), by row group."""
    if not len(between(wanted, file.low, file.high)):
        return
    with storage.open_input(file.uri) as source:
        parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
        key_column = parquet.schema_arrow.names.index("key")
        for group in range(parquet.num_row_groups):
            statistics = parquet.metadata.row_group(group).column(key_column).statistics
            part = between(wanted, statistics.min, statistics.max)
            if not len(part):
                continue
            keys = parquet.read_row_group(group, columns=["key"], use_threads=False)
            indices = _matching_indices(np.asarray(keys["key"].combine_chunks()), part)
            if len(indices):
                rest = parquet.read_row_group(
                    group, columns=["check", "file", "row"], use_threads=False
                )
                table = rest.add_column(0, _EMPTY.field("key"), keys["key"])
                yield table.take(pa.array(indices))


def _matching_indices(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of all ``keys`` (ascending) that are in ``wanted`` (ascending, unique)."""
    first, last = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, "right")
    counts = last - first
    starts = first - (np.cumsum(counts) - counts)
    return np.repeat(starts, counts) + np.arange(counts.sum())


def halves(hashes: pa.Array) -> NDArray[np.int64]:
    """Return content hashes, none of them null, as int64 (n, 2): the first and the last 8 bytes."""
    fixed = hashes.cast(pa.binary(16))
    data = fixed.buffers()[1]
    words = np.frombuffer(data if data is not None else b"", "<i8").reshape(-1, 2)
    return words[fixed.offset : fixed.offset + len(fixed)]


def keys_of_bands(stage: DedupMinhash, signatures: pa.Array) -> NDArray[np.int64]:
    """Return the band keys of signatures, none of them null, as int64 (n, bands)."""
    return band_keys(stage.numbers(signatures)[:, 1:], stage.bands)


def update(
    client: Client,
    documents: Ledger,
    duplicates: Ledger,
    *,
    lake: Lake,
    lineage: Callable[..., Describe],
) -> None:
    """Write the missing keys of decided documents in one commit.

    ``lineage`` returns the lineage of a commit, given its results, ``action`` and ``fingerprint``.
    """
    while True:
        decisions, table = Decisions(duplicates), KeyTable(duplicates)
        documents.refresh()
        assert documents.table is not None
        units = Spilled(
            unit
            for unit in kept_units(documents.table)
            if decisions.include(unit) and not table.has(unit.key)
        )
        if not len(units):
            return
        ledger = table.ledger
        describe = partial(lineage, fingerprint=ledger.fingerprint)
        try:
            if not table.fits:
                table.begin(partial(describe([], action="rebuild"), []))
                continue  # another run may have created the table and written keys
            names, files = (ledger.key(unit.key) for unit in units), data_files(units, decisions)
            name = next(names)
            fragments = write(client, files, lake, url=ledger.url, name=name)
            entries = [Entry(name, fragments), *map(Entry, names)]
            ledger.commit(entries, describe([_result(units, fragments)]), retry=False)
        except ConflictError:  # another run has committed keys
            continue


def _result(units: Iterable[Unit], fragments: Sequence[Fragment]) -> Result:
    """Return the counts of a commit: documents read, kept and dropped."""
    rows = sum(unit.rows for unit in units)
    kept = sum(f.rows for f in fragments if f.partition["kind"] == "exact")
    return Result("", rows=rows, kept=kept, duplicates=rows - kept)


def write(
    client: Client, files: Iterable[DataFile], lake: Lake, *, url: str, name: str
) -> list[Fragment]:
    """Write the keys of kept documents to fragments of the table at ``url``; return the fragments.

    All ``files`` are decided; ``name`` is the prefix of the new files' names.
    """
    per_document = 1 + (0 if lake.stage is None else lake.stage.bands)
    with listed(files, url, name) as numbered:
        numbers, rows = numbered.chosen(lambda _: True)
        keys = numbered.frame(
            parts(numbers, rows * per_document),
            read=partial(_read_keys, lake=lake),
            meta=_KEYS,
            label="keys-read",
        )
        keys = by_range(keys, "key", partitions_for(per_document * int(rows.sum())))
        results = keys.map_partitions(_Write(url, name), meta=_RESULT)
        written = compute(client, results, label="keys")
    return [Fragment(**fragment) for text in written["result"] for fragment in json.loads(text)]


def _read_keys(file: DataFile, *, lake: Lake) -> pd.DataFrame:
    """Return the keys of each kept document of a file; ``kind`` is an index into ``KINDS``."""
    has_bands = lake.stage is not None
    table = lake.read(file, ["content_hash", *(["signature"] if has_bands else [])])
    rows = np.asarray(table["row"].combine_chunks())
    hashes = halves(table["content_hash"].combine_chunks())
    parts = [(hashes[:, 0], hashes[:, 1], rows)]
    if lake.stage is not None:
        signatures = table["signature"].combine_chunks()
        signed_rows = rows[signatures.is_valid().to_numpy(zero_copy_only=False)]
        keys = keys_of_bands(lake.stage, signatures.drop_null()).ravel()
        parts.append((keys, np.zeros_like(keys), np.repeat(signed_rows, lake.stage.bands)))
    key, check, row = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    kind = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    id = np.full(len(key), file_id(file.path))
    return pd.DataFrame({"key": key, "check": check, "file": id, "row": row, "kind": kind})


@dataclass(frozen=True)
class _Write:
    """Partition task that writes keys to fragments, one for each range and kind."""

    url: str
    name: str

    def __call__(self, keys: pd.DataFrame) -> pd.DataFrame:
        fragments: list[dict[str, Any]] = []
        ranges = [part for _, part in keys.groupby("range")] if "range" in keys else [keys]
        for part in ranges:
            for index, kind in enumerate(KINDS):
                rows = part[part["kind"] == index].sort_values(["key", "check", "file", "row"])
                writer = FragmentWriter(
                    self.url, schemas.KEYS, KEYS, name=self.name, partition={"kind": kind}
                )
                columns = {name: rows[name].to_numpy() for name in _EMPTY.column_names}
                writer.append(pa.table(columns, schema=_EMPTY.schema))
                fragments.extend(asdict(fragment) for fragment in writer.close())
        return pd.DataFrame({"result": pd.Series([json.dumps(fragments)], dtype=object)})
