"""Is a lake whole? Every data file there, every count right, and the tables of one mind.

Three passes, from the cheap to the dear: each data file against the log (footers only), the tables row by
row (the columns ``source`` and ``row``), and the counts of the lineage. Text is not read, except by
``deep``, which decodes everything.
"""

from collections import Counter
from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from etl import storage
from etl.audit.file_checks import Problem, check_files
from etl.audit.key_checks import check_keys
from etl.audit.row_checks import SAME, STAYS, check_rows, read_duplicates
from etl.audit.versions import ledger_of, live_inputs, newest, table_of, versions_of
from etl.key_table import KeyTable
from etl.ledger import Ledger, keys_of
from etl.plan import kept_units
from etl.table import Table

__all__ = ["Problem", "verify"]


def verify(lake: str, *, deep: bool = False) -> list[Problem]:
    """All that is wrong in a lake, sorted by table and data file; nothing, if it is whole.

    The tables are compared only if every data file is sound by itself. Work that is not done yet is no
    problem. Raises TableError if the lake has no documents.
    """
    url = storage.normalize(lake)
    tokens = table_of(url, "tokens")  # downstream first: what it names stood upstream before
    ledger = ledger_of(tokens) if tokens is not None else None
    tokens = ledger.table if ledger is not None else tokens  # of the version that the ledger saw
    keys = table_of(url, "keys")
    duplicates = table_of(url, "duplicates")
    documents = Table.open(storage.join(url, "documents"))
    record = newest(versions_of(tokens)) if tokens is not None else None
    tokenizer = record.tokenizer if record is not None else None
    vocab_size = tokenizer.vocab_size if tokenizer is not None else None
    found = check_files(documents, deep=deep)
    if duplicates is not None:
        found += check_files(duplicates, deep=deep)
    if keys is not None:
        found += check_files(keys, deep=deep)
    if tokens is not None:
        found += check_files(tokens, deep=deep, vocab_size=vocab_size)
    if not found:
        left_out = read_duplicates(duplicates)
        found += check_rows(documents, tokens, left_out)
        if tokens is not None and ledger is not None:
            found += _check_units(documents, tokens, left_out, ledger)
        decided = ledger_of(duplicates) if duplicates is not None else None
        if decided is not None:
            found += check_keys(documents, left_out.filter(SAME), KeyTable(decided))
    found += _check_lineage(documents)
    return sorted(found, key=lambda problem: (problem.table, problem.file or "", problem.what))


def _check_lineage(documents: Table) -> Iterator[Problem]:
    """The records read of each input file by the log, against the rows that stand in the table."""
    versions = versions_of(documents)
    if newest(versions) is None:
        return  # not the work of a recipe
    rows: Counter[str] = Counter()
    for fragment in _rows(documents.fragments(), "min.source", "rows"):
        rows[str(fragment["min.source"])] += int(str(fragment["rows"]))
    inputs = live_inputs(versions)
    for uri in sorted({*rows, *inputs}):
        expected = inputs[uri].rows if uri in inputs else 0
        if rows[uri] != expected:
            what = f"{rows[uri]} rows of {uri}, of which {expected} records were read"
            yield Problem("documents", None, what)


def _check_units(
    documents: Table, tokens: Table, duplicates: pl.DataFrame, ledger: Ledger
) -> Iterator[Problem]:
    """For every unit of work that is tokenized: its tokens' rows are the kept ones less duplicates."""
    left_out = dict(duplicates.filter(~STAYS).group_by("file").len().iter_rows())
    files = _rows(tokens.fragments(), "path", "rows")
    written: Counter[str] = Counter()
    for file, key in zip(files, keys_of(str(f["path"]) for f in files), strict=True):
        written[key] += int(str(file["rows"]))
    live = set()
    for unit in kept_units(documents):
        key = ledger.key(unit.key)
        live.add(key)
        expected = unit.rows - sum(left_out.get(path, 0) for path in unit.paths)
        if ledger.is_done(key) and written[key] != expected:
            what = (
                f"{written[key]} of its rows have tokens, and {expected} are kept and no duplicates"
            )
            yield Problem("documents", unit.paths[0], what)
    for file, key in zip(files, keys_of(str(f["path"]) for f in files), strict=True):
        if key not in live:
            what = "its documents are no longer there: run the recipe again"
            yield Problem("tokens", str(file["path"]), what)


def _rows(files: pa.Table, *columns: str) -> list[dict[str, object]]:
    return list(files.select(columns).to_pylist()) if files.num_rows else []
