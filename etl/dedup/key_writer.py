"""Write the keys of decided documents to the table `keys`, for look-ups by later runs."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from distributed import Client

from etl import schemas
from etl.compact_collections import SpilledList
from etl.compute.shuffle import partitions_for, shuffle_by_range, task_batches
from etl.compute.submit import compute_frame
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import EMPTY_KEYS, halves, keys_of_bands
from etl.dedup.numbered_files import NumberedFile, number_files
from etl.dedup.stored_file_list import store_file_list
from etl.delta.data_file import DataFile, DataFileWriter
from etl.errors import ConflictError
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.keys_table import KINDS, KeysTable, file_id
from etl.lake.ledger import Describe, Ledger, LedgerEntry
from etl.lake.table_specs import KEYS
from etl.lake.work_units import WorkUnit, kept_units
from etl.stages.dedup import find_dedup_stage
from etl.stages.dedup_minhash import DedupMinhash

_KEYS = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("key", "check", "file", "row", "kind")}
)


_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


def update_keys(
    client: Client,
    documents: Ledger,
    duplicates: Ledger,
    *,
    lake: DocumentReader,
    lineage: Callable[..., Describe],
) -> None:
    """Write the missing keys of decided documents in one commit.

    ``lineage`` returns the lineage of a commit, given its counts, ``action`` and ``fingerprint``.
    """
    while True:
        decisions, table = DedupDecisions(duplicates), KeysTable(duplicates)
        documents.refresh()
        assert documents.table is not None
        units = SpilledList(
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
                table.create_or_rebuild(partial(describe(action="rebuild"), []))
                continue  # another run may have created the table and written keys
            names, files = (ledger.key(unit.key) for unit in units), number_files(units, decisions)
            name = next(names)
            data_files = write_keys(client, files, lake, url=ledger.url, name=name)
            entries = [LedgerEntry(name, data_files), *map(LedgerEntry, names)]
            ledger.commit(entries, describe(_counts(units, data_files)), retry=False)
        except ConflictError:  # another run has committed keys
            continue


def _counts(units: Iterable[WorkUnit], data_files: Sequence[DataFile]) -> schemas.Counts:
    """Return the counts of a commit: documents read, kept and dropped."""
    rows = sum(unit.rows for unit in units)
    kept = sum(f.rows for f in data_files if f.partition["kind"] == "exact")
    return schemas.Counts(rows=rows, kept=kept, duplicates=rows - kept)


def write_keys(
    client: Client, files: Iterable[NumberedFile], lake: DocumentReader, *, url: str, name: str
) -> list[DataFile]:
    """Write the keys of kept documents to data files of the table at ``url``; return the data files.

    All ``files`` are decided; ``name`` is the prefix of the new files' names.
    """
    stage = find_dedup_stage(lake.stages, DedupMinhash)
    per_document = 1 + (0 if stage is None else stage.bands)
    with store_file_list(files, url, name) as numbered:
        numbers, rows = numbered.chosen(lambda _: True)
        keys = numbered.frame(
            task_batches(numbers, rows * per_document),
            read=partial(_read_keys, lake=lake, stage=stage),
            meta=_KEYS,
            label="keys-read",
        )
        keys = shuffle_by_range(keys, "key", partitions_for(per_document * int(rows.sum())))
        results = keys.map_partitions(_Write(url, name), meta=_RESULT)
        written = compute_frame(client, results, label="keys")
    return [DataFile(**data_file) for text in written["result"] for data_file in json.loads(text)]


def _read_keys(
    file: NumberedFile, *, lake: DocumentReader, stage: DedupMinhash | None
) -> pd.DataFrame:
    """Return the keys of each kept document of a file; ``kind`` is an index into ``KINDS``."""
    table = lake.read(file, ["content_hash", *(["signature"] if stage is not None else [])])
    rows = np.asarray(table["row"].combine_chunks())
    hashes = halves(table["content_hash"].combine_chunks())
    parts = [(hashes[:, 0], hashes[:, 1], rows)]
    if stage is not None:
        signatures = table["signature"].combine_chunks()
        signed_rows = rows[signatures.is_valid().to_numpy(zero_copy_only=False)]
        keys = keys_of_bands(stage, signatures.drop_null()).ravel()
        parts.append((keys, np.zeros_like(keys), np.repeat(signed_rows, stage.bands)))
    key, check, row = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    kind = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    id = np.full(len(key), file_id(file.path))
    return pd.DataFrame({"key": key, "check": check, "file": id, "row": row, "kind": kind})


@dataclass(frozen=True)
class _Write:
    """Partition task that writes keys to data files, one for each range and kind."""

    url: str
    name: str

    def __call__(self, keys: pd.DataFrame) -> pd.DataFrame:
        data_files: list[dict[str, Any]] = []
        ranges = [part for _, part in keys.groupby("range")] if "range" in keys else [keys]
        for part in ranges:
            for index, kind in enumerate(KINDS):
                rows = part[part["kind"] == index].sort_values(["key", "check", "file", "row"])
                writer = DataFileWriter(
                    self.url, schemas.KEYS, KEYS.layout, name=self.name, partition={"kind": kind}
                )
                columns = {name: rows[name].to_numpy() for name in EMPTY_KEYS.column_names}
                writer.append(pa.table(columns, schema=EMPTY_KEYS.schema))
                data_files.extend(asdict(data_file) for data_file in writer.close())
        return pd.DataFrame({"result": pd.Series([json.dumps(data_files)], dtype=object)})
