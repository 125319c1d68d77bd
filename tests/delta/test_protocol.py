"""A table that requires anything unknown of a reader or a writer is refused, with the feature's name."""

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.delta.delta_rs import open_external
from etl.delta.log_segment import commit_file_name
from etl.delta.table import Table
from etl.errors import TableError
from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout
from tests.helpers.log_entries import Actions, edit_entry

SCHEMA = pa.schema({"row": pa.int64()})
LAYOUT = Layout(statistics=("row",))
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 1, "cardinality": 1}


def make(folder: Path) -> Table:
    """Make a table with one data file of three rows."""
    table = Table.create(str(folder), SCHEMA, LAYOUT)
    writer = DataFileWriter(table.url, SCHEMA, LAYOUT, name="a")
    writer.append(pa.table({"row": [1, 2, 3]}))
    return table.commit(writer.close(), transactions={})


def upgrade(folder: Path, **protocol: Any) -> None:
    """Commit another protocol, as an engine does that enables a feature."""
    newest = Table.open(str(folder)).version
    entry = folder / "_delta_log" / commit_file_name(newest + 1)
    versions = {"minReaderVersion": 1, "minWriterVersion": 2}
    if "readerFeatures" in protocol:
        versions = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol = {"writerFeatures": protocol["readerFeatures"], **protocol}
    entry.write_text(json.dumps({"protocol": {**versions, **protocol}}))


def configure(folder: Path, **properties: str) -> None:
    def change(action: Actions) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"].update(properties)

    edit_entry(str(folder), 0, change)


@pytest.mark.parametrize(
    ("protocol", "what"),
    [
        ({"minReaderVersion": 99}, "reader version 99"),
        ({"readerFeatures": ["telepathy"]}, "telepathy"),
        ({"readerFeatures": ["typeWidening"]}, "typeWidening"),
    ],
)
def test_an_unknown_requirement_of_readers_is_refused(
    tmp_path: Path, protocol: Actions, what: str
) -> None:
    make(tmp_path)
    upgrade(tmp_path, **protocol)
    with pytest.raises(TableError, match=what):
        Table.open(str(tmp_path))
    with pytest.raises(TableError, match=what):
        open_external(str(tmp_path))
    assert Table.open(str(tmp_path), 1).data_files().num_rows == 1


def test_a_checkpoint_of_version_2_is_refused_in_a_lake_only(tmp_path: Path) -> None:
    make(tmp_path)
    upgrade(tmp_path, readerFeatures=["v2Checkpoint"])
    with pytest.raises(TableError, match="v2Checkpoint"):
        Table.open(str(tmp_path))
    assert open_external(str(tmp_path)).files.num_rows == 1


def test_deletion_vectors_are_refused_in_an_external_table_only(tmp_path: Path) -> None:
    make(tmp_path)
    upgrade(tmp_path, readerFeatures=["deletionVectors"])
    assert Table.open(str(tmp_path)).data_files().num_rows == 1
    with pytest.raises(TableError, match="deletionVectors"):
        open_external(str(tmp_path))


def test_a_deletion_vector_counts_whatever_the_protocol_says(tmp_path: Path) -> None:
    def change(action: Actions) -> None:
        if "add" in action:
            action["add"]["deletionVector"] = VECTOR

    make(tmp_path)
    edit_entry(str(tmp_path), 1, change)
    for _ in "log", "checkpoint":
        (file,) = Table.open(str(tmp_path)).files("rows", "physical_rows")
        assert (file["rows"], file["physical_rows"]) == (2, 3)
        deltalake.DeltaTable(str(tmp_path)).create_checkpoint()


def test_checkpoints_of_other_engines_are_read(tmp_path: Path) -> None:
    table = make(tmp_path)
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / commit_file_name(1)).unlink()
    assert Table.open(table.url).data_files().num_rows == 1


@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("delta.enableChangeDataFeed", "true", "changeDataFeed"),
        ("delta.enableTelepathy", "TRUE", "telepathy"),
        ("delta.constraints.positive", "row > 0", "checkConstraints"),
    ],
)
def test_a_property_that_requires_more_of_writers_is_refused(
    tmp_path: Path, name: str, value: str, feature: str
) -> None:
    make(tmp_path)
    configure(tmp_path, **{name: value})
    table = Table.open(str(tmp_path))
    with pytest.raises(TableError, match=rf"features of a writer .*{feature}"):
        table.check_writable()
    with pytest.raises(TableError, match=feature):
        table.commit([], transactions={})


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("delta.invariants", "invariants"),
        ("delta.generationExpression", "generatedColumns"),
        ("delta.identity.start", "identityColumns"),
        ("delta.telepathy", "delta.telepathy"),
    ],
)
def test_a_column_that_requires_more_of_writers_is_refused(
    tmp_path: Path, name: str, feature: str
) -> None:
    inner = {"name": "x", "type": "long", "nullable": True, "metadata": {name: "1"}}
    outer = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}}

    def change(action: Actions) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            field = {"name": "nested", "type": {**outer, "containsNull": True}, "nullable": True}
            schema["fields"].append({**field, "metadata": {}})
            action["metaData"]["schemaString"] = json.dumps(schema)

    make(tmp_path)
    edit_entry(str(tmp_path), 0, change)
    with pytest.raises(TableError, match=feature):
        Table.open(str(tmp_path)).check_writable()


