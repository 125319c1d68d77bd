"""Entries at the end of a log that were not written completely are found, reported and removed."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from etl.delta.data_file import DataFileWriter
from etl.delta.layout import Layout
from etl.delta.table import Table
from etl.delta.torn_entries import find_torn_files, is_torn, remove_torn_files
from etl.errors import TableError

LAYOUT = Layout(statistics=("n",))
SCHEMA = pa.schema({"n": pa.int64()})


def add(table: Table, number: int) -> Table:
    writer = DataFileWriter(table.url, SCHEMA, LAYOUT, name="n")
    writer.append(pa.table({"n": [number]}))
    return table.commit(writer.close(), transactions={str(number): 1})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of versions 0 to 4, each with one row more, and a checkpoint of version 2."""
    path = tmp_path_factory.mktemp("table") / "numbers"
    table = Table.create(str(path), SCHEMA, LAYOUT)
    for number in range(1, 5):
        table = add(table, number)
        if number == 2:
            table = table.checkpoint()
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "numbers")


def log(table: Path, name: str | int) -> Path:
    return table / "_delta_log" / (name if isinstance(name, str) else f"{name:020}.json")


CHECKPOINT = f"{2:020}.checkpoint.parquet"


def torn(table: Path) -> list[str]:
    return [file.name for file in find_torn_files(str(table))]


def repaired_rows(table: Path) -> int:
    remove_torn_files(find_torn_files(str(table)))
    assert torn(table) == []
    return Table.open(str(table)).data_files().num_rows


def test_a_sound_log_has_no_torn_files(table: Path) -> None:
    assert torn(table) == []
    assert torn(table / "none") == []


def test_every_cut_of_the_newest_entry_is_found(table: Path) -> None:
    entry = log(table, 4)
    content = entry.read_bytes()
    whole_lines = [i for i, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content)):
        if size not in whole_lines and size - 1 not in whole_lines:
            assert is_torn(content[:size]), size
            assert is_torn(content[:size] + bytes(len(content) - size)), size
    assert not is_torn(content)
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        entry.write_bytes(content[:size])
        with pytest.raises(TableError, match=r"not written completely.*\n  hint: remove this"):
            Table.open(str(table))


def test_torn_entries_at_the_end_are_removed_newest_first(table: Path) -> None:
    log(table, 4).write_bytes(b"")
    log(table, 3).write_bytes(log(table, 3).read_bytes()[:-3])
    with pytest.raises(TableError, match=rf"{3:020}.json: the newest log entries were not written"):
        Table.open(str(table))
    assert Table.open(str(table), 2).data_files().num_rows == 2, "earlier versions are readable"
    assert torn(table) == [log(table, 4).name, log(table, 3).name]
    assert repaired_rows(table) == 2
    assert add(Table.open(str(table)), 9).version == 3


def test_an_entry_in_the_middle_is_never_removed(table: Path) -> None:
    log(table, 3).write_bytes(b"")
    assert torn(table) == []
    with pytest.raises(TableError, match=r"damaged.*\n  hint: restore the log entry"):
        Table.open(str(table))


def test_an_entry_with_a_damaged_line_in_the_middle_is_not_torn(table: Path) -> None:
    lines = log(table, 4).read_bytes().splitlines(keepends=True)
    log(table, 4).write_bytes(b"".join([lines[0][:20] + b"\n", *lines[1:]]))
    assert torn(table) == []


def test_an_entry_that_a_checkpoint_includes_is_kept(table: Path) -> None:
    for version in (4, 3):
        log(table, version).unlink()
    log(table, 2).write_bytes(b"")
    (file,) = find_torn_files(str(table))
    assert file.why_kept == "the checkpoint of version 2 includes it"
    remove_torn_files([file])
    assert log(table, 2).exists()
    assert Table.open(str(table)).data_files().num_rows == 2


def test_an_entry_that_was_written_again_is_kept(table: Path) -> None:
    content = log(table, 4).read_bytes()
    log(table, 4).write_bytes(b"")
    files = find_torn_files(str(table))
    log(table, 4).write_bytes(content)
    remove_torn_files(files)
    assert log(table, 4).read_bytes() == content


@pytest.mark.parametrize("size", [0, 100])
def test_a_torn_checkpoint_is_removed_with_what_names_it(table: Path, size: int) -> None:
    path = log(table, CHECKPOINT)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TableError, match="a checkpoint cannot be read"):
        Table.open(str(table))
    assert torn(table) == [CHECKPOINT, "_last_checkpoint"]
    assert repaired_rows(table) == 4


def test_a_torn_checkpoint_is_kept_if_entries_are_missing(table: Path) -> None:
    log(table, 1).unlink()
    log(table, CHECKPOINT).write_bytes(b"")
    file, _ = find_torn_files(str(table))
    assert file.why_kept == "the log entry of version 1 is missing"
    remove_torn_files([file])
    assert log(table, CHECKPOINT).exists()


def test_a_torn_pointer_to_a_checkpoint_is_removed(table: Path) -> None:
    log(table, "_last_checkpoint").write_bytes(b"")
    assert torn(table) == ["_last_checkpoint"]
    assert repaired_rows(table) == 4


def test_a_log_of_torn_files_only_becomes_empty(table: Path) -> None:
    for path in log(table, 0).parent.iterdir():
        path.write_bytes(b"")
    remove_torn_files(find_torn_files(str(table)))
    assert list(log(table, 0).parent.iterdir()) == []
    assert not Table.exists(str(table))
