"""What a log says is what delta-rs reads of it: live files, statistics, transactions, at any checkpoint."""

import json
import resource
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from upath import UPath

from etl import checkpoint, log, snapshot, storage
from etl.errors import TableError, WriteError
from etl.fragment import Fragment, Layout
from etl.table import Table
from tests.conftest import NewPlace

SCHEMA = pa.schema(
    {"kind": pa.string(), "source": pa.string(), "row": pa.int64(), "values": pa.list_(pa.int32())}
)
LAYOUT = Layout(statistics=("source", "row"))
STEPS = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("remove"), st.lists(st.integers(0, 9), max_size=4, unique=True)),
    st.tuples(st.just("checkpoint"), st.sampled_from(["ours", "theirs"])),
    st.tuples(st.just("overwrite"), st.none()),
)


def file_of(table: Table, number: int, low: int) -> Fragment:
    """A data file of one byte, of which the log says this and that."""
    kind = ("kept", "größe 💾", "a=b/c")[number % 3]
    partition = {"kind": kind} if table_is_partitioned(table) else {}
    path = f"part-{number}.parquet"
    storage.write(storage.join(table.url, path), b"x")
    statistics = {
        "numRecords": low,
        "minValues": {"source": f"s3://a b/\n{number}", "row": low},
        "maxValues": {"source": "2020-01-01T00:00:00Z"} | ({"row": 1 << 62} if low % 2 else {}),
        "nullCount": {"source": 0, "row": low},
    }
    return Fragment(path, 1, low, partition, json.dumps(statistics) if low else "")


def table_is_partitioned(table: Table) -> bool:
    return table.schema.names == SCHEMA.names


def theirs(table: Table) -> dict[str, dict[str, Any]]:
    """The live files as delta-rs lists them."""
    delta = deltalake.DeltaTable(
        table.url, table.version, storage_options=storage.delta_options(table.url)
    )
    rows = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    names = {"size_bytes": "size", "num_records": "rows"}
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    return {row["path"]: known(row) for row in rows.to_pylist()}


def known(row: dict[str, Any]) -> dict[str, Any]:
    """What is known of a file."""
    return {k: v for k, v in row.items() if v is not None and k != "modification_time"}


@given(st.booleans(), st.lists(STEPS, max_size=12))
@example(is_partitioned=False, steps=[("add", [0, 1]), ("add", [0]), ("checkpoint", "ours")])
def test_every_version_is_what_delta_rs_reads(
    new_place: NewPlace, is_partitioned: bool, steps: list[tuple[str, Any]]
) -> None:
    layout = replace(LAYOUT, partition_by=("kind",) if is_partitioned else ())
    schema = SCHEMA if is_partitioned else pa.schema(list(SCHEMA)[1:])
    table = Table.create(str(new_place("t")), schema, layout, transactions={"generation": 1})
    names = {"generation": 1}
    live: set[int] = set()
    for place, (step, chosen) in enumerate(steps):
        if step == "checkpoint":
            if chosen == "ours":
                table = table.checkpoint()
            else:
                deltalake.DeltaTable(
                    table.url, storage_options=storage.delta_options(table.url)
                ).create_checkpoint()
            continue
        new = {f"{place:032x}": place, "last": place}
        add: list[Fragment] = []
        gone: list[str] = []
        overwrite = None
        if step == "add":
            add = [file_of(table, number, place) for number in chosen]
            live |= set(chosen)
        elif step == "remove":
            gone = [f"part-{number}.parquet" for number in live & set(chosen)]
            live -= set(chosen)
        else:
            live, overwrite = set(), (schema, layout)
        table = table.commit(add, remove=gone, transactions=new, lineage={}, overwrite=overwrite)
        names |= new
    for found in (table, Table.open(table.url)):
        files = {row["path"]: known(row) for row in found.fragments().to_pylist()}
        assert files == theirs(table)
        assert files.keys() == {f"part-{number}.parquet" for number in live}
        transactions = found.transactions()
        assert {name: transactions.get(name) for name in names} == names
    delta = deltalake.DeltaTable(table.url, storage_options=storage.delta_options(table.url))
    assert {name: delta.transaction_version(name) for name in names} == names


def test_some_columns_of_the_files(place: UPath) -> None:
    table = Table.create(str(place), SCHEMA, replace(LAYOUT, partition_by=("kind",)))
    table = table.commit([file_of(table, 1, 5)], transactions={}, lineage={})
    assert table.fragments(["rows", "path", "min.row"]).to_pylist() == [
        {"path": "part-1.parquet", "rows": 5, "min.row": 5}
    ]
    assert table.fragments(["partition.kind"])["partition.kind"].to_pylist() == ["größe 💾"]


