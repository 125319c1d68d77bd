"""Damage to the data files of a lake."""

import json
from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from upath import UPath

from etl.delta.table import Table
from etl.lake.ledger import Ledger, key_of
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.parquet.data_file import DataFile
from etl.recipe.recipe import Recipe
from tests.helpers.paths import at, opened


def open_table(recipe: Recipe, name: str) -> Table:
    return Table.open(recipe.table_url(name))


def live(recipe: Recipe, name: str, verdict: str | None = None) -> list[str]:
    """Return the paths of a table's data files, most rows first."""
    files = open_table(recipe, name).data_files()
    if verdict is not None:
        files = files.filter(pc.equal(files["partition.verdict"], verdict))
    entries = files.select(["rows", "min.source", "path"]).to_pylist()
    return [e["path"] for e in sorted(entries, key=lambda e: (-e["rows"], e["min.source"]))]


def file_of(recipe: Recipe, name: str, path: str) -> UPath:
    return at(recipe.table_url(name)) / path


def read(recipe: Recipe, name: str, path: str) -> pa.Table:
    return opened(file_of(recipe, name, path)).read()


def commit_damage(
    table: Table, add: Sequence[DataFile] = (), *, remove: Collection[str] = ()
) -> None:
    """Add and remove data files as a faulty release would do, and not as another program."""
    ledger = Ledger(table.url, fingerprint="f" * 64, table=table)
    entries = [LedgerEntry(key_of(file.path), [file]) for file in add]
    ledger.drop(Drop(add=entries, paths=remove), lambda *_: None, lake_epoch=ledger.lake_epoch)


def rewrite(
    recipe: Recipe, name: str, change: Callable[[pa.Table], pa.Table], path: str | None = None
) -> str:
    """Replace a data file (by default a table's first) by a changed one, and commit; return its path."""
    table = open_table(recipe, name)
    path = live(recipe, name)[0] if path is None else path
    folder, _, file = path.rpartition("/")
    new = f"{folder}/{file[:32]}-changed.parquet".lstrip("/")
    rows = change(read(recipe, name, path))
    with file_of(recipe, name, new).open("wb") as written:
        pq.write_table(rows, written)
    partition = {"verdict": folder.removeprefix("verdict=")} if folder else {}
    before = table.data_files().filter(pc.equal(table.data_files()["path"], path)).to_pylist()[0]
    statistics = {
        "numRecords": before["rows"],
        **{
            f"{kind}Values": {
                key.removeprefix(f"{kind}."): value
                for key, value in before.items()
                if key.startswith(f"{kind}.") and value is not None
            }
            for kind in ("min", "max")
        },
    }
    size = file_of(recipe, name, new).stat().st_size
    fragment = DataFile(new, size, before["rows"], partition, json.dumps(statistics))
    commit_damage(table, [fragment], remove=[path])
    return new


def paths(recipe: Recipe, kind: str, verdict: str | None = None) -> list[UPath]:
    files = Table.open(recipe.table_url(kind)).data_files()
    if verdict is not None:
        files = files.filter(pc.equal(files["partition.verdict"], verdict))
    return [at(recipe.table_url(kind)) / path for path in files["path"].to_pylist()]


def delete(path: UPath) -> None:
    path.unlink()


def flip(path: UPath) -> None:
    """Flip the last ten bytes of the first column: values, not a page header."""
    column = opened(path).metadata.row_group(0).column(0)
    begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    end = begin + column.total_compressed_size
    content = bytearray(path.read_bytes())
    content[end - 10 : end] = bytes(255 - byte for byte in content[end - 10 : end])
    path.write_bytes(content)
