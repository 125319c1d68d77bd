"""Does the table ``keys`` hold what it must: the keys of each document that stays, and of no other one?

It is checked as far as it is in use: a table that does not fit the decisions is made anew by the next run.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from etl import storage
from etl.audit.file_checks import Problem
from etl.job.files import file_id
from etl.key_table import KeyTable
from etl.plan import kept_units
from etl.table import Table


def check_keys(documents: Table, duplicates: pl.DataFrame, keys: KeyTable) -> Iterator[Problem]:
    """The keys that are out of order, of data files that are not there, too many or too few.

    ``duplicates`` is what ``read_duplicates`` gives of the kinds ``schemas.WHOLE``. Reads the columns
    ``key`` and ``file``.
    """
    table = keys.ledger.table
    if not keys.fits or table is None:
        return
    left_out = dict(duplicates.group_by("file").len().iter_rows())
    units = {file_id(path): unit for unit in kept_units(documents) for path in unit.paths}
    exact: Counter[str] = Counter()  # keys of texts, by unit
    for fragment in table.fragments().to_pylist():
        path = str(fragment["path"])
        with storage.open_input(storage.join(table.url, path)) as source:
            rows = pq.read_table(source, columns=["key", "file"], use_threads=False)
        ordered = np.asarray(rows["key"].combine_chunks())
        if (ordered[1:] < ordered[:-1]).any():
            yield Problem("keys", path, "its keys are not in order")
        for count in rows["file"].value_counts().to_pylist():
            unit = units.get(count["values"])
            if unit is None:
                yield Problem(
                    "keys", path, f"{count['counts']} keys of documents that are not there"
                )
            elif fragment["partition.kind"] == "exact":
                exact[unit.key] += count["counts"]
    for unit in dict.fromkeys(units.values()):
        expected = unit.rows - sum(left_out.get(path, 0) for path in unit.paths)
        if keys.has(unit.key) and exact[unit.key] != expected:
            what = f"{exact[unit.key]} of its rows have a key, and {expected} stay"
            yield Problem("documents", unit.paths[0], what)
