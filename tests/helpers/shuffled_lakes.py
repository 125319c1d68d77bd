"""Lakes with a table ``tokens`` that no run has written, and the rows of ``tokens_shuffled`` in order."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.delta.table import Table
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.table_specs import TOKENS
from etl.parquet.data_file import DataFileWriter

Documents = Mapping[str, Sequence[int]]
"""The number of tokens of each document, by input file."""

Address = tuple[str, int]


def rows_of(source: str, lengths: Sequence[int]) -> pa.Table:
    """Return the rows of an input file in ``tokens``; the tokens of row r are r, r, r ..."""
    columns = {
        "id": [f"{source}-{row}" for row in range(len(lengths))],
        "source": [source] * len(lengths),
        "row": range(len(lengths)),
        "tokens": [np.full(n, row, np.int32) for row, n in enumerate(lengths)],
        "num_tokens": lengths,
    }
    return pa.table(columns, schema=pa.schema(list(schemas.TOKENIZED)[:-1]))


def add_tokens(lake: str, documents: Documents) -> Ledger:
    """Commit input files to ``tokens``, each as one data file; create the table first."""
    ledger = Ledger(storage.join(lake, "tokens"), fingerprint="f" * 64)
    if ledger.table is None:
        ledger.create(schemas.TOKENS, TOKENS.layout)
    entries = []
    for source, lengths in documents.items():
        key = ledger.key(source)
        writer = DataFileWriter(ledger.url, schemas.TOKENS, TOKENS.layout, name=key)
        writer.append(rows_of(source, lengths))
        entries.append(LedgerEntry(key, writer.close()))
    record = schemas.Lineage(
        run_id="0",
        recipe="test",
        fingerprint=ledger.fingerprint,
        canonical={},
        step="tokens",
        generation=1,
        versions={},
        started="",
        committed="",
    )
    ledger.commit(entries, lambda *_: record)
    return ledger


def shuffled_rows(lake: str) -> list[Address]:
    """Return the addresses in ``tokens_shuffled``, in the order of its files."""
    table = Table.open(storage.join(lake, "tokens_shuffled"))
    return [row for file in table.files("path") for row in _addresses(table, file["path"])]


def _addresses(table: Table, path: str) -> list[Address]:
    with storage.open_input(storage.join(table.url, path)) as file:
        rows = pq.read_table(file, columns=["source", "row"])
    return list(zip(rows["source"].to_pylist(), rows["row"].to_pylist(), strict=True))


def all_rows(documents: Documents) -> list[Address]:
    return [(source, row) for source, lengths in documents.items() for row in range(len(lengths))]
