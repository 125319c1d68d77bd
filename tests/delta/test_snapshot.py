"""Snapshots agree with delta-rs on live files, statistics and transactions, with any checkpoints."""

import json
import resource
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from upath import UPath

from etl import storage
from etl.delta import actions, checkpoint, log_segment, snapshot
from etl.delta.table import Table
from etl.errors import TableError, WriteError
from etl.parquet.data_file import DataFile
from etl.parquet.layout import Layout
from tests.helpers.paths import NewPlace

SCHEMA = pa.schema(
    {"kind": pa.string(), "source": pa.string(), "row": pa.int64(), "values": pa.list_(pa.int32())}
)
LAYOUT = Layout(statistics=("source", "row"))
STEPS = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("remove"), st.lists(st.integers(0, 9), max_size=4, unique=True)),
    st.tuples(st.just("checkpoint"), st.sampled_from(["tokenlake", "delta-rs"])),
    st.tuples(st.just("overwrite"), st.none()),
)


def file_of(table: Table, number: int, low: int) -> DataFile:
    """Write a data file of one byte, and return it with statistics for the log."""
    kind = ("kept", "größe 💾", "a=b/c")[number % 3]
    partition = {"kind": kind} if is_partitioned_table(table) else {}
    path = f"part-{number}.parquet"
    storage.write_bytes(storage.join(table.url, path), b"x")
    statistics = {
        "numRecords": low,
        "minValues": {"source": f"s3://a b/\n{number}", "row": low},
        "maxValues": {"source": "2020-01-01T00:00:00Z"} | ({"row": 1 << 62} if low % 2 else {}),
        "nullCount": {"source": 0, "row": low},
    }
    digest = f"{low:032x}" if number % 2 else None
    return DataFile(path, 1, low, partition, json.dumps(statistics) if low else "", digest=digest)


def is_partitioned_table(table: Table) -> bool:
    return table.schema.names == SCHEMA.names


