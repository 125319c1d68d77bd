"""The numbered list of data files in storage, against lists in memory."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.compute import frame_shuffles
from etl.dedup import stored_file_list as job
from etl.dedup.numbered_files import NumberedFile
from etl.dedup.stored_file_list import store_file_list
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import StageError, WriteError
from etl.job.run import run
from etl.lake.row_ranges import Address, RangeIndex
from etl.parquet.data_file import is_data_file
from etl.stages import DedupMinhash
from tests.helpers.near_duplicates import expected, make, pairs, planted, write
from tests.helpers.paths import NewPlace

NAME = "f" * 32

some_positions = st.integers(0, 2**40)
some_logical_files = st.builds(
    LogicalFile,
    st.text(max_size=5),
    st.none() | st.text(max_size=3),
    st.none() | st.tuples(some_positions, some_positions),
)

some_files = st.lists(
    st.builds(
        NumberedFile,
        number=st.just(0),
        source=st.text(max_size=5),
        unit=st.text(min_size=1, max_size=5),
        files=st.lists(some_logical_files, min_size=1, max_size=2).map(tuple),
        rows=st.integers(1, 2**40),
        decided=st.booleans(),
        earlier=st.booleans(),
        duplicates=st.lists(some_logical_files, max_size=2).map(tuple),
        kinds=st.sampled_from([("exact", "near"), ("exact",)]),
        keyed=st.sampled_from([(), ("near",)]),
        lake=st.none() | st.just("s3://other"),
    ),
    min_size=1,
    max_size=30,
)


def numbered(files: Sequence[NumberedFile]) -> list[NumberedFile]:
    return [replace(file, number=number) for number, file in enumerate(files)]


@given(files=some_files, data=st.data())
def test_a_stored_list_returns_its_files(
    new_place: NewPlace, files: list[NumberedFile], data: st.DataObject
) -> None:
    files, url = numbered(files), str(new_place("duplicates"))
    chosen = data.draw(st.sets(st.integers(0, len(files) - 1)).map(sorted))
    wanted = np.array(chosen, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_AT_ONCE", 7)
        patch.setattr(job, "_LAYOUT", replace(job._LAYOUT, row_group_bytes=9))
        with store_file_list(iter(files), url, NAME) as stored:
            assert len(stored) == len(files)
            assert list(stored) == files
            assert stored.take(wanted) == [files[k] for k in chosen]
            fields = stored.fields(wanted, ["source", "lake"])
            assert fields.index.tolist() == chosen
            assert fields["source"].tolist() == [files[k].source for k in chosen]
            numbers, rows = stored.chosen(lambda file: file.decided)
            assert numbers.tolist() == [file.number for file in files if file.decided]
            assert rows.tolist() == [file.rows for file in files if file.decided]


def test_the_list_is_removed_when_the_context_ends(place: UPath) -> None:
    """It is named like a data file, so a vacuum removes the list of a killed run."""
    file = NumberedFile(0, "a", "u", (LogicalFile("b"),), 1, False, False, ())
    with suppress(StageError), store_file_list([file], str(place), NAME) as files:
        (path,) = place.glob("*.parquet")
        assert is_data_file(path.name)
        assert files.path == path.name
        raise StageError("a task failed")
    assert list(place.glob("*.parquet")) == []


def test_a_list_that_cannot_be_written_is_an_error(tmp_path: UPath) -> None:
    (tmp_path / "table").write_text("a file where a folder should be")
    file = NumberedFile(0, "a", "u", (LogicalFile("b"),), 1, False, False, ())
    with (
        pytest.raises(WriteError, match=re.escape(str(tmp_path))),
        store_file_list([file], str(tmp_path / "table"), NAME),
    ):
        pass


some_addresses = st.tuples(st.text("abc", max_size=2), st.integers(0, 3))


@given(
    st.lists(st.tuples(some_addresses, some_addresses, st.text("abc").map(LogicalFile))),
    some_addresses,
    some_addresses,
)
def test_files_with_addresses_in_a_range_are_found(
    spans: list[tuple[Address, Address, LogicalFile]], one: Address, other: Address
) -> None:
    spans = [(min(a, b), max(a, b), file) for a, b, file in spans]
    low, high = min(one, other), max(one, other)
    expected = [file for first, last, file in spans if first <= high and last >= low]
    found = RangeIndex(spans).files_between(low, high)
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=60), st.sampled_from([5, 10**4]))
def test_parts_have_all_files_in_order_and_bounded_keys(keys: list[int], most: int) -> None:
    numbers = np.arange(len(keys)) * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_shuffles, "_TASKS", 8)
        patch.setattr(frame_shuffles, "MAX_TASKS", most)
        parts = frame_shuffles.task_batches(numbers, np.array(keys, np.int64))
    assert np.concatenate(parts).tolist() == numbers.tolist()
    assert all(map(len, parts))
    sizes = [sum(keys[k // 3] for k in part.tolist()) for part in parts]
    keys_per_task = max(
        min(frame_shuffles._KEYS_PER_TASK, 1 + sum(keys) // 8), 1 + sum(keys) // most
    )
    assert len(parts) <= most
    assert all(size - max(keys) < keys_per_task for size in sizes)
    assert len(parts) <= 2 + 2 * sum(keys) // keys_per_task


@pytest.mark.parametrize("tasks", [1, 3, 1024])
def test_the_number_of_files_per_task_does_not_change_the_duplicates(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    """The run leaves no data files that are not in the tables' logs."""
    monkeypatch.setattr(frame_shuffles, "_TASKS", tasks)
    near = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.75)
    recipe = make(place / "lake", write(place / "in", planted(), 7), "dedup_exact", near)
    assert run(recipe, cluster=client).ok
    assert pairs(recipe) == expected(planted(), has_exact=True)
    for table in (place / "lake" / "duplicates", place / "lake" / "keys"):
        live = set(Table.open(str(table)).data_files()["path"].to_pylist())
        stored = [file for file in table.rglob("*.parquet") if "_delta_log" not in file.parts]
        assert len(stored) == len(live)
        assert {file.name for file in stored} == {path.rsplit("/", 1)[-1] for path in live}