def test_a_checkpoint_comes_by_itself_and_all_versions_stay(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.table._ENTRIES", 4)
    table = Table.create(str(place), SCHEMA, LAYOUT)
    for number in range(10):
        table = table.commit(
            [file_of(table, number, 1)], transactions={f"{number:032x}": 1}, lineage={}
        )
    found = [name for name in log.names(table.url) if ".checkpoint" in name]
    assert [int(name[:20]) for name in found] == [3, 7]
    assert log.head(table.url).checkpoint == (found[-1],)
    assert len(log.head(table.url).entries) == 3
    for version in range(11):
        at_it = Table.open(table.url, version)
        assert at_it.fragments().num_rows == version
        assert [at_it.transactions().get(f"{number:032x}") for number in range(10)] == [
            1 if number < version else None for number in range(10)
        ]
    assert [entry["version"] for entry in table.history()] == [*range(10, -1, -1)]


def test_the_version_of_a_point_in_time(place: UPath) -> None:
    table = Table.create(str(place), SCHEMA, LAYOUT)
    for _ in range(3):
        time.sleep(0.002)  # commits tell milliseconds
        table = table.commit([], transactions={}, lineage={})
    for entry in table.history():
        moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
        assert Table.open(table.url, moment).version == entry["version"]
    with pytest.raises(TableError, match="has no version of 1999"):
        Table.open(table.url, datetime(1999, 1, 1, tzinfo=UTC))


def test_a_commit_counts_whose_checkpoint_could_not_be_written(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.table._ENTRIES", 1)
    table = Table.create(str(place), SCHEMA, LAYOUT)

    def refuse(*_: Any, **__: Any) -> None:
        raise WriteError("no room")

    monkeypatch.setattr(checkpoint, "write", refuse)
    table = table.commit([], transactions={"a": 1}, lineage={})
    assert Table.open(table.url).transactions().get("a") == 1
    monkeypatch.undo()
    monkeypatch.setattr("etl.table._ENTRIES", 1)
    table.commit([], transactions={"b": 1}, lineage={})
    assert [name for name in log.names(table.url) if ".checkpoint" in name]
    assert Table.open(table.url).transactions().get("a") == 1


def test_a_checkpoint_in_parts_counts_when_all_are_there(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT, transactions={"a": 1})
    table = table.commit([file_of(table, 1, 1)], transactions={"b": 2}, lineage={})
    table.checkpoint()
    folder = tmp_path / "_delta_log"
    (folder / "_last_checkpoint").unlink()
    whole = folder / f"{1:020}.checkpoint.parquet"
    first, second = (folder / f"{1:020}.checkpoint.{i:010}.{2:010}.parquet" for i in (1, 2))
    first.write_bytes(whole.read_bytes())
    whole.unlink()
    assert log.head(table.url).checkpoint == ()
    checkpoint.write(  # the other part, with nothing in it that the first has not
        table.url + "/_delta_log",
        1,
        before=[],
        protocol={"minReaderVersion": 1, "minWriterVersion": 2},
        metadata=snapshot.read(log.head(table.url)).metadata,
        changes={
            kind: pa.nulls(0, kind_of)
            for kind, kind_of in (
                ("add", checkpoint.ADD),
                ("remove", checkpoint.REMOVE),
                ("txn", checkpoint.TXN),
            )
        },
    )
    whole.rename(second)
    assert log.head(table.url).checkpoint == (first.name, second.name)
    found = Table.open(table.url)
    assert found.fragments()["path"].to_pylist() == ["part-1.parquet"]
    assert found.transactions().get("b") == 2


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b'{"add":{"path":', "is damaged"),
        (b'{"add":{"path":"a","size":"many"}}', "is damaged"),
        (b"", "is damaged"),
        (b'{"metaData":[]}', "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_a_damaged_entry_is_named(tmp_path: Path, content: bytes, match: str) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    table.commit([], transactions={}, lineage={})
    entry = tmp_path / "_delta_log" / log.entry_name(1)
    entry.write_bytes(content)
    with pytest.raises(TableError, match=match) as caught:
        Table.open(table.url)
    assert caught.value.where == f"file://{entry}"


@pytest.mark.parametrize("statistics", ['{"numRecords":', '{"numRecords":"x"}', "{}\n{}", "[]"])
def test_damaged_statistics_are_told(tmp_path: Path, statistics: str) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    file = replace(file_of(table, 1, 1), statistics=statistics)
    table = table.commit([file], transactions={}, lineage={})
    with pytest.raises(TableError, match="its log says of data files is damaged"):
        table.fragments()
    assert table.fragments(["size"])["size"].to_pylist() == [1]


def test_a_full_disk_does_not_lose_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.table._ENTRIES", 1)
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))  # less than a checkpoint takes
    try:
        table = table.commit([], transactions={"a": 1}, lineage={})
        with pytest.raises(WriteError, match="too large"):
            table.checkpoint()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Table.open(table.url).transactions().get("a") == 1
    assert sorted(p.name for p in (tmp_path / "_delta_log").iterdir()) == [
        log.entry_name(0),
        log.entry_name(1),
    ]


def test_a_gap_in_the_log_is_told(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    for _ in range(3):
        table = table.commit([], transactions={}, lineage={})
    (tmp_path / "_delta_log" / log.entry_name(2)).unlink()
    with pytest.raises(TableError, match="entry of version 2 is not there"):
        Table.open(table.url)
    assert Table.open(table.url, 1).version == 1


def test_what_asks_for_more_of_a_writer_is_not_written(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    deltalake.DeltaTable(table.url).alter.add_constraint({"positive": "row > 0"})
    found = Table.open(table.url)
    with pytest.raises(TableError, match=r"writer version \d, not 2"):
        found.commit([], transactions={}, lineage={})


def test_of_many_who_commit_at_once_one_does(place: UPath) -> None:
    table = Table.create(str(place), SCHEMA, LAYOUT)

    def commit(name: str) -> int:
        found = Table.open(table.url, 0)
        try:
            return found.commit([], transactions={name: 1}, lineage={}).version
        except TableError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(commit, [uuid.uuid4().hex for _ in range(8)]))
    assert sorted(versions) == [0] * 7 + [1]
