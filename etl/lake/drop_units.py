"""What tables drop so that units of work are done again."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from etl.delta.table import Table
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop
from etl.lake.merge_files import rewrite_without
from etl.lake.table_specs import spec_of
from etl.lake.unit_files import unit_files, unit_keys
from etl.parquet.data_file import DataFile


def drop_sources(documents: Ledger, sources: Collection[str]) -> Drop:
    """Return what ``documents`` drops of input files, given by address, so that it knows them no longer."""
    assert documents.table is not None
    files = unit_files(documents.table)
    units = {file["unit"] for file in files if file["min.source"] in sources}
    return drop_rows(documents, units, keys=units, sources=sources)


def drop_texts(texts: Ledger, units: Collection[str]) -> Drop:
    """Return what ``texts`` drops so that splits, given by their keys in ``documents``, are read again."""
    return drop_rows(texts, units, keys={texts.key(unit) for unit in units})


def drop_rows(
    ledger: Ledger,
    units: Collection[str],
    *,
    keys: Collection[str],
    sources: Collection[str] = (),
) -> Drop:
    """Return what ``documents`` or ``texts`` drops of units, given by their keys in ``documents``.

    The rows of other units in the same data files are written to new ones. ``keys`` are the keys of the units
    in the table itself. Raises TableError if a file with rows to write is damaged.
    """
    assert ledger.table is not None
    files = files_of_units(ledger.table, units)
    paths = [file["path"] for file in files]
    rest = rest_of_files(ledger, files, units)
    return Drop(paths=paths, keys=keys, files=sources, rest=rest)


def files_of_units(table: Table, units: Collection[str]) -> list[Mapping[str, Any]]:
    """Return the data files of ``documents`` or ``texts`` with rows of some units."""
    partition = [f"partition.{name}" for name in table.partition_columns]
    columns = ("vector", "units", "rows", "min.source", "min.row", "max.row", *partition)
    return [f for f in table.files(*columns) if not {*unit_keys(f)}.isdisjoint(units)]


def rest_of_files(
    ledger: Ledger, files: Iterable[Mapping[str, Any]], units: Collection[str]
) -> list[DataFile]:
    """Write the rows of data files that are not of some units to new files, and return these.

    Raises TableError if a file with such rows is damaged.
    """
    layout = spec_of(ledger.url.rpartition("/")[2]).layout
    return [
        rest
        for file in files
        if not {*unit_keys(file)}.issubset(units)
        for rest in rewrite_without(ledger, file, units, layout)
    ]


def drop_units(ledger: Ledger, keys: Collection[str]) -> Drop:
    """Return what a table drops so that units of work are done again: all data files with rows of them.

    ``keys`` are the table's keys. Other units in the same files are dropped as well, with all their files.
    """
    assert ledger.table is not None
    held = {file["path"]: unit_keys(file) for file in ledger.table.files("units")}
    undone = sharing_units(held.values(), keys)
    removed = [path for path, units in held.items() if not undone.isdisjoint(units)]
    return Drop(paths=removed, keys=undone)


def sharing_units(files: Iterable[Collection[str]], units: Iterable[str]) -> set[str]:
    """Return some units with all others that they share data files with, also through further units.

    ``files`` has the units of each data file.

    >>> sorted(sharing_units([["a", "b"], ["b", "c"], ["d"]], ["a"]))
    ['a', 'b', 'c']
    """
    by_unit: dict[str, list[Collection[str]]] = {}
    for held in files:
        for unit in held:
            by_unit.setdefault(unit, []).append(held)
    sharing, waiting = set[str](), [*units]
    while waiting:
        unit = waiting.pop()
        if unit not in sharing:
            sharing.add(unit)
            waiting += (other for held in by_unit.get(unit, ()) for other in held)
    return sharing
