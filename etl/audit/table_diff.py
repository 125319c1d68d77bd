"""Compare two versions of a table: recipe, inputs, rows by reason."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.audit.value_counts import (
    count_rules,
    count_tokens,
    iterate_rows,
    sum_counts,
    with_verdict,
)
from etl.delta.actions import to_numpy
from etl.delta.deletion_vectors import read_struck
from etl.delta.live_rows import read_live_rows
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import StorageError
from etl.html.card import Shown
from etl.lake.open_table import open_table
from etl.lake.table_versions import Version, latest_record, live_inputs, read_versions
from etl.parquet.data_file_reader import Positions
from etl.recipe.recipe_diff import differences


@dataclass(frozen=True, kw_only=True, repr=False)
class Difference(Shown):
    """The changes from one version of a table to another."""

    url: str
    old: int
    new: int
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    bytes_added: int
    bytes_removed: int
    tokens_added: int
    tokens_removed: int
    counts: dict[str, int] | None  # change by outcome; None if old data files were deleted
    recipe: list[str]  # changed settings, as ``key: old -> new``
    libraries: list[str]  # changed library versions
    inputs_added: list[schemas.InputFile]
    inputs_replaced: list[schemas.InputFile]  # with their new content
    inputs_removed: list[schemas.InputFile]
    commits: list[Version]  # the versions in between, newest first


def diff(table_url: str, old: int, new: int) -> Difference:
    """Compare version ``old`` of a table with version ``new``.

    Raises TableError if the table or a version does not exist.
    """
    tables = [open_table(table_url, version) for version in (old, new)]
    files = [table.data_files() for table in tables]
    removed, added = _without(files[0], files[1]), _without(files[1], files[0])
    struck, unstruck = _strikes(tables[1], *files)
    versions = [read_versions(table) for table in tables]
    records = [latest_record(v) for v in versions]
    inputs = [live_inputs(v).files() for v in versions]
    before, after = inputs
    first, last = sorted((tables[0].version, tables[1].version))
    between = [v for v in max(versions, key=len) if first < v.version <= last]
    return Difference(
        url=tables[0].url,
        old=tables[0].version,
        new=tables[1].version,
        rows_added=sum_counts(added, "rows") + unstruck.rows,
        rows_removed=sum_counts(removed, "rows") + struck.rows,
        files_added=added.num_rows,
        files_removed=removed.num_rows,
        bytes_added=sum_counts(added, "size"),
        bytes_removed=sum_counts(removed, "size"),
        tokens_added=count_tokens(tables[1], added) + unstruck.tokens,
        tokens_removed=count_tokens(tables[0], removed) + struck.tokens,
        counts=_changed_counts(tables, removed, added),
        recipe=_differences(records, "canonical"),
        libraries=_differences(records, "versions"),
        inputs_added=[file for uri, file in after.items() if uri not in before],
        inputs_replaced=[
            file
            for uri, file in after.items()
            if uri in before and before[uri].fingerprint != file.fingerprint
        ],
        inputs_removed=[file for uri, file in before.items() if uri not in after],
        commits=between,
    )


class _Amounts(NamedTuple):
    rows: int = 0
    tokens: int = 0


def _strikes(table: Table, old: pa.Table, new: pa.Table) -> tuple[_Amounts, _Amounts]:
    """Return what is struck, and what lives again, in the data files that both versions have."""
    vectors = dict(zip(*(old[name].to_pylist() for name in ("path", "vector")), strict=True))
    struck, unstruck = _Amounts(), _Amounts()
    for file in map(LogicalFile.of, iterate_rows(new.select(["path", "vector"]))):
        before = LogicalFile(file.path, vectors.get(file.path, file.vector))
        if before == file:
            continue
        was, now = (read_struck(table.url, each._asdict()) for each in (before, file))
        tokens = _read_lengths(table, file.path)
        struck = _plus(struck, tokens, np.setdiff1d(now, was))
        unstruck = _plus(unstruck, tokens, np.setdiff1d(was, now))
    return struck, unstruck


def _read_lengths(table: Table, path: str) -> Positions | None:
    """Return the number of tokens of each row of a data file, also of struck ones."""
    if "num_tokens" not in table.schema.names:
        return None
    rows = read_live_rows(table.url, LogicalFile(path), ["num_tokens"])
    return to_numpy(rows["num_tokens"].cast(pa.int64()).combine_chunks(), np.int64)


def _plus(amounts: _Amounts, tokens: Positions | None, positions: Positions) -> _Amounts:
    more = 0 if tokens is None else int(tokens[positions].sum())
    return _Amounts(amounts.rows + len(positions), amounts.tokens + more)


def _differences(records: list[schemas.Lineage | None], field: str) -> list[str]:
    """Return the differences in a field of two records; nothing if a version has no record."""
    old, new = records
    return list(differences(getattr(old, field), getattr(new, field))) if old and new else []


def _changed_counts(
    tables: list[Table], removed: pa.Table, added: pa.Table
) -> dict[str, int] | None:
    """Return the change in rows of each outcome; None if old data files were deleted."""
    total: Counter[str] = Counter()
    for table, files, sign in ((tables[0], removed, -1), (tables[1], added, 1)):
        if "reason" not in table.schema.names or files.num_rows == 0:
            continue
        kept, rejected = (with_verdict(files, verdict) for verdict in schemas.VERDICTS)
        total["kept"] += sign * sum_counts(kept, "rows")
        try:
            rules = count_rules(table, rejected)
        except StorageError:  # vacuumed: the changes are known, but not the reasons
            return None
        for rule, count in rules.items():
            total[rule] += sign * count
    return {name: count for name, count in sorted(total.items()) if count}


def _without(files: pa.Table, others: pa.Table) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(files["path"], others["path"].combine_chunks())))
