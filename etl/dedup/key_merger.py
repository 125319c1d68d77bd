"""Merge data files of the table `keys`, so that a look-up opens few of them.

Each run adds a data file of every kind. As in a log-structured merge tree with tiers (O'Neil et al. 1996,
"The Log-Structured Merge-Tree"; Dayan et al. 2017, "Monkey", section 2), the files of one commit are a sorted
run; the runs of a kind are on levels by their number of keys, each level for runs four times as large as the
one below; and when a level has four runs, these and all smaller ones are merged. So n runs of equal size
become at most 3 log4 n runs, and each key is rewritten at most about log4 n times.

A merge changes no rows. Its tasks have one range of keys each, of which they write one file.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from distributed import Client

from etl import schemas
from etl.compute.dask_tasks import map_unordered, to_tokenlake_error
from etl.dedup.key_lookup import EMPTY_KEYS
from etl.dedup.key_order import sort_order
from etl.delta.live_rows import live_rows
from etl.lake.keys_table import STORED_KINDS, KeyFile, list_key_files
from etl.lake.ledger import Describe, Ledger, key_of
from etl.lake.ledger_entry import Rewrite
from etl.lake.merge_files import FileGroup, rewrite_of
from etl.lake.table_specs import KEYS
from etl.parquet.data_file import DataFile, DataFileWriter

RUNS_PER_LEVEL: Final = 4
"""Runs of a level that are merged; chosen here: after 120 equal runs, a look-up opens at most 10 files, and
merges have rewritten each key 2.5 times."""

_KEYS_PER_FILE = 2_000_000  # a task sorts so many in 200 MB of memory


def merge_keys(client: Client, ledger: Ledger, describe: Describe) -> None:
    """Merge data files of ``keys`` if a level has too many, in one commit.

    Files that another commit removes first are skipped. Raises TableError if the merged files have another
    number of rows than the log says.
    """
    assert ledger.table is not None
    files = list_key_files(ledger.table)
    rewrites = []
    for kind in STORED_KINDS:
        merged = files_to_merge([file for file in files if file.kind == kind])
        if merged:
            rewrites.append(_merge(client, ledger, merged))
    if rewrites:
        ledger.rewrite(rewrites, describe)


def files_to_merge(files: Iterable[KeyFile]) -> list[KeyFile]:
    """Return the files of one kind to merge: the runs of the highest full level and of those below.

    The files of a run are those whose names begin with the same key.
    """
    by_run = sorted(files, key=lambda file: key_of(file.file.path))
    runs = [list(run) for _, run in groupby(by_run, key=lambda file: key_of(file.file.path))]
    levels = [_level(sum(file.rows for file in run)) for run in runs]
    # Of runs on the levels 0 0 0 0 1 1 1 2, level 0 is full: its four runs become one on level 1, which
    # is then full and merged by the next run.
    full = [level for level in levels if levels.count(level) >= RUNS_PER_LEVEL]
    if not full:
        return []
    return [
        file for run, level in zip(runs, levels, strict=True) if level <= max(full) for file in run
    ]


def _level(rows: int) -> int:
    """Return the level of a run: levels begin at powers of four.

    >>> [_level(rows) for rows in (1, 3, 4, 15, 16)]
    [0, 0, 1, 1, 2]
    """
    return (max(rows, 1).bit_length() - 1) // 2


def _merge(client: Client, ledger: Ledger, files: Sequence[KeyFile]) -> Rewrite:
    """Write the rows of some files to new ones, which have disjoint ranges of keys."""
    group = FileGroup(
        files=tuple(file.file for file in files), units=(), rows=sum(file.rows for file in files)
    )
    name = ledger.key("merged", *(file.path for file in group.files))
    # Keys are hashes, so equal ranges have about equally many.
    bounds = np.linspace(-(2**63), 2**63, 2 + group.rows // _KEYS_PER_FILE).tolist()
    ranges = [(int(low), int(high) - 1) for low, high in pairwise(bounds)]
    task = _MergeRange(ledger.url, name, tuple(files))
    data_files: list[DataFile] = []
    with closing(map_unordered(client, task, ranges, label="keys.merge")) as answers:
        for _, answer in answers:
            if isinstance(answer, BaseException):
                raise to_tokenlake_error(answer, "keys") from answer
            data_files += [DataFile(**fields) for fields in json.loads(answer)]
    return rewrite_of(ledger, group, data_files)


@dataclass(frozen=True)
class _MergeRange:
    """Task that writes the keys of a range to one data file; returns its fields as JSON."""

    url: str
    name: str
    files: tuple[KeyFile, ...]

    def __call__(self, low: int, high: int) -> str:
        keys = pa.concat_tables(
            [EMPTY_KEYS, *(part for file in self.files for part in _read_range(file, low, high))]
        )
        partition = {"kind": self.files[0].kind}
        writer = DataFileWriter(
            self.url, schemas.KEYS, KEYS.layout, name=self.name, partition=partition
        )
        writer.append(keys.take(sort_order(*map(np.asarray, keys.columns))))
        return json.dumps([asdict(data_file) for data_file in writer.close()])


def _read_range(file: KeyFile, low: int, high: int) -> Iterator[pa.Table]:
    """Yield the rows of a file with a key from ``low`` to ``high``, by row group."""
    if file.high < low or file.low > high:
        return
    with live_rows(file.table, file.file, EMPTY_KEYS.column_names) as opened:
        for group in range(opened.num_row_groups):
            if opened.may_hold(group, "key", low, high):
                rows = opened.row_group(group)
                yield rows.filter((pc.field("key") >= low) & (pc.field("key") <= high))