def files_by_delta_rs(table: Table) -> dict[str, dict[str, Any]]:
    """Return the live files that delta-rs lists, by path."""
    delta = deltalake.DeltaTable(
        table.url, table.version, storage_options=storage.delta_options(table.url)
    )
    rows = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    names = {"size_bytes": "size", "num_records": "rows"}
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    return {row["path"]: without_nulls(row) for row in rows.to_pylist()}


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return the known fields of a file that delta-rs lists, without its modification time."""
    other = ("modification_time", "physical_rows")
    return {k: v for k, v in row.items() if v is not None and k not in other}


@given(st.booleans(), st.lists(STEPS, max_size=12))
@example(is_partitioned=False, steps=[("add", [0, 1]), ("add", [0]), ("checkpoint", "tokenlake")])
def test_every_version_equals_that_of_delta_rs(
    new_place: NewPlace, is_partitioned: bool, steps: list[tuple[str, Any]]
) -> None:
    layout = replace(LAYOUT, partition_by=("kind",) if is_partitioned else ())
    schema = SCHEMA if is_partitioned else pa.schema(list(SCHEMA)[1:])
    table = Table.create(str(new_place("t")), schema, layout, transactions={"generation": 1})
    names = {"generation": 1}
    live: dict[int, int] = {}  # the step that added each file last
    followed = Table.open(table.url)
    for index, (step, argument) in enumerate(steps):
        followed = followed.newest() if index % 3 == 0 else followed
        if step == "checkpoint":
            if argument == "tokenlake":
                table = table.checkpoint()
            else:
                deltalake.DeltaTable(
                    table.url, storage_options=storage.delta_options(table.url)
                ).create_checkpoint()
            continue
        new = {f"{index:032x}": index, "last": index}
        add: list[DataFile] = []
        remove: list[str] = []
        overwrite = None
        if step == "add":
            add = [file_of(table, number, index) for number in argument]
            live |= dict.fromkeys(argument, index)
        elif step == "remove":
            remove = [f"part-{number}.parquet" for number in {*live} & {*argument}]
            live = {number: low for number, low in live.items() if number not in argument}
        else:
            live, overwrite = {}, (schema, layout)
        table = table.commit(add, remove=remove, transactions=new, overwrite=overwrite)
        names |= new
    for opened in (table, Table.open(table.url), followed.newest()):
        files = {row["path"]: without_nulls(row) for row in opened.data_files().to_pylist()}
        digests = {path: file.pop("digest", None) for path, file in files.items()}
        assert files == files_by_delta_rs(table)
        assert digests == {
            f"part-{number}.parquet": f"{low:032x}" if number % 2 else None
            for number, low in live.items()
        }
        transactions = opened.transactions()
        assert {name: transactions.get(name) for name in names} == names
    delta = deltalake.DeltaTable(table.url, storage_options=storage.delta_options(table.url))
    assert {name: delta.transaction_version(name) for name in names} == names


def test_files_are_listed_with_selected_columns(place: UPath) -> None:
    table = Table.create(str(place), SCHEMA, replace(LAYOUT, partition_by=("kind",)))
    table = table.commit([file_of(table, 1, 5)], transactions={})
    assert table.data_files(["rows", "path", "min.row"]).to_pylist() == [
        {"path": "part-1.parquet", "rows": 5, "min.row": 5}
    ]
    assert table.data_files(["partition.kind"])["partition.kind"].to_pylist() == ["größe 💾"]


def test_checkpoints_are_written_automatically_and_all_versions_stay_readable(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.delta.checkpoint._MAX_ENTRIES", 4)
    table = Table.create(str(place), SCHEMA, LAYOUT)
    for number in range(10):
        table = table.commit([file_of(table, number, 1)], transactions={f"{number:032x}": 1})
    checkpoints = [name for name in log_segment.list_log_files(table.url) if ".checkpoint" in name]
    assert [int(name[:20]) for name in checkpoints] == [3, 7]
    assert log_segment.read_log_segment(table.url).checkpoint == (checkpoints[-1],)
    assert len(log_segment.read_log_segment(table.url).entries) == 3
    for version in range(11):
        older = Table.open(table.url, version)
        assert older.data_files().num_rows == version
        assert [older.transactions().get(f"{number:032x}") for number in range(10)] == [
            1 if number < version else None for number in range(10)
        ]
    assert [entry["version"] for entry in table.history()] == [*range(10, -1, -1)]


def test_a_newer_version_is_opened_without_reading_earlier_entries(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    table = table.commit([file_of(table, 1, 1)], transactions={"a": 1})
    known = Table.open(table.url)
    table.commit([file_of(table, 2, 2)], transactions={"b": 2})
    (tmp_path / "_delta_log" / log_segment.commit_file_name(0)).write_bytes(b"damaged")
    newest = known.newest()
    assert newest.data_files()["path"].to_pylist() == ["part-1.parquet", "part-2.parquet"]
    assert [newest.transactions().get(name) for name in "ab"] == [1, 2]
    assert [entry["version"] for entry in islice(newest.history(), 2)] == [2, 1]


def test_a_version_is_opened_by_a_point_in_time(place: UPath) -> None:
    table = Table.create(str(place), SCHEMA, LAYOUT)
    for _ in range(3):
        time.sleep(0.002)  # commits tell milliseconds
        table = table.commit([], transactions={})
    for entry in table.history():
        moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
        assert Table.open(table.url, moment).version == entry["version"]
    with pytest.raises(TableError, match="has no version as of 1999"):
        Table.open(table.url, datetime(1999, 1, 1, tzinfo=UTC))


def test_a_commit_succeeds_without_its_checkpoint(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.delta.checkpoint._MAX_ENTRIES", 1)
    table = Table.create(str(place), SCHEMA, LAYOUT)

    def refuse(*_: Any, **__: Any) -> None:
        raise WriteError("disk full")

    monkeypatch.setattr(checkpoint, "write_checkpoint", refuse)
    table = table.commit([], transactions={"a": 1})
    assert str(table.checkpoint_error) == "disk full"
    assert Table.open(table.url).transactions().get("a") == 1
    monkeypatch.undo()
    monkeypatch.setattr("etl.delta.checkpoint._MAX_ENTRIES", 1)
    assert table.commit([], transactions={"b": 1}).checkpoint_error is None
    assert [name for name in log_segment.list_log_files(table.url) if ".checkpoint" in name]
    assert Table.open(table.url).transactions().get("a") == 1


def test_a_multi_part_checkpoint_needs_all_its_parts(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT, transactions={"a": 1})
    table = table.commit([file_of(table, 1, 1)], transactions={"b": 2})
    table.checkpoint()
    folder = tmp_path / "_delta_log"
    (folder / "_last_checkpoint").unlink()
    whole = folder / f"{1:020}.checkpoint.parquet"
    first, second = (folder / f"{1:020}.checkpoint.{i:010}.{2:010}.parquet" for i in (1, 2))
    first.write_bytes(whole.read_bytes())
    whole.unlink()
    assert log_segment.read_log_segment(table.url).checkpoint == ()
    checkpoint.write_checkpoint(  # the second part, without further actions
        table.url + "/_delta_log",
        1,
        before=[],
        state={
            "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
            "metaData": snapshot.read_snapshot(log_segment.read_log_segment(table.url)).metadata,
        },
        changes={
            kind: pa.nulls(0, layout)
            for kind, layout in (
                ("add", actions.ADD),
                ("remove", actions.REMOVE),
                ("txn", actions.TXN),
            )
        },
    )
    whole.rename(second)
    assert log_segment.read_log_segment(table.url).checkpoint == (first.name, second.name)
    table = Table.open(table.url)
    assert table.data_files()["path"].to_pylist() == ["part-1.parquet"]
    assert table.transactions().get("b") == 2


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b'{"add":{"path":', "it is not valid JSON"),
        (b'{"add":{"path":"a","size":"many"}}', "is damaged"),
        (b"", "it has no actions"),
        (b'{"metaData":[]}', "metaData is not a JSON object"),
        (b"\xff\xfe", "it is not valid JSON"),
    ],
)
def test_a_damaged_log_entry_is_named(tmp_path: Path, content: bytes, match: str) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    table.commit([], transactions={})
    entry = tmp_path / "_delta_log" / log_segment.commit_file_name(1)
    entry.write_bytes(content)
    with pytest.raises(TableError, match=match) as caught:
        Table.open(table.url)
    assert caught.value.where == f"file://{entry}"


@pytest.mark.parametrize("statistics", ['{"numRecords":', '{"numRecords":"x"}', "{}\n{}", "[]"])
def test_damaged_statistics_are_reported(tmp_path: Path, statistics: str) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    file = replace(file_of(table, 1, 1), statistics=statistics)
    table = table.commit([file], transactions={})
    with pytest.raises(TableError, match="statistics of data files in the log are damaged"):
        table.data_files()
    assert table.data_files(["size"])["size"].to_pylist() == [1]


def test_a_full_disk_does_not_lose_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.delta.checkpoint._MAX_ENTRIES", 1)
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))  # smaller than a checkpoint
    try:
        table = table.commit([], transactions={"a": 1})
        with pytest.raises(WriteError, match="too large"):
            table.checkpoint()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Table.open(table.url).transactions().get("a") == 1
    assert sorted(p.name for p in (tmp_path / "_delta_log").iterdir()) == [
        log_segment.commit_file_name(0),
        log_segment.commit_file_name(1),
    ]


def test_a_gap_in_the_log_is_reported(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    for _ in range(3):
        table = table.commit([], transactions={})
    (tmp_path / "_delta_log" / log_segment.commit_file_name(2)).unlink()
    with pytest.raises(TableError, match="entry of version 2 is missing"):
        Table.open(table.url)
    assert Table.open(table.url, 1).version == 1


def test_a_table_with_a_constraint_is_read_only(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    deltalake.DeltaTable(table.url).alter.add_constraint({"positive": "row > 0"})
    table = Table.open(table.url)
    with pytest.raises(TableError, match="features of a writer .*checkConstraints"):
        table.commit([], transactions={})


def test_one_of_many_concurrent_commits_succeeds(place: UPath) -> None:
    table = Table.create(str(place), SCHEMA, LAYOUT)

    def commit(name: str) -> int:
        opened = Table.open(table.url, 0)
        try:
            return opened.commit([], transactions={name: 1}).version
        except TableError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(commit, [uuid.uuid4().hex for _ in range(8)]))
    assert sorted(versions) == [0] * 7 + [1]
