"""Strike rows in a commit of Tokenlake, or as another program does it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from etl import storage
from etl.delta.deletion_vectors import FOLDER, path_of
from etl.delta.table import Table
from etl.lake.open_ledger import open_ledger
from etl.parquet.data_file import DataFile
from tests.helpers.paths import at, move

Positions = Mapping[str, Iterable[int]]


def strike_by_us(url: str, positions: Positions) -> Table:
    """Strike rows in a commit of the table's recipe."""
    table = Table.open(url)
    return replace_by_us(url, table.strike(positions), positions)


def replace_by_us(url: str, add: Sequence[DataFile], remove: Iterable[str]) -> Table:
    """Replace data files in a commit of the table's recipe, which records no work."""
    ledger = open_ledger(Table.open(url))
    ledger._commit(add, {}, None, remove=list(remove))
    assert ledger.table is not None
    return ledger.table


def strike_by_other(url: str, positions: Positions) -> Table:
    """Strike rows as another program does: with a vector in the folder of the table itself."""
    table = Table.open(url)
    files = [_in_root(table.url, file) for file in table.strike(positions)]
    info = {"operation": "DELETE", "engineInfo": "Apache-Spark/4.0.0 Delta-Lake/4.0.0"}
    return table.commit(files, remove=positions, transactions={}, commit_info=info)


def _in_root(url: str, file: DataFile) -> DataFile:
    if file.vector is None:
        return file
    moved = replace(file, vector=file.vector.replace(f'"{FOLDER}', '"'))
    old, new = (at(storage.join(url, str(path_of(str(f.vector))))) for f in (file, moved))
    if old.exists():  # a file has the vectors of all files of the commit
        move(old, new)
    return moved