@pytest.mark.parametrize(
    ("version", "features", "named"),
    [
        (3, None, "writer version 3: checkConstraints"),
        (7, ["rowTracking", "appendOnly"], "rowTracking"),
        (8, None, "writer version 8"),
    ],
)
def test_an_unknown_requirement_of_writers_is_refused(
    tmp_path: Path, version: int, features: list[str] | None, named: str
) -> None:
    make(tmp_path)
    upgrade(tmp_path, minWriterVersion=version, writerFeatures=features)
    table = Table.open(str(tmp_path))
    assert table.data_files().num_rows == 1
    with pytest.raises(TableError, match=named):
        table.check_writable()


def test_rows_of_an_append_only_table_are_not_removed(tmp_path: Path) -> None:
    table = make(tmp_path)
    configure(tmp_path, **{"delta.appendOnly": "true"})
    table = Table.open(table.url)
    removed = table.data_files()["path"].to_pylist()
    with pytest.raises(TableError, match=r"delta\.appendOnly"):
        table.check_writable(removes=True)
    with pytest.raises(TableError, match=r"delta\.appendOnly"):
        table.commit([], remove=removed, transactions={})
    with pytest.raises(TableError, match=r"delta\.appendOnly"):
        table.commit([], overwrite=(SCHEMA, LAYOUT), transactions={})
    table = table.commit([], transactions={"a": 1})
    assert table.commit([], remove=removed, transactions={}, data_change=False).version == 3


def test_a_table_with_supported_features_is_written_and_keeps_them(tmp_path: Path) -> None:
    schema = pa.schema({"row": pa.int64(), "time": pa.timestamp("us")})
    deltalake.DeltaTable.create(tmp_path, schema)
    table = Table.open(str(tmp_path))
    before = deltalake.DeltaTable(table.url).protocol()
    assert before.writer_features == ["timestampNtz"]
    table = table.commit([], transactions={}).checkpoint()
    (tmp_path / "_delta_log" / commit_file_name(0)).unlink()
    after = deltalake.DeltaTable(table.url).protocol()
    assert (after.min_reader_version, after.min_writer_version) == (3, 7)
    assert (after.reader_features, after.writer_features) == (["timestampNtz"],) * 2
    assert Table.open(table.url).commit([], transactions={}).version == 2


DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("interval", "days"),
    [
        ("interval 1 week", 7),
        ("INTERVAL 2 weeks 1 day", 15),
        ("interval 24 hours 60 minutes 3600 seconds", 1 + 2 / 24),
    ],
)
def test_tombstones_are_kept_as_long_as_the_table_says(
    tmp_path: Path, interval: str, days: float
) -> None:
    ages = {"young": days - 0.01, "old": days + 0.01}

    def age(action: Actions) -> None:
        if "remove" in action:
            name = action["remove"]["path"].split("-")[0]
            action["remove"]["deletionTimestamp"] -= int(ages[name] * DAY_MS)

    table = Table.create(str(tmp_path), SCHEMA, LAYOUT)
    properties = {"delta.deletedFileRetentionDuration": interval}
    deltalake.DeltaTable(table.url).alter.set_table_properties(properties)
    files = []
    for name in ages:
        writer = DataFileWriter(table.url, SCHEMA, LAYOUT, name=name)
        writer.append(pa.table({"row": [1]}))
        files += writer.close()
    table = Table.open(table.url).commit(files, transactions={})
    table = table.commit([], remove=[file.path for file in files], transactions={})
    edit_entry(str(tmp_path), table.version, age)
    Table.open(table.url).checkpoint().commit([], transactions={}).checkpoint()
    newest = max((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    removed = [row for row in pq.read_table(newest)["remove"].to_pylist() if row is not None]
    assert [row["path"].split("-")[0] for row in removed] == ["young"]


@pytest.mark.parametrize("interval", ["7d", "interval", "interval -1 days", "interval 1 month"])
def test_a_retention_of_tombstones_that_is_no_interval_is_reported(
    tmp_path: Path, interval: str
) -> None:
    make(tmp_path)
    configure(tmp_path, **{"delta.deletedFileRetentionDuration": interval})
    table = Table.open(str(tmp_path))
    for write in (table.check_writable, table.checkpoint):
        with pytest.raises(TableError, match="is not an interval"):
            write()
