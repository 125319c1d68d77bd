"""Damage to the files of a log is found, and what the other files hold is restored."""

import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from etl import storage
from etl.delta.entry_checksum import check_entries, digest, seal
from etl.delta.log_damage import LogDamage, find_damage, open_remains, remove_log, set_aside
from etl.delta.table import Table
from etl.errors import DamagedLogError
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout

LAYOUT = Layout(statistics=("n",))
SCHEMA = pa.schema({"n": pa.int64()})
NEWEST = 4


def add(table: Table, number: int) -> Table:
    writer = DataFileWriter(table.url, SCHEMA, LAYOUT, name="n")
    writer.append(pa.table({"n": [number]}))
    return table.commit(writer.close(), transactions={str(number): 1})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of versions 0 to 4, each with one row more, and a checkpoint of version 2."""
    path = tmp_path_factory.mktemp("table") / "numbers"
    table = Table.create(str(path), SCHEMA, LAYOUT)
    for number in range(1, NEWEST + 1):
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


def damage(table: Path) -> LogDamage:
    return find_damage(str(table), newest=NEWEST)


def restore(table: Path) -> list[int]:
    """Restore the log; return the numbers that the table holds."""
    left = set_aside(damage(table))
    if left.lost:
        open_remains(left, SCHEMA, LAYOUT).commit([], transactions={})
    else:
        Table.open(str(table)).checkpoint()
    assert not damage(table).has_any
    assert set_aside(damage(table)) == damage(table)
    opened = Table.open(str(table))
    numbers = sorted(opened.data_files()["min.n"].to_pylist())
    assert sorted(int(name) for name, _ in opened.transactions().items()) == numbers
    assert add(opened, 9).data_files().num_rows == len(numbers) + 1
    return numbers


def change_a_digit(content: bytes) -> bytes:
    return content.replace(b'"dataChange":true', b'"dataChange":fals', 1)


def change_a_path(content: bytes) -> bytes:
    return content.replace(b'"path":"n', b'"path":"m', 1)


def cut_at_a_line(content: bytes) -> bytes:
    return content[: content.rindex(b"\n")]


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda _: b"",
    lambda content: content[: len(content) // 2],
    cut_at_a_line,
    change_a_digit,
    change_a_path,
    lambda content: bytes(len(content)),
    lambda content: content + b"\n" + content,
    lambda _: b"[1]\n",
]


def test_a_sound_log_has_no_damage(table: Path) -> None:
    assert not damage(table).has_any
    assert list(damage(table).describe()) == []


@pytest.mark.parametrize("change", DAMAGES)
def test_a_damaged_entry_is_refused_found_and_given_up(
    table: Path, change: Callable[[bytes], bytes]
) -> None:
    entry = log(table, 3)
    entry.write_bytes(change(entry.read_bytes()))
    with pytest.raises(DamagedLogError, match=r"000003\.json: a log entry is damaged"):
        Table.open(str(table))
    assert damage(table).lost == (3,)
    assert Table.open(str(table), 2).data_files().num_rows == 2, "earlier versions are readable"
    assert restore(table) == [1, 2, 4]


@given(data=st.data())
def test_any_flipped_bit_of_any_entry_is_found(made: Path, data: st.DataObject) -> None:
    entries = [(v, log(made, v).read_bytes()) for v in range(NEWEST + 1)]
    version = data.draw(st.integers(0, NEWEST))
    content = bytearray(entries[version][1])
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    entries[version] = version, bytes(content)
    checked = check_entries(entries, table="numbers")
    assert [entry.version for entry in checked if entry.problem] == [version]


def test_a_missing_entry_in_the_middle_and_at_the_end_is_found(table: Path) -> None:
    for version in (4, 3):
        log(table, version).unlink()
        with_gap = damage(table)
        assert with_gap.lost == tuple(range(version, NEWEST + 1))
    assert list(with_gap.describe()) == ["2 log entries are missing, the first of version 3"]
    assert restore(table) == [1, 2]
    assert Table.open(str(table)).version == NEWEST + 2, "versions are not used twice"


def test_a_checkpoint_holds_what_earlier_entries_have_lost(table: Path) -> None:
    log(table, 0).unlink()
    log(table, 1).write_bytes(b"")
    assert damage(table).lost == (0, 1)
    assert restore(table) == [1, 2, 3, 4]


def test_without_its_first_entry_a_table_gets_new_metadata(table: Path) -> None:
    log(table, CHECKPOINT).unlink()
    log(table, 0).unlink()
    assert restore(table) == [1, 2, 3, 4]


@pytest.mark.parametrize(("first", "second"), [(3, 4), (0, 1), (1, 4)])
def test_swapped_entries_are_put_back(table: Path, first: int, second: int) -> None:
    one, other = log(table, first).read_bytes(), log(table, second).read_bytes()
    log(table, first).write_bytes(other)
    log(table, second).write_bytes(one)
    assert damage(table).lost == (first, second)
    assert restore(table) == [1, 2, 3, 4]
    assert log(table, first).read_bytes() == one


def test_an_entry_under_another_name_is_put_back(table: Path) -> None:
    log(table, 3).rename(log(table, f"{3:020}.json.old"))
    assert restore(table) == [1, 2, 3, 4]


def test_an_entry_of_another_history_is_given_up(table: Path) -> None:
    fork = shutil.copytree(table, table.parent / "fork" / "numbers")
    log(fork, 4).unlink()
    log(fork, 3).unlink()
    add(Table.open(str(fork)), 7)
    log(table, 3).write_bytes(log(fork, 3).read_bytes())
    with pytest.raises(DamagedLogError, match="is not the entry that version 4 was committed on"):
        Table.open(str(table))
    assert damage(table).lost == (3,)
    assert restore(table) == [1, 2, 4]


def test_an_entry_of_another_table_is_found(table: Path) -> None:
    other = Table.create(str(table.parent / "letters"), SCHEMA, LAYOUT)
    add(other, 1)
    log(table, 1).write_bytes(
        (table.parent / "letters" / "_delta_log" / f"{1:020}.json").read_bytes()
    )
    assert list(damage(table).files.values()) == ["belongs to the table 'letters'"]


def truncate(content: bytes) -> bytes:
    return content[:100]


@pytest.mark.parametrize("change", [lambda _: b"", truncate, lambda c: c[:300] + c[301:]])
def test_a_damaged_checkpoint_is_set_aside(table: Path, change: Callable[[bytes], bytes]) -> None:
    path = log(table, CHECKPOINT)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedLogError, match="a checkpoint cannot be read"):
        Table.open(str(table))
    assert [*damage(table).files] == [CHECKPOINT, "_last_checkpoint"]
    assert damage(table).lost == ()
    assert restore(table) == [1, 2, 3, 4]


@given(data=st.data())
def test_a_checkpoint_that_delta_rs_refuses_is_found(
    tmp_path_factory: pytest.TempPathFactory, made: Path, data: st.DataObject
) -> None:
    name = next((made / "_delta_log").glob("*.checkpoint.parquet")).name
    content = bytearray((made / "_delta_log" / name).read_bytes())
    footer_bytes = 8 + int.from_bytes(content[-8:-4], "little")
    bit = data.draw(st.integers(1, 8 * footer_bytes))
    content[-1 - (bit - 1) // 8] ^= 1 << bit % 8
    copy = tmp_path_factory.mktemp("flipped") / "_delta_log" / name
    copy.parent.mkdir()
    copy.write_bytes(content)
    try:
        deltalake.DeltaTable(copy.parent.parent)
    except DeltaError:
        assert name in damage(copy.parent.parent).files


def test_a_checkpoint_of_another_version_is_found(table: Path) -> None:
    Table.open(str(table)).checkpoint()
    newest = log(table, f"{NEWEST:020}.checkpoint.parquet")
    newest.write_bytes(log(table, CHECKPOINT).read_bytes())
    assert [*damage(table).files.values()] == [
        "is that of version 2",
        f"names the checkpoint of version {NEWEST}, which is damaged",
    ]
    assert restore(table) == [1, 2, 3, 4]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":"x"}', b'{"version":3}'])
def test_a_damaged_pointer_is_written_again(table: Path, content: bytes) -> None:
    log(table, "_last_checkpoint").write_bytes(content)
    assert [*damage(table).files] == ["_last_checkpoint"]
    assert restore(table) == [1, 2, 3, 4]


def test_a_log_without_sound_files_is_restored_empty(table: Path) -> None:
    for path in log(table, 0).parent.iterdir():
        path.write_bytes(b"")
    assert restore(table) == []


def test_a_log_can_be_removed_as_a_whole(table: Path) -> None:
    remove_log(damage(table))
    assert not Table.exists(str(table))


def test_damage_after_a_restoration_is_restored_again(table: Path) -> None:
    log(table, 3).unlink()
    assert restore(table) == [1, 2, 4]
    for path in log(table, 0).parent.glob("*.checkpoint.parquet"):
        path.write_bytes(b"")
    assert restore(table) == [1, 2, 4, 9]


@pytest.mark.parametrize("step", range(8))
def test_an_interrupted_restoration_can_be_repeated(
    table: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after each request to the store that changes something."""
    one, other = log(table, 3).read_bytes(), log(table, 4).read_bytes()
    log(table, 3).write_bytes(other)
    log(table, 4).write_bytes(one)
    log(table, 1).write_bytes(b"")
    log(table, CHECKPOINT).unlink()
    remaining = step

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("write_bytes", "remove", "create_if_absent"):
            patch.setattr(storage, name, counted(getattr(storage, name)))
        with pytest.raises(KeyboardInterrupt):
            restore(table)
    assert restore(table) == [2, 3, 4]


def test_a_sealed_entry_has_the_digest_of_the_one_before() -> None:
    first = seal([{"commitInfo": {"a": "ö"}}], table="t", version=0, previous="")
    second = seal([{"commitInfo": {}}, {"add": {}}], table="t", version=1, previous=digest(first))
    entries = [(0, first), (1, second)]
    assert [entry.problem for entry in check_entries(entries, table="t")] == [None, None]
    other = seal([{"commitInfo": {"a": "o"}}], table="t", version=0, previous="")
    problems = [entry.problem for entry in check_entries([(0, other), (1, second)])]
    assert problems == ["is not the entry that version 1 was committed on", None]
