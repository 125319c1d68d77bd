"""Check that the table ``keys`` holds the keys of exactly the documents that were not left out.

The table is only checked while it is in use: if it does not fit ``duplicates``, the next run rebuilds it.
"""

from collections import Counter
from collections.abc import Iterator

import polars as pl

from etl.audit.verify.file_checks import Problem
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.input_log import int63
from etl.lake.keys_table import KeysTable
from etl.lake.work_units import kept_units
from etl.plural import many


def check_keys(texts: Table, duplicates: pl.DataFrame, keys: KeysTable) -> Iterator[Problem]:
    """Yield a problem for keys that are unsorted, belong to no unit of work, or are too many or too few.

    ``duplicates`` are the rows of ``read_duplicates`` with a kind in ``schemas.WHOLE``. Only the columns
    ``key`` and ``unit`` are read.
    """
    table = keys.ledger.table
    if not keys.fits or table is None:
        return
    left_out = dict(duplicates.group_by("unit").len().iter_rows())
    units = {int63(unit.key): unit for unit in kept_units(texts)}
    exact: Counter[str] = Counter()  # keys of texts, by unit
    for data_file in table.data_files().to_pylist():
        path = str(data_file["path"])
        rows = read_live_rows(table.url, data_file, ["key", "unit"])
        values = pl.Series(rows["key"]).to_numpy()
        if (values[1:] < values[:-1]).any():
            yield Problem("keys", path, "its keys are not sorted")
        for count in rows["unit"].value_counts().to_pylist():
            unit = units.get(count["values"])
            if unit is None:
                what = f"{many(count['counts'], 'key')} of documents that do not exist"
                yield Problem("keys", path, what)
            elif data_file["partition.kind"] == "exact":
                exact[unit.key] += count["counts"]
    for unit in units.values():
        expected = unit.rows - left_out.get(unit.key, 0)
        if keys.has(unit.key) and exact[unit.key] != expected:
            what = f"{exact[unit.key]} of its rows have a key, expected {expected}"
            yield Problem("texts", unit.files[0].path, what)
