"""Verify a lake: its logs, its data files, the rows across its tables, and its recorded counts.

The checks run in this order: the logs, each data file against its log, the tables against each other row by
row (columns ``source`` and ``row``), and the counts and digests in the lineage. Every page is decoded, its
checksum is verified, and its rows are compared with their digest; ``quick`` reads only logs and footers.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import polars as pl

from etl import schemas, storage
from etl.audit.verify.decision_checks import check_decisions
from etl.audit.verify.file_checks import Problem, Problems, check_files, logical_name
from etl.audit.verify.key_checks import check_keys
from etl.audit.verify.log_checks import check_logs
from etl.audit.verify.loss_checks import check_losses
from etl.audit.verify.row_checks import SAME, STAYS, check_rows, read_duplicates
from etl.audit.verify.shuffled_checks import check_shuffled
from etl.audit.verify.small_file_checks import check_small_files
from etl.audit.verify.text_checks import check_texts_are_there
from etl.compact_collections import DigestSet
from etl.delta.table import Table
from etl.errors import StorageError, TableError
from etl.lake import releases
from etl.lake.commit_info import check_format, find_record
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger
from etl.lake.open_ledger import find_ledger, open_ledger
from etl.lake.table_digest import recorded_digest, table_digest
from etl.lake.table_names import in_order, token_tables
from etl.lake.table_specs import open_tables
from etl.lake.table_versions import LiveInputs
from etl.lake.unit_files import unit_files
from etl.lake.work_units import WorkUnit, kept_units
from etl.parquet.row_digests import to_hex
from etl.plural import many
from etl.recipe.recipe import Recipe

__all__ = ["Problem", "Problems", "verify"]


def verify(lake: str, *, quick: bool = False, sources: bool = False) -> Problems:
    """Return all problems in a lake, sorted by table and data file.

    With ``sources``, its input files are read again and compared with the rows read from them.

    Data files are checked only if the logs are sound and no other program has changed data, and rows are
    compared only if every data file is sound. Unfinished work is not a problem. Raises TableError if the
    lake has no documents.
    """
    url = storage.normalize(lake)
    logs = check_logs(url)
    small = list(check_small_files(url))
    if logs.problems:
        return Problems(sorted([*logs.problems, *small], key=_sort_key))
    tables = {name: logs.tables[name] for name in in_order(logs.tables)}
    if "documents" not in tables:
        tables = open_tables(url)  # raises the error of a missing lake
    for table in tables.values():
        check_format(table)
    if problems := list(_foreign_changes(tables)):
        return Problems([*problems, *small])
    for table in tables.values():
        problems += _check_table(table, quick=quick)
    if not problems and not quick:
        problems += _compare_tables(tables, logs.inputs)
    problems += _check_inputs(tables, logs.inputs, reads=sources)
    for table in tables.values():
        problems += _check_releases(url, table, quick=quick)
    digests = dict(_digests(tables, {problem.table for problem in problems if problem.file}))
    for name, digest in digests.items():
        problems += _check_record(name, tables[name], digest)
    result = Problems(sorted([*problems, *small], key=_sort_key))
    result.digests = {name: to_hex(digest) for name, digest in digests.items()}
    return result


def _digests(tables: Mapping[str, Table], damaged: Container[str]) -> Iterator[tuple[str, int]]:
    """Yield the digest of each table that is not damaged, as the log has it: its files were compared."""
    for name, table in tables.items():
        with suppress(StorageError, TableError):  # of a file whose rows only a full check reads
            if name not in damaged:
                yield name, table_digest(table)


def _check_record(name: str, table: Table, digest: int) -> Iterator[Problem]:
    """Compare the digest in the record of the newest commit with that of the data files."""
    recorded = recorded_digest(table)
    if recorded is not None and recorded != digest:
        what = f"its data files have the digest {to_hex(digest)}, but the newest record has"
        yield Problem(name, None, f"{what} {to_hex(recorded)}")


def _foreign_changes(tables: Mapping[str, Table]) -> Iterator[Problem]:
    for name, table in tables.items():
        if changes := Ledger(table.url, fingerprint="", table=table).foreign_changes():
            yield Problem(name, None, changes.what, is_foreign=True)


def _compare_tables(tables: Mapping[str, Table], inputs: LiveInputs) -> Iterator[Problem]:
    """Compare the rows of the tables with each other."""
    texts, duplicates = tables.get("texts"), tables.get("duplicates")
    tokens = {name: tables[name] for name in token_tables(tables)}
    left_out = read_duplicates(duplicates)
    if texts is None:
        return  # not made by a recipe, or not yet
    changes = {Ledger(t.url, fingerprint="", table=t).change for t in tables.values()}
    if len(changes) > 1:
        return  # some tables do not follow a change of the recipe yet, which the next run finishes
    of_texts = Ledger(texts.url, fingerprint="", table=texts)
    yield from check_rows(tables["documents"], of_texts, tokens, left_out, inputs)
    for name, table in tokens.items():
        if (ledger := find_ledger(table)) is not None:
            yield from _check_units(texts, table, left_out, ledger)
            if (shuffled := tables.get(schemas.shuffled_of(name))) is not None:
                yield from check_shuffled(ledger, shuffled)
    if (losses := tables.get("losses")) is not None:
        yield from check_losses(losses)
    record = find_record(duplicates) if duplicates is not None else None
    if duplicates is not None and record is not None:
        same = left_out.filter(SAME)
        stages = Recipe.recorded(record.canonical, where=duplicates.url).dedup_stages
        yield from check_decisions(texts, same, stages)
        yield from check_keys(texts, same, KeysTable(open_ledger(duplicates), tables.get("keys")))


def _check_table(table: Table, *, quick: bool) -> list[Problem]:
    """Check the data files of a table."""
    record = find_record(table)
    tokenizer = record.tokenizer if record is not None else None
    vocab_size = tokenizer.vocab_size if tokenizer is not None else None
    return check_files(table, quick=quick, vocab_size=vocab_size)


def _check_releases(lake: str, table: Table, *, quick: bool) -> Iterator[Problem]:
    """Check the data files that only releases need."""
    kind = table.url.rsplit("/", 1)[-1]
    known: DigestSet | None = None
    for release in releases.read_releases(lake)[0]:
        if release.versions.get(kind, table.version) != table.version:
            if known is None:
                known = DigestSet(_names(table))
            try:
                old = Table.open(table.url, release.versions[kind])
            except TableError as error:
                what = f"in release {release.name!r}: {error.what}"
                yield Problem(kind, None, what, release=release.name)
                continue
            for problem in check_files(old, quick=quick, known=known):
                what = f"in release {release.name!r}: {problem.what}"
                yield replace(problem, what=what, release=release.name)
            known.update(_names(old))


def _names(table: Table) -> Iterator[str]:
    return map(logical_name, table.files("vector", by=()))


def _sort_key(problem: Problem) -> tuple[str, str, str]:
    return problem.table, problem.file or "", problem.what


def _check_inputs(
    tables: Mapping[str, Table], inputs: LiveInputs, *, reads: bool
) -> Iterator[Problem]:
    """Compare the tables with the records of their input files, and with ``reads`` with the files."""
    documents = tables["documents"]
    yield from _check_lineage(documents, inputs)
    if "texts" in tables:
        yield from check_texts_are_there(documents, tables["texts"], inputs)
    if reads:
        from etl.audit.verify.source_checks import check_sources

        yield from check_sources(documents, inputs)


def _check_lineage(documents: Table, inputs: LiveInputs) -> Iterator[Problem]:
    """Compare the records read from each input file with its rows in the table."""
    if inputs.generation is None:
        return  # not made by a recipe
    rows: Counter[str] = Counter()
    for file in unit_files(documents):
        rows[str(file["min.source"])] += int(str(file["rows"]))
    records = inputs.rows()
    for uri in sorted({*rows, *records}):
        expected = records.get(uri, 0)
        if rows[uri] != expected:
            what = f"{many(rows[uri], 'row')} of {uri}, which has {many(expected, 'record')}"
            yield Problem("documents", None, what)


def _check_units(
    texts: Table, tokens: Table, duplicates: pl.DataFrame, ledger: Ledger
) -> Iterator[Problem]:
    """Check that each tokenized unit has one row of tokens per kept document that is not left out."""
    left_out = dict(duplicates.filter(~STAYS).group_by("unit").len().iter_rows())
    live: dict[str, WorkUnit] = {ledger.key(unit.key): unit for unit in kept_units(texts)}
    written: Counter[str] = Counter()
    name = tokens.url.rpartition("/")[2]
    for file in unit_files(tokens):
        written[file["unit"]] += file["rows"]
        if file["rows"] and file["unit"] not in live:
            yield Problem(name, file["path"], "its documents no longer exist")
    for key, unit in live.items():
        expected = unit.rows - left_out.get(unit.key, 0)
        if ledger.is_done(key) and written[key] != expected:
            what = (
                f"{written[key]} of its rows have tokens, but {expected} are kept and not left out"
            )
            yield Problem("texts", unit.files[0].path, what, redo=name)
