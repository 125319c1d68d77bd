"""The table ``keys``: by what the documents that stay are found, so that no later run reads them again.

It is made of ``documents`` and ``duplicates`` alone, after each decision. Each of its data files holds a
range of keys of one run, in their order. A task that has new keys looks up those of its range: it reads
the row groups that may hold them, of these the column of keys, and the rest only where one is found.

Cost: a file takes 8 to 12 bytes a key (``etl.fragment.KEYS`` stores differences), and a document has one
key for its text and one for each band; a signature takes 4 bytes for each of its numbers.
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
    """One data file of a table ``keys``: where it is, its kind, its least and greatest key, its rows."""

    uri: str
    kind: Kind
    low: int
    high: int
    rows: int


def key_files(table: Table) -> list[KeyFile]:
    """The data files of a table ``keys``."""
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
    """The keys of one kind that stand in tables, and the numbers of the data files that they are of."""

    files: tuple[KeyFile, ...]
    ids: NDArray[np.int64]  # of the data files, ascending
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, found: Iterable[KeyFile], files: Iterable[DataFile], kind: Kind) -> Self:
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


def update(
    client: Client,
    documents: Ledger,
    duplicates: Ledger,
    *,
    lake: Lake,
    lineage: Callable[..., Describe],
) -> None:
    """Write the keys of what is decided and has none yet, in one commit.

    ``lineage`` makes the record of a commit, of its results, ``action`` and ``fingerprint``.
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
                continue  # another run may have begun it, and be further
            names, files = (ledger.key(unit.key) for unit in units), data_files(units, decisions)
            name = next(names)
            fragments = write(client, files, lake, url=ledger.url, name=name)
            entries = [Entry(name, fragments), *map(Entry, names)]
            ledger.commit(entries, describe([_result(units, fragments)]), retry=False)
        except ConflictError:  # another run has written keys meanwhile
            continue


def _result(units: Iterable[Unit], fragments: Sequence[Fragment]) -> Result:
    """What is counted of a commit: the documents looked at, and those that stay."""
    rows = sum(unit.rows for unit in units)
    kept = sum(f.rows for f in fragments if f.partition["kind"] == "exact")
    return Result("", rows=rows, kept=kept, duplicates=rows - kept)


def write(
    client: Client, files: Iterable[DataFile], lake: Lake, *, url: str, name: str
) -> list[Fragment]:
    """Write the keys of the documents that stay to fragments of the table at ``url``; return these.

    ``files`` are decided; ``name`` is the head of the new files' names.
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
    """The keys of each document of a file that stays; the kind is its place in ``KINDS``."""
    has_bands = lake.stage is not None
    table = lake.read(file, ["content_hash", *(["signature"] if has_bands else [])])
    rows = np.asarray(table["row"].combine_chunks())
    found = halves(table["content_hash"].combine_chunks())
    parts = [(found[:, 0], found[:, 1], rows)]
    if lake.stage is not None:
        signatures = table["signature"].combine_chunks()
        signed = rows[signatures.is_valid().to_numpy(zero_copy_only=False)]
        keys = keys_of_bands(lake.stage, signatures.drop_null()).ravel()
        parts.append((keys, np.zeros_like(keys), np.repeat(signed, lake.stage.bands)))
    key, check, row = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    kind = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    id = np.full(len(key), file_id(file.path))
    return pd.DataFrame({"key": key, "check": check, "file": id, "row": row, "kind": kind})


@dataclass(frozen=True)
class _Write:
    """Keys -> fragments, one for each range and kind."""

    url: str
    name: str

    def __call__(self, keys: pd.DataFrame) -> pd.DataFrame:
        fragments: list[dict[str, Any]] = []
        ranges = [part for _, part in keys.groupby("range")] if "range" in keys else [keys]
        for part in ranges:
            for place, kind in enumerate(KINDS):
                rows = part[part["kind"] == place].sort_values(["key", "check", "file", "row"])
                writer = FragmentWriter(
                    self.url, schemas.KEYS, KEYS, name=self.name, partition={"kind": kind}
                )
                columns = {name: rows[name].to_numpy() for name in _EMPTY.column_names}
                writer.append(pa.table(columns, schema=_EMPTY.schema))
                fragments.extend(asdict(fragment) for fragment in writer.close())
        return pd.DataFrame({"result": pd.Series([json.dumps(fragments)], dtype=object)})
