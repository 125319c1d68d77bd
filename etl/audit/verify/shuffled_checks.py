"""Check that ``tokens_shuffled`` has the rows of a version of ``tokens``, in the order of their keys.

The table is only checked while it is in use: if it does not fit ``tokens``, the next shuffle writes it again.
Rows are compared by sums of 64-bit hashes of addresses and numbers of tokens, so that none are held.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from etl.audit.verify.file_checks import Problem
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.delta.vacuum_records import is_vacuumed
from etl.lake.ledger import Ledger
from etl.lake.random_keys import random_keys
from etl.lake.shuffled_table import ShuffledTable, buckets_of, seed_of
from etl.schemas.shuffled_files import Bucket

_SEEDS = (-1, -2)  # of the hashes of addresses; no shuffle has them
_COLUMNS = ["source", "row", "num_tokens", "token_end"]


@dataclass(frozen=True)
class _Sum:
    """The number of rows, and two sums of hashes that equal sets of rows have in common."""

    rows: int = 0
    addresses: int = 0
    lengths: int = 0

    def plus(self, rows: pa.Table) -> "_Sum":
        first, second = (random_keys(rows, seed) for seed in _SEEDS)
        odd = 2 * np.asarray(rows["num_tokens"].combine_chunks()).astype(np.uint64) + np.uint64(1)
        return _Sum(
            self.rows + rows.num_rows,
            (self.addresses + int(first.sum())) % (1 << 64),
            (self.lengths + int((second * odd).sum())) % (1 << 64),
        )


def check_shuffled(tokens: Ledger, table: Table) -> Iterator[Problem]:
    """Yield a problem for files in another order, and for rows that differ from the rows of ``tokens``.

    Four small columns of both tables are read.
    """
    seed = seed_of(table)
    shuffled = ShuffledTable(tokens, seed=seed or 0, table=table)
    if not shuffled.fits or seed is None:
        return
    total, first = _Sum(), None
    for path, rows in _files(table):
        first = first or path
        yield from (Problem("tokens_shuffled", path, what) for what in _in_file(path, rows, seed))
        total = total.plus(rows)
    version = shuffled.tokens_version
    before, newest = Table.open(tokens.url, version), tokens.table
    expected = _num_rows(before)
    assert newest is not None
    if is_vacuumed(before.url, before.version) and _num_rows(newest) == expected:
        before = newest  # newer files have the same rows
    is_same = total.rows == expected
    if is_same and not is_vacuumed(before.url, before.version):
        is_same = total == _sum(rows for _, rows in _files(before))
    if not is_same:
        what = f"the {total.rows} rows of the table are not the {expected} of version {version} of tokens"
        yield Problem("tokens_shuffled", first, what)


def _num_rows(table: Table) -> int:
    return sum(int(file["rows"]) for file in table.files("rows", by=()))


def _sum(parts: Iterable[pa.Table]) -> _Sum:
    total = _Sum()
    for rows in parts:
        total = total.plus(rows)
    return total


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
