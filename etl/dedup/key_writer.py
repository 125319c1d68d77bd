"""Write the keys of decided documents to the table `keys`, for look-ups by later runs.

A document that is not a duplicate as a whole gets the keys of its content hash and its bands. A near
duplicate gets the keys of its bands, for changes of the recipe (``etl.dedup.affected``). The units of a
document (paragraphs, lines or sentences), or its intervals of windows, get keys only if no earlier document
has them, or all that have them were dropped as short: later documents need only the first ones
(``etl.dedup.paragraphs``, ``etl.dedup.substrings``).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from distributed import Client
from numpy.typing import NDArray

from etl import schemas
from etl.compact_collections import SpilledList
from etl.compute.compute_frames import compute_frame
from etl.compute.frame_shuffles import partitions_for, range_of, shuffle_by_range, task_batches
from etl.compute.frame_tasks import map_frames
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import (
    EMPTY_KEYS,
    SHORT_CHECK,
    StoredKeys,
    halves,
    keys_of_bands,
    units_of,
)
from etl.dedup.key_merger import merge_keys
from etl.dedup.key_order import first_keys, sort_order
from etl.dedup.numbered_files import (
    NumberedFile,
    address,
    by_arrival,
    file_of,
    files_of,
    number_files,
    row_of,
)
from etl.dedup.snippets import intervals_of
from etl.dedup.stored_file_list import store_file_list
from etl.errors import ConflictError
from etl.kernels.hashing.window_anchors import LOCAL
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.input_log import int63
from etl.lake.keys_table import STORED_KINDS, KeyFile, KeysTable, Kind, list_key_files
from etl.lake.ledger import Describe, Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import NO_COUNTS
from etl.lake.table_specs import KEYS
from etl.lake.work_units import WorkUnit, arrived_units
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.stages.dedup_base import find_dedup_stage
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.dedup_substrings import DedupSubstrings

_KEYS = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("key", "check", "document", "kind")}
)
_CUT = STORED_KINDS.index("cut")
_ROW = ("key", "check", "document")
_PASSAGES_PER_ROW = 32  # of a typical web page; only decides how many data files a task reads
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


DescribeKeys = Callable[[schemas.Counts, schemas.Action], Describe]
"""A function that returns, for the counts and the action of a commit to ``keys``, how to describe it."""


def update_keys(
    client: Client,
    texts: Ledger,
    duplicates: Ledger,
    *,
    reader: DocumentReader,
    describe: DescribeKeys,
) -> None:
    """Write the missing keys of decided documents in one commit; merge data files if there are many."""
    while True:
        decisions, table = DedupDecisions(duplicates), KeysTable(duplicates)
        texts.refresh()
        assert texts.table is not None
        units = SpilledList(
            unit for unit in arrived_units(texts, duplicates) if decisions.include(unit)
        )
        todo = SpilledList(unit for unit in units if not table.has(unit.key))
        if not len(todo):
            return
        ledger = table.ledger
        try:
            if not table.fits:
                table.create_or_rebuild(describe(NO_COUNTS, "rebuild"))
                continue  # another run may have created the table and written keys
            assert ledger.table is not None
            files = number_files(files_of(by_arrival(units), decisions, keyed=table.kinds_of))
            names = (ledger.key(unit.key) for unit in todo)
            name, stored = next(names), list_key_files(ledger.table)
            data_files = write_keys(client, files, reader, stored, url=ledger.url, name=name)
            entries = [LedgerEntry(name, data_files), *map(LedgerEntry, names)]
            ledger.commit(entries, describe(_counts(todo, data_files), "append"), retry=False)
            merge_keys(client, ledger, describe(NO_COUNTS, "optimize"))
            return
        except ConflictError:  # another run has committed keys
            continue


def _counts(units: Iterable[WorkUnit], data_files: Sequence[DataFile]) -> schemas.Counts:
    """Return the counts of a commit: documents read, kept and dropped."""
    rows = sum(unit.rows for unit in units)
    kept = sum(f.rows for f in data_files if f.partition["kind"] == "exact")
    return schemas.Counts(rows=rows, kept=kept, duplicates=rows - kept)


def write_keys(
    client: Client,
    files: Iterable[NumberedFile],
    reader: DocumentReader,
    stored: Sequence[KeyFile] = (),
    *,
    url: str,
    name: str,
) -> list[DataFile]:
    """Write the keys of documents to data files of the table at ``url``; return the data files.

    All ``files`` are decided. The keys of those that are marked as keyed are in ``stored``. ``name`` is the
    prefix of the new files' names.
    """
    source = _KeySource.of(reader)
    with store_file_list(files, url, name) as numbered:
        numbers, rows = numbered.chosen(lambda file: not file.keyed)
        keys = numbered.frame(
            task_batches(numbers, rows * source.per_document),
            read=partial(_read_keys, source=source),
            meta=_KEYS,
            label="keys.read",
        )
        stored_units = StoredKeys.of(stored, numbered, "cut", reader)
        partitions = partitions_for(source.per_document * int(rows.sum()), stored_units.rows)
        units = numbered.fields(numbers, ["unit"])["unit"]
        ids = np.fromiter(map(int63, units), np.int64, len(numbers))
        write = _Write(url, name, numbers, ids, stored_units, partitions)
        keys = shuffle_by_range(keys, "key", partitions)
        results = map_frames("keys.write", write, keys, meta=_RESULT)
        written = compute_frame(client, results, label="keys")
    return [DataFile(**data_file) for text in written["result"] for data_file in json.loads(text)]


@dataclass(frozen=True)
class _KeySource:
    """What keys are computed from: a lake, and the stages whose columns it has."""

    reader: DocumentReader
    near: DedupMinhash | None
    cut: DedupParagraphs | DedupSubstrings | None

    @classmethod
    def of(cls, reader: DocumentReader) -> "_KeySource":
        """Return the source of the keys of a lake with these deduplication stages."""
        stages = reader.stages
        return cls(
            reader,
            find_dedup_stage(stages, DedupMinhash),
            find_dedup_stage(stages, DedupParagraphs) or find_dedup_stage(stages, DedupSubstrings),
        )

    @property
    def per_document(self) -> int:
        """About how many keys a document has."""
        bands = 0 if self.near is None else self.near.bands
        return 1 + bands + (0 if self.cut is None else _PASSAGES_PER_ROW)

    def columns(self) -> list[str]:
        """Return the columns of ``texts`` that keys are computed from."""
        near = [] if self.near is None else ["signature"]
        cut = [] if self.cut is None else self.cut.document_columns().names
        return ["content_hash", *near, *cut]


def _read_keys(file: NumberedFile, *, source: _KeySource) -> pd.DataFrame:
    """Return the keys of a file's documents; ``kind`` is an index into ``STORED_KINDS``."""
    stored = source.reader.read_all(file, [*dict.fromkeys(["row", *source.columns()])])
    dropped = source.reader.listed_rows(file, schemas.WHOLE)
    table = _chosen(stored, dropped, invert=True)
    rows = np.asarray(table["row"].combine_chunks())
    hashes = halves(table["content_hash"].combine_chunks())
    parts = [_frame(hashes[:, 0], hashes[:, 1], rows, "exact")]
    if source.near is not None:
        parts.append(_bands(table, source.near, "near"))
        if len(dropped):
            near = _chosen(stored, source.reader.listed_rows(file, ["near"]))
            parts.append(_bands(near, source.near, "near_dropped"))
    if source.cut is not None:
        passages = _passages(table, source.cut)
        is_short = np.isin(passages[2], source.reader.listed_rows(file, [schemas.SHORT]))
        hashes, check, documents = passages[0], passages[1] | is_short * SHORT_CHECK, passages[2]
        needed = first_keys(hashes, check, documents)
        parts.append(_frame(hashes[needed], check[needed], documents[needed], "cut"))
    keys = pd.concat(parts, ignore_index=True)
    return keys.assign(document=address(np.int64(file.number), keys["document"].to_numpy()))


