"""Delta tables as a source: compacted, changed, restored, vacuumed and recreated between reads."""

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from etl.delta.table import Table
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout
from etl.sources import Source
from tests.helpers.delta_source import SCHEMA, HeldRows, RefusedError, SourceTable


@pytest.fixture
def table(place) -> SourceTable:
    return SourceTable(place / "source ü")


def held_rows(table: SourceTable, split_bytes: int = 1) -> HeldRows:
    return HeldRows(Source(path=table.url, split_bytes=split_bytes, metadata="all"))


@pytest.mark.parametrize("partition_by", [[], ["n"]])
@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
def test_a_compacted_table_is_not_read_again(
    place, partition_by: list[str], split_bytes: int
) -> None:
    table = SourceTable(place / "source", partition_by=partition_by)
    held = held_rows(table, split_bytes)
    for _ in range(3):
        table.append(5)
    assert held.read()
    for reorganize in (table.compact, table.z_order, table.compact):
        reorganize()
        assert held.read() == []
    table.vacuum()
    assert held.read() == []
    table.append(3)
    new = held.read()
    assert {split.version for split in new} == {table.version}
    assert held.texts == table.texts()


def test_files_that_were_compacted_before_they_were_read_are_read_by_their_old_address(
    place,
) -> None:
    table = SourceTable(place / "source", partition_by=["n"])
    held = held_rows(table)
    table.append(4)
    held.read()
    table.append(6)
    table.append(4)
    before = table.version
    uris = set(table.open().file_uris())
    table.compact()
    new = held.read()
    assert {split.version for split in new} == {before}
    assert {split.uri.rsplit("/", 1)[-1] for split in new} < {u.rsplit("/", 1)[-1] for u in uris}
    assert {split.partition for split in new} == {(("n", 0),), (("n", 1),)}
    assert held.texts == table.texts()


def test_a_file_that_was_read_in_part_and_compacted_is_read_to_its_end(table: SourceTable) -> None:
    held = held_rows(table)
    table.append(9)
    assert len(held.read(limit=2)) == 2
    table.append(3)
    table.compact()
    assert len(held.read()) == 5
    assert held.texts == table.texts()
    table.vacuum()
    assert held.read() == []


def test_a_merged_file_is_read_anew_if_unread_files_behind_it_were_vacuumed(
    table: SourceTable,
) -> None:
    held = held_rows(table)
    table.append(2)
    held.read()
    table.append(2)
    table.compact()
    table.vacuum()
    with pytest.raises(RefusedError, match="merged in the Delta table with rows not read yet"):
        held.read()
    held.read(replace=True)
    assert held.texts == table.texts()
    assert len(held.uris) == 1


def test_unread_rows_do_not_need_files_that_were_read_and_vacuumed(table: SourceTable) -> None:
    held = held_rows(table)
    table.append(2)
    table.append(2)
    held.read()
    table.compact()
    table.vacuum()
    table.append(5)
    table.compact()
    assert len(held.read()) == 3
    assert held.texts == table.texts()


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("change", ["delete", "update", "merge"])
def test_changed_rows_are_refused_or_replaced(
    table: SourceTable, change: str, compacted: bool
) -> None:
    held = held_rows(table)
    for _ in range(3):
        table.append(2)
    held.read()
    if compacted:
        table.compact()
    getattr(table, change)("text 2")
    with pytest.raises(RefusedError, match="removed from the Delta table"):
        held.read()
    held.read(replace=True)
    assert held.texts == table.texts()
    table.z_order()
    assert held.read() == []


def test_a_deletion_in_one_partition_leaves_the_others(place) -> None:
    table = SourceTable(place / "source", partition_by=["n"])
    held = held_rows(table)
    table.append(6)
    table.append(6)
    held.read()
    table.compact()
    table.delete("text 3")
    with pytest.raises(RefusedError) as refused:
        held.read()
    assert "n=1" in str(refused.value)
    assert "n=0" not in str(refused.value)
    held.read(replace=True)
    assert held.texts == table.texts()


def test_a_restored_version_has_the_rows_that_were_read_from_it(table: SourceTable) -> None:
    held = held_rows(table)
    table.append(2)
    table.append(2)
    held.read()
    table.compact()
    compacted = table.version
    table.restore(1)
    assert held.read() == []
    table.restore(compacted)
    assert held.read() == []
    table.overwrite(2)
    held.read(replace=True)
    table.restore(compacted)
    with pytest.raises(RefusedError):
        held.read()
    held.read(replace=True)
    assert held.texts == table.texts()


def test_an_older_version_lacks_the_rows_added_later(table: SourceTable) -> None:
    held = held_rows(table)
    table.append(2)
    table.append(2)
    held.read()
    with pytest.raises(RefusedError, match="removed from the Delta table"):
        held.read(version=0)
    held.read(version=0, replace=True)
    assert held.texts == table.texts(0)


@pytest.mark.local_only
def test_a_table_that_was_dropped_and_created_again_is_another_one(table: SourceTable) -> None:
    held = held_rows(table)
    table.append(2)
    table.append(2)
    held.read()
    table.drop()
    table.append(2)
    with pytest.raises(RefusedError, match="an earlier Delta table"):
        held.read()
    held.read(replace=True)
    assert held.texts == table.texts()


