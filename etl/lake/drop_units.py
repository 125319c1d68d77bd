"""What tables drop so that units of work are done again."""

from collections.abc import Collection

from etl.delta.table import Table
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.merge_files import rewrite_without
from etl.lake.table_specs import SPECS
from etl.lake.unit_files import unit_files, unit_keys


def drop_sources(documents: Ledger, sources: Collection[str]) -> Drop:
    """Return what ``documents`` drops of input files, given by address, so that it knows them no longer."""
    assert documents.table is not None
    files = unit_files(documents.table)
    units = {file["unit"] for file in files if file["min.source"] in sources}
    paths, rest = remove_units(documents, documents.table, units)
    return Drop(paths=paths, keys=units, files=sources, add=rest)


def drop_texts(texts: Ledger, units: Collection[str]) -> Drop:
    """Return what ``texts`` drops so that splits, given by their keys in ``documents``, are read again."""
    assert texts.table is not None
    paths, rest = remove_units(texts, texts.table, units)
    return Drop(paths=paths, keys={texts.key(unit) for unit in units}, add=rest)


def remove_units(
    ledger: Ledger, table: Table, units: Collection[str]
) -> tuple[list[str], list[LedgerEntry]]:
    """Return the data files of ``documents`` or ``texts`` with rows of units, and new files with the others.

    ``table`` is that of the ledger, or a view of it. Raises TableError for a damaged file with other units.
    """
    layout, paths, rest = SPECS[table.url.rpartition("/")[2]].layout, list[str](), []
    partition = [f"partition.{name}" for name in table.partition_columns]
    columns = ("vector", "units", "rows", "min.source", "min.row", "max.row", *partition)
    for file in table.files(*columns):
        keys = {*unit_keys(file)}
        if keys.isdisjoint(units):
            continue
        paths.append(file["path"])
        if not keys.issubset(units):
            rest.append(rewrite_without(ledger, file, units, layout))
    return paths, rest


def drop_units(ledger: Ledger, keys: Collection[str]) -> Drop:
    """Return what a table drops so that units of work are done again: all data files with rows of them.

    ``keys`` are the table's keys. Other units in the same files are dropped as well.
    """
    assert ledger.table is not None
    wanted, undone, removed = set(keys), set(keys), list[str]()
    for file in ledger.table.files("units"):
        held = unit_keys(file)
        if not wanted.isdisjoint(held):
            removed.append(file["path"])
            undone.update(held)
    return Drop(paths=removed, keys=undone)