def _chosen(table: pa.Table, rows: NDArray[np.int64], *, invert: bool = False) -> pa.Table:
    """Return the documents with some row numbers, or with ``invert`` all others."""
    is_chosen = np.isin(np.asarray(table["row"].combine_chunks()), rows, invert=invert)
    return table if is_chosen.all() else table.filter(pa.array(is_chosen))


def _bands(table: pa.Table, stage: DedupMinhash, kind: Kind) -> pd.DataFrame:
    """Return the band keys of documents that have a signature."""
    signatures = table["signature"].combine_chunks()
    signed = table["row"].combine_chunks().filter(signatures.is_valid())
    bands = keys_of_bands(stage, signatures.drop_null()).ravel()
    return _frame(bands, np.zeros_like(bands), np.repeat(np.asarray(signed), stage.bands), kind)


def _passages(
    table: pa.Table, stage: DedupParagraphs | DedupSubstrings
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys, checks and rows of the units or intervals that are compared."""
    if isinstance(stage, DedupParagraphs):
        units = units_of(table)
        return units.hashes, np.zeros_like(units.hashes), units.rows
    found = intervals_of(table).filter(pl.col("chunk") != LOCAL)
    hashes, chunks, rows = (found[name].to_numpy() for name in ("hash", "chunk", "row"))
    return hashes, chunks, rows


def _frame(
    keys: NDArray[np.int64], check: NDArray[np.int64], rows: NDArray[np.int64], kind: Kind
) -> pd.DataFrame:
    columns = {"key": keys, "check": check, "document": rows}
    return pd.DataFrame(columns).assign(kind=STORED_KINDS.index(kind))


@dataclass(frozen=True)
class _Write:
    """Partition task that writes keys to data files, one for each range and kind."""

    url: str
    name: str
    numbers: NDArray[np.int64]  # (n,) of the units of work, ascending
    ids: NDArray[np.int64]  # (n,) the first 63 bits of the keys of the same units
    stored: StoredKeys  # of units
    partitions: int  # of the keys, by ranges

    def __call__(self, keys: pd.DataFrame) -> pd.DataFrame:
        data_files: list[dict[str, Any]] = []
        columns = {name: keys[name].to_numpy() for name in _KEYS.columns}
        for index, kind in enumerate(STORED_KINDS):
            chosen = np.flatnonzero(columns["kind"] == index)
            if index == _CUT:
                chosen = chosen[self._first(*(columns[name][chosen] for name in _ROW))]
            rows = self._rows(*(columns[name][chosen] for name in _ROW))
            for part in self._ranges(rows):
                writer = DataFileWriter(
                    self.url, schemas.KEYS, KEYS.layout, name=self.name, partition={"kind": kind}
                )
                writer.append(part)
                data_files.extend(asdict(data_file) for data_file in writer.close())
        return pd.DataFrame({"result": pd.Series([json.dumps(data_files)], dtype=object)})

    def _first(self, *columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of passages whose keys are needed besides the stored ones."""
        # Stored keys come last, so that positions below the number of new passages are new ones.
        stored = self.stored.matching(columns[0])
        others = (stored[name].to_numpy() for name in ("key", "check", "address"))
        needed = first_keys(*map(np.append, columns, others))
        return needed[needed < len(columns[0])]

    def _rows(
        self, keys: NDArray[np.int64], check: NDArray[np.int64], documents: NDArray[np.int64]
    ) -> pa.Table:
        """Return the keys as rows of the table, in its order."""
        units = self.ids[np.searchsorted(self.numbers, file_of(documents))]
        columns = [keys, check, units, row_of(documents)]
        order = sort_order(*columns)
        return pa.table([column[order] for column in columns], schema=EMPTY_KEYS.schema)

    def _ranges(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows of each range, which are neighbours."""
        if self.partitions == 1:
            yield rows
            return
        ranges = range_of(rows["key"].to_numpy(), self.partitions)
        for begin, end in pairwise([0, *(1 + np.flatnonzero(np.diff(ranges))), len(rows)]):
            yield rows.slice(begin, end - begin)