def test_log_entries_are_needed_once(table: SourceTable) -> None:
    held = held_rows(table)
    for _ in range(2):
        table.append(2)
        held.read()
        table.compact()
        table.vacuum()
        assert held.read() == []
        table.append(2)
        table.delete_log_entries()
        assert len(held.read()) == 1
    assert held.texts == table.texts()
    table.delete("text 0")
    with pytest.raises(RefusedError, match="removed from the Delta table"):
        held.read()
    held.read(replace=True)
    assert held.texts == table.texts()


def test_log_entries_that_were_deleted_before_they_were_needed_are_reported(
    table: SourceTable,
) -> None:
    held = held_rows(table)
    table.append(2)
    table.append(2)
    held.read()
    table.delete_log_entries()
    assert held.read() == [], "all files are live: no log entry is needed"
    table.compact()
    table.append(2)
    table.delete_log_entries()
    with pytest.raises(RefusedError, match="log entries of that time were deleted"):
        held.read()
    held.read(replace=True)
    assert held.texts == table.texts()


@pytest.mark.parametrize("partition_by", [(), ("n",)])
def test_a_table_of_our_own_that_was_compacted_is_not_read_again(
    place, partition_by: tuple[str, ...]
) -> None:
    layout = Layout(partition_by=partition_by, statistics=())
    table = Table.create(str(place / "own"), SCHEMA, layout)

    def write(texts: list[str], n: int) -> list[DataFile]:
        partition = dict.fromkeys(partition_by, str(n))
        writer = DataFileWriter(table.url, SCHEMA, layout, name="part", partition=partition)
        columns = {"text": texts, "n": pa.array([n] * len(texts), pa.int64())}
        writer.append(pa.table({k: v for k, v in columns.items() if k not in partition_by}))
        return writer.close()

    small = [*write(["a"], 0), *write(["b"], 0), *write(["c"], 1)]
    table = table.commit(small, transactions={})
    held = HeldRows(Source(path=table.url))
    held.read()
    table = table.commit(
        [*write(["a", "b"], 0), *write(["c"], 1)],
        remove=[file.path for file in small],
        transactions={},
        data_change=False,
    )
    assert held.read() == []
    table.commit(write(["d"], 1), transactions={})
    assert len(held.read()) == 1
    assert held.texts == {"a": 1, "b": 1, "c": 1, "d": 1}


class Histories(RuleBasedStateMachine):
    """Any operations on a table between any reads leave a lake with exactly the rows of the table."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.held: HeldRows | None = None
        self.is_changed = False  # whether a read may be refused

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.held is None)
    @rule(partition_by=st.sampled_from([[], ["n"]]), split_bytes=st.sampled_from([1, 1 << 20]))
    def create(self, partition_by: list[str], split_bytes: int) -> None:
        self.table = SourceTable(self.folder / "source", partition_by=partition_by)
        self.held = held_rows(self.table, split_bytes)
        self.is_fully_read = True
        self.table.append(3)
        self.is_fully_read = False

    @precondition(lambda self: self.held is not None)
    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.table.append(count)
        self.is_fully_read = False

    @precondition(lambda self: self.held is not None)
    @rule(name=st.sampled_from(["compact", "z_order"]))
    def reorganize(self, name: str) -> None:
        getattr(self.table, name)()

    @precondition(lambda self: self.held is not None)
    @rule(name=st.sampled_from(["delete", "update", "merge"]), choice=st.integers(min_value=0))
    def change(self, name: str, choice: int) -> None:
        texts = sorted(self.table.texts())
        assume(texts)
        getattr(self.table, name)(texts[choice % len(texts)])
        self.is_changed, self.is_fully_read = True, False

    @precondition(lambda self: self.held is not None)
    @rule(name=st.sampled_from(["overwrite", "drop", "delete_log_entries"]))
    def replace_table(self, name: str) -> None:
        getattr(self.table, name)()
        if name == "drop":
            self.table.append(2)
        self.is_changed, self.is_fully_read = True, False

    @precondition(lambda self: self.held is not None)
    @rule(choice=st.integers(min_value=0))
    def restore(self, choice: int) -> None:
        try:
            self.table.restore(choice % (self.table.version + 1))
        except DeltaError:  # its files were vacuumed, or its log entries deleted
            return
        self.is_changed, self.is_fully_read = True, False

    @precondition(lambda self: self.held is not None)
    @rule()
    def vacuum(self) -> None:
        self.table.vacuum()
        self.is_changed |= not self.is_fully_read

    @precondition(lambda self: self.held is not None)
    @rule()
    def checkpoint(self) -> None:
        self.table.open().create_checkpoint()

    @precondition(lambda self: self.held is not None)
    @rule(replace=st.booleans(), limit=st.none() | st.integers(0, 3))
    def read(self, replace: bool, limit: int | None) -> None:
        assert self.held is not None
        try:
            self.held.read(replace=replace, limit=limit)
        except RefusedError:
            assert self.is_changed
            return
        self.is_changed &= not replace
        if limit is None:
            assert self.held.texts == self.table.texts()
            self.is_fully_read = True

    @precondition(lambda self: self.held is not None and self.held.uris)
    @rule(choice=st.integers(min_value=0))
    def lose(self, choice: int) -> None:
        assert self.held is not None
        uris = sorted(self.held.uris)
        self.held.lose(uris[choice % len(uris)])
        self.is_fully_read = False

    @invariant()
    def no_row_is_held_twice(self) -> None:
        assert self.held is None or max(self.held.texts.values(), default=1) == 1


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
