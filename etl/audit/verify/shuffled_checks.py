"""Check that ``tokens_shuffled`` has the rows of a version of ``tokens``, in the order of their keys.

The table is only checked while it is in use: if it does not fit ``tokens``, the next shuffle writes it again.
Rows are compared by digests, which are in the logs: a vacuum may have deleted that version of ``tokens``.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from etl.audit.verify.file_checks import Problem
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.ledger import Ledger
from etl.lake.random_keys import random_keys
from etl.lake.shuffled_table import ShuffledTable, buckets_of, seed_of
from etl.lake.table_digest import table_digest
from etl.schemas.shuffled_files import Bucket

_COLUMNS = ["source", "row", "num_tokens", "token_end"]


def check_shuffled(tokens: Ledger, table: Table) -> Iterator[Problem]:
    """Yield a problem for files in another order, and for rows that differ from the rows of ``tokens``.

    Four small columns of the table are read.
    """
    seed = seed_of(table)
    shuffled = ShuffledTable(tokens, seed=seed or 0, table=table)
    if not shuffled.fits or seed is None:
        return
    first = None
    for path, rows in _files(table):
        first = first or path
        yield from (Problem(shuffled.name, path, what) for what in _in_file(path, rows, seed))
    before = Table.open(tokens.url, shuffled.tokens_version)
    if table_digest(table) != table_digest(before):
        of_tokens = f"version {before.version} of {tokens.url.rpartition('/')[2]}"
        yield Problem(shuffled.name, first, f"its rows are not those of {of_tokens}")


def _files(table: Table) -> Iterator[tuple[str, pa.Table]]:
    for file in table.files("vector"):
        yield file["path"], read_live_rows(table.url, file, _COLUMNS)


def _in_file(path: str, rows: pa.Table, seed: int) -> Iterator[str]:
    """Yield what is wrong with the order of the rows of a data file."""
    keys = random_keys(rows, seed)
    bucket = Bucket.of_file(path)
    if (keys[1:] < keys[:-1]).any():
        yield "its rows are not in the order of their random keys"
    elif bucket is None or (buckets_of(keys, bucket.count) != bucket.number).any():
        yield "its rows belong to another bucket than its name says"
    ends = np.cumsum(np.asarray(rows["num_tokens"].combine_chunks()), dtype=np.int64)
    if not np.array_equal(ends, np.asarray(rows["token_end"].combine_chunks())):
        yield "token_end is not the running total of num_tokens"
