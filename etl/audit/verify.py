"""Is a lake whole? Every log entry and data file there, every count right, and the tables of one mind.

Four passes, from the cheap to the dear: the logs, each data file against its log, the tables row by row (the
columns ``source`` and ``row``), and the counts of the lineage. Every page is decoded and its checksum
computed; ``quick`` reads the logs and the footers alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import polars as pl
import pyarrow as pa

from etl import releases, storage
from etl.audit.file_checks import Problem, check_files
from etl.audit.key_checks import check_keys
from etl.audit.log_checks import check_logs
from etl.audit.row_checks import SAME, STAYS, check_rows, read_duplicates
from etl.audit.versions import ledger_of, live_inputs, newest, table_of, versions_of
from etl.key_table import KeyTable
from etl.ledger import Ledger
from etl.plan import Unit, kept_units
from etl.table import Table

__all__ = ["Problem", "verify"]


def verify(lake: str, *, quick: bool = False) -> list[Problem]:
    """All that is wrong in a lake, sorted by table and data file; nothing, if it is whole.

    Data files are looked at only if the logs are sound, and the tables compared only if every data file is
    sound by itself. Work that is not done yet is no problem. Raises TableError if the lake has no documents.
    """
    url = storage.normalize(lake)
    if found := check_logs(url):
        return sorted(found, key=_place)
    tokens = table_of(url, "tokens")  # downstream first: what it names stood upstream before
    ledger = ledger_of(tokens) if tokens is not None else None
    tokens = ledger.table if ledger is not None else tokens  # of the version that the ledger saw
    keys = table_of(url, "keys")
    duplicates = table_of(url, "duplicates")
    documents = Table.open(storage.join(url, "documents"))
    record = newest(versions_of(tokens)) if tokens is not None else None
    tokenizer = record.tokenizer if record is not None else None
    vocab_size = tokenizer.vocab_size if tokenizer is not None else None
    found = check_files(documents, quick=quick)
    if duplicates is not None:
        found += check_files(duplicates, quick=quick)
    if keys is not None:
        found += check_files(keys, quick=quick)
    if tokens is not None:
        found += check_files(tokens, quick=quick, vocab_size=vocab_size)
    if not found and not quick:
        left_out = read_duplicates(duplicates)
        found += check_rows(documents, tokens, left_out)
        if tokens is not None and ledger is not None:
            found += _check_units(documents, tokens, left_out, ledger)
        decided = ledger_of(duplicates) if duplicates is not None else None
        if decided is not None:
            found += check_keys(documents, left_out.filter(SAME), KeyTable(decided))
    found += _check_lineage(documents)
    for table in (documents, duplicates, tokens):
        found += _check_releases(url, table, quick=quick) if table is not None else ()
    return sorted(found, key=_place)


def _check_releases(lake: str, table: Table, *, quick: bool) -> Iterator[Problem]:
    """The data files that only releases need."""
    known = set(table.fragments()["path"].to_pylist())
    kind = table.url.rsplit("/", 1)[-1]
    for release in releases.list_all(lake):
        if release.versions.get(kind, table.version) != table.version:
            old = Table.open(table.url, release.versions[kind])
            for problem in check_files(old, quick=quick, known=known):
                yield replace(problem, what=f"of the release {release.name!r}: {problem.what}")
            known.update(old.fragments()["path"].to_pylist())


def _place(problem: Problem) -> tuple[str, str, str]:
    return problem.table, problem.file or "", problem.what


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
    held = list(ledger.units_of(str(file["path"]) for file in files))
    together = {key: keys[0] for keys in held for key in keys}  # those that stand in one file
    written: Counter[str] = Counter()
    for file, keys in zip(files, held, strict=True):
        written[keys[0]] += int(str(file["rows"]))
    live: dict[str, Unit] = {ledger.key(unit.key): unit for unit in kept_units(documents)}
    expected: Counter[str] = Counter()
    first: dict[str, str] = {}
    for key, unit in live.items():
        if ledger.is_done(key):
            name = together.get(key, key)
            first.setdefault(name, unit.paths[0])
            expected[name] += unit.rows - sum(left_out.get(path, 0) for path in unit.paths)
    for name, path in first.items():
        if written[name] != expected[name]:
            what = (
                f"{written[name]} of its rows have tokens, "
                f"and {expected[name]} are kept and no duplicates"
            )
            yield Problem("documents", path, what, redo="tokens")
    for file, keys in zip(files, held, strict=True):
        if any(key not in live for key in keys):
            what = "its documents are no longer there: run the recipe again"
            yield Problem("tokens", str(file["path"]), what)


def _rows(files: pa.Table, *columns: str) -> list[dict[str, object]]:
    return list(files.select(columns).to_pylist()) if files.num_rows else []
