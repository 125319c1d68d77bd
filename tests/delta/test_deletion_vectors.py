"""Rows of data files are struck, restored and read like a naive table does, and by delta-rs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import QueryBuilder
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl import storage
from etl.delta import actions, deletion_vectors
from etl.delta.log_damage import find_damage, open_remains, set_aside
from etl.delta.log_segment import commit_file_name
from etl.delta.table import Table
from etl.errors import TableError
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout
from tests.helpers.log_entries import Actions, edit_entry
from tests.helpers.paths import NewPlace

SCHEMA = pa.schema({"row": pa.int64()})
LAYOUT = Layout(statistics=("row",))
ROWS = 10  # of each data file

STEPS = st.one_of(
    st.tuples(st.just("add"), st.none()),
    st.tuples(
        st.just("strike"),
        st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, ROWS - 1)), min_size=1),
    ),
    st.tuples(st.just("remove"), st.integers(0, 3)),
    st.tuples(st.just("checkpoint"), st.sampled_from(["tokenlake", "delta-rs"])),
    st.tuples(st.just("overwrite"), st.none()),
)


def write(table: Table, first: int, rows: int = ROWS) -> DataFile:
    """Write a data file with consecutive numbers."""
    writer = DataFileWriter(table.url, SCHEMA, LAYOUT, name="a")
    writer.append(pa.table({"row": range(first, first + rows)}))
    (file,) = writer.close()
    return file


def make(place: object, files: int = 1, rows: int = ROWS) -> Table:
    table = Table.create(str(place), SCHEMA, LAYOUT)
    return table.commit([write(table, rows * i, rows) for i in range(files)], transactions={})


def strike(table: Table, positions: dict[str, Any]) -> Table:
    return table.commit(table.strike(positions), remove=positions, transactions={})


def path_of(table: Table) -> str:
    (file,) = table.files("path")
    return str(file["path"])


def live_rows(table: Table) -> list[int]:
    """Return the live values by the vectors that the table's data files name."""
    live: list[int] = []
    for file in table.files("path", "vector", "rows", "physical_rows"):
        uri = storage.join(table.url, file["path"])
        with storage.open_input(uri) as source:
            values = pq.read_table(source)["row"].to_numpy()
        kept = np.delete(values, deletion_vectors.read_struck(table.url, file))
        assert (len(kept), len(values)) == (file["rows"], file["physical_rows"])
        live += kept.tolist()
    return sorted(live)


def delta_rs(table: Table) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(
        table.url, table.version, storage_options=storage.delta_options(table.url)
    )


def rows_by_delta_rs(table: Table) -> list[int]:
    delta = delta_rs(table)
    found = QueryBuilder().register("t", delta).execute("select row from t").read_all()
    scanned = pa.table(delta.scan())
    assert sorted(pa.table(found)["row"].to_pylist()) == sorted(scanned["row"].to_pylist())
    return sorted(scanned["row"].to_pylist())


@given(st.lists(STEPS, max_size=12))
def test_every_version_has_the_rows_of_a_naive_table(
    new_place: NewPlace, steps: list[tuple[str, Any]]
) -> None:
    table = Table.create(str(new_place("t")), SCHEMA, LAYOUT)
    followed = Table.open(table.url)
    files: dict[str, set[int]] = {}  # live values by path
    versions: dict[int, list[int]] = {}
    first = 0
    bases: dict[str, int] = {}
    for index, (step, argument) in enumerate(steps):
        followed = followed.newest() if index % 3 == 0 else followed
        if step == "add":
            file = write(table, first)
            files[file.path], bases[file.path] = set(range(first, first + ROWS)), first
            first += ROWS
            table = table.commit([file], transactions={})
        elif step == "strike":
            paths = sorted(files)
            positions = {paths[i]: each for i, each in argument.items() if i < len(paths)}
            table = strike(table, positions)
            for path, struck in positions.items():
                base = bases[path]
                files[path] = {base + i for i in range(ROWS) if i not in struck}
        elif step == "remove":
            gone = sorted(files)[argument : argument + 1]
            table = table.commit([], remove=gone, transactions={})
            files = {path: rows for path, rows in files.items() if path not in gone}
        elif step == "overwrite":
            table, files = table.commit([], transactions={}, overwrite=(SCHEMA, LAYOUT)), {}
        elif argument == "tokenlake":
            table = table.checkpoint()
        else:
            delta_rs(table).create_checkpoint()
        versions[table.version] = sorted(row for rows in files.values() for row in rows)
    for version, rows in versions.items():
        assert live_rows(Table.open(table.url, version)) == rows
    for opened in (table, followed.newest(), table.checkpoint()):
        assert live_rows(opened) == versions.get(table.version, [])
    assert rows_by_delta_rs(table) == versions.get(table.version, [])


def protocol_of(table: Table) -> dict[str, Any]:
    delta = delta_rs(table)
    required = delta.protocol()
    return {
        "versions": (required.min_reader_version, required.min_writer_version),
        "reader": required.reader_features,
        "writer": sorted(required.writer_features or ()),
        "enabled": delta.metadata().configuration.get("delta.enableDeletionVectors"),
    }


def test_a_table_requires_the_feature_from_the_first_strike_on(tmp_path: Path) -> None:
    table = make(tmp_path)
    plain: dict[str, Any] = {"versions": (1, 2), "reader": None, "writer": [], "enabled": None}
    assert protocol_of(table) == plain
    table = strike(table, {path_of(table): []})
    assert protocol_of(table) == plain
    table = strike(table, {path_of(table): [1, 2]})
    struck = {
        "versions": (3, 7),
        "reader": ["deletionVectors"],
        "writer": ["appendOnly", "deletionVectors", "invariants"],
        "enabled": "true",
    }
    for opened in (table, table.checkpoint(), Table.open(table.url)):
        assert protocol_of(opened) == struck
    later = strike(table, {path_of(table): [3]})
    entry = (tmp_path / "_delta_log" / commit_file_name(later.version)).read_text()
    assert "metaData" not in entry
    assert '"protocol"' not in entry
    assert protocol_of(Table.open(table.url, 1)) == plain


def test_an_entry_removes_the_file_before_it_adds_it_with_its_vector(tmp_path: Path) -> None:
    table = make(tmp_path, files=2)
    first, second = (str(file["path"]) for file in table.files("path"))
    table = strike(table, {first: [4], second: [0, 9]})
    table = strike(table, {first: [4, 5], second: []})
    lines = (tmp_path / "_delta_log" / commit_file_name(3)).read_text().splitlines()
    kinds = [(kind, action) for line in lines for kind, action in json.loads(line).items()]
    files = [(kind, action) for kind, action in kinds if kind in ("add", "remove")]
    assert [kind for kind, _ in files] == ["remove", "remove", "add", "add"]
    removed, added = ({a["path"]: a for k, a in files if k == kind} for kind in ("remove", "add"))
    assert removed.keys() == added.keys() == {first, second}
    assert removed[first]["deletionVector"]["cardinality"] == 1
    assert removed[second]["deletionVector"]["cardinality"] == 2
    assert added[first]["deletionVector"]["cardinality"] == 2
    assert "deletionVector" not in added[second]
    statistics = [json.loads(added[path]["stats"]) for path in (first, second)]
    assert [each.get("tightBounds") for each in statistics] == [False, None]
    assert [each["numRecords"] for each in statistics] == [ROWS, ROWS]
    assert len(list((tmp_path / "_dv").iterdir())) == 2  # one for each commit


def test_the_list_of_files_names_vectors_as_the_log_does(tmp_path: Path) -> None:
    table = make(tmp_path)
    path = path_of(table)
    table = strike(table, {path: np.array([7, 3])})
    lines = (tmp_path / "_delta_log" / commit_file_name(2)).read_text().splitlines()
    (vector,) = (
        action["deletionVector"] for line in lines if (action := json.loads(line).get("add"))
    )
    for opened in (table, Table.open(table.url), table.checkpoint()):
        (file,) = opened.files("path", "vector", "rows", "physical_rows", "min.row")
        assert file == {
            "path": path,
            "vector": json.dumps(vector, separators=(",", ":")),
            "rows": ROWS - 2,
            "physical_rows": ROWS,
            "min.row": 0,
        }
        assert deletion_vectors.read_struck(table.url, file).tolist() == [3, 7]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]))


@given(
    st.fixed_dictionaries(
        {"storageType": st.sampled_from("iup"), "pathOrInlineDv": NAMES},
        optional={"offset": st.integers(0, 1 << 30)},
    ),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 40),
)
def test_descriptors_are_equal_strings_by_both_ways(
    start: dict[str, Any], size: int, cardinality: int
) -> None:
    descriptor = {**start, "sizeInBytes": size, "cardinality": cardinality}
    array = pa.array([None, descriptor], actions.VECTOR)
    assert actions.vector_strings(array).to_pylist() == [None, deletion_vectors.to_json(descriptor)]


# The rows 3, 4, 7, 11, 18 and 29, as the protocol's text encodes them, but in the portable format.
INLINE: dict[str, Any] = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 44,
    "cardinality": 6,
}


def put_vector(folder: Path, descriptor: dict[str, Any]) -> Table:
    """Give the only data file of a table a vector, as another program does."""

    def change(action: Actions) -> None:
        if "add" in action:
            action["add"]["deletionVector"] = descriptor

    make(folder, rows=30)
    edit_entry(str(folder), 1, change)
    return Table.open(str(folder))


def test_inline_vectors_are_read(tmp_path: Path) -> None:
    table = put_vector(tmp_path, INLINE)
    (file,) = table.files("path", "vector", "physical_rows")
    assert deletion_vectors.read_struck(table.url, file).tolist() == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize(
    "change",
    [
        {"pathOrInlineDv": "no"},
        {"pathOrInlineDv": INLINE["pathOrInlineDv"][:-5]},
        {"pathOrInlineDv": "~" * 60},
        {"storageType": "u"},
        {"storageType": "u", "pathOrInlineDv": "no"},
        {"storageType": "x"},
        {"cardinality": 7},
        {"sizeInBytes": 30},
        {"sizeInBytes": -1, "storageType": "u", "pathOrInlineDv": "0" * 20},
    ],
)
def test_a_descriptor_that_is_not_valid_is_reported(
    tmp_path: Path, change: dict[str, object]
) -> None:
    table = put_vector(tmp_path, {**INLINE, **change})
    with pytest.raises(TableError, match="the deletion vector of a data file is damaged: ."):
        live_rows(table)
    (commit,) = table.commits(after=0)
    assert commit.add[0].stored_paths[0] == commit.add[0].path


@pytest.mark.parametrize("kind", ["prefix", "root", "absolute"])
def test_vectors_of_other_writers_are_read_where_they_are(tmp_path: Path, kind: str) -> None:
    table = make(tmp_path / "own", rows=30)
    table = strike(table, {path_of(table): [1, 28]})
    (file,) = table.files("path", "vector")
    descriptor = json.loads(file["vector"])
    stored = tmp_path / "own" / str(deletion_vectors.path_of(file["vector"]))
    name = descriptor["pathOrInlineDv"][-20:]
    folder = tmp_path / "other"
    target = folder / stored.name
    if kind == "prefix":
        target, name = folder / "a b" / stored.name, f"a b{name}"
    elif kind == "absolute":
        target, name = tmp_path / "c d" / stored.name, f"file://{tmp_path}/c%20d/{stored.name}"
        descriptor["storageType"] = "p"
    target.parent.mkdir(parents=True)
    target.write_bytes(stored.read_bytes())
    other = put_vector(folder, {**descriptor, "pathOrInlineDv": name})
    assert live_rows(other) == [0, *range(2, 28), 29]


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def damage_swapped(path: Path) -> None:
    """Put the vector of another table in its place, which strikes more rows."""
    other = make(path.parent.parent.parent / "another")
    strike(other, {path_of(other): range(6)})
    (stored,) = (path.parent.parent.parent / "another" / "_dv").iterdir()
    path.write_bytes(stored.read_bytes())


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (damage_missing, r"deletion_vector_.*\.bin is missing"),
        (damage_flipped, "the checksum at byte 1 of .* is wrong"),
        (damage_cut, "is cut after 20 bytes"),
        (damage_swapped, "the checksum at byte 1 of .* is wrong"),
    ],
)
def test_a_damaged_vector_is_reported(
    tmp_path: Path, damage: Callable[[Path], None], match: str
) -> None:
    table = make(tmp_path / "t")
    table = strike(table, {path_of(table): [2, 4]})
    (stored,) = (tmp_path / "t" / "_dv").iterdir()
    assert deletion_vectors.find_problem(table.url, f"_dv/{stored.name}") is None
    damage(stored)
    (file,) = table.files("path", "vector")
    with pytest.raises(TableError, match=match) as caught:
        deletion_vectors.read_struck(table.url, file)
    assert caught.value.where == storage.join(table.url, file["path"])
    assert deletion_vectors.find_problem(table.url, f"_dv/{stored.name}") is not None


def test_a_vector_that_was_swapped_with_one_of_the_same_size_is_found(tmp_path: Path) -> None:
    table = make(tmp_path, files=2)
    paths = [str(file["path"]) for file in table.files("path")]
    for path in paths:
        table = strike(table, {path: [paths.index(path)]})
    first, second = (tmp_path / "_dv").iterdir()
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for stored in (first, second):
        problem = deletion_vectors.find_problem(table.url, f"_dv/{stored.name}")
        assert problem == "does not have the content that it was written with"


@pytest.mark.parametrize(
    ("positions", "match"), [([ROWS], "row 10 cannot be struck"), ([-1], "row -1 cannot be struck")]
)
def test_only_rows_of_a_file_are_struck(tmp_path: Path, positions: list[int], match: str) -> None:
    table = make(tmp_path)
    with pytest.raises(TableError, match=match):
        table.strike({path_of(table): positions})
    with pytest.raises(TableError, match="not live cannot be struck"):
        table.strike({"other.parquet": [1]})
    assert not (tmp_path / "_dv").exists()


def test_a_position_outside_the_file_is_reported(tmp_path: Path) -> None:
    table = put_vector(tmp_path, INLINE)
    (file,) = table.files("path", "vector")
    with pytest.raises(TableError, match="strikes row 29 of a data file with 20 rows"):
        deletion_vectors.read_struck(table.url, {**file, "physical_rows": 20})


def test_rows_of_a_table_that_only_grows_are_not_struck(tmp_path: Path) -> None:
    make(tmp_path)

    def change(action: Actions) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.appendOnly"] = "true"

    edit_entry(str(tmp_path), 0, change)
    table = Table.open(str(tmp_path))
    with pytest.raises(TableError, match="appendOnly"):
        strike(table, {path_of(table): [1]})


def test_a_log_without_the_entry_of_the_first_strike_states_the_feature_again(
    place: UPath,
) -> None:
    table = make(place)
    table = strike(table, {path_of(table): [1]})
    table = strike(table, {path_of(table): [1, 2]})
    entry = UPath(place) / "_delta_log" / commit_file_name(2)
    entry.unlink()
    damage = set_aside(find_damage(table.url))
    remains = open_remains(damage, SCHEMA, LAYOUT)
    restored = remains.commit([], transactions={})
    assert live_rows(Table.open(table.url)) == live_rows(restored) == [0, *range(3, ROWS)]
    assert protocol_of(restored)["versions"] == (3, 7)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_file_that_was_removed_stays_removed_without_the_entry_of_its_last_strike(
    place: UPath, has_checkpoint: bool
) -> None:
    table = make(place, files=2)
    path = next(str(file["path"]) for file in table.files("path", "min.row", by=("min.row",)))
    table = strike(table, {path: [1]})
    table = table.checkpoint() if has_checkpoint else table
    table = strike(table, {path: [1, 2]})
    table = table.commit([], remove=[path], transactions={})
    (UPath(place) / "_delta_log" / commit_file_name(3)).unlink()
    damage = set_aside(find_damage(table.url))
    restored = open_remains(damage, SCHEMA, LAYOUT).commit([], transactions={})
    assert live_rows(Table.open(table.url)) == live_rows(restored) == [*range(ROWS, 2 * ROWS)]


@pytest.mark.local_only  # delta-rs changes the table
def test_changes_of_delta_rs_to_a_struck_table_are_read(tmp_path: Path) -> None:
    table = make(tmp_path, files=3)
    first, second, _ = (
        str(file["path"]) for file in table.files("path", "min.row", by=("min.row",))
    )
    table = strike(table, {first: [1], second: [2, 3]})
    deltalake.DeltaTable(table.url).delete("row = 5")
    table = Table.open(table.url)
    table = strike(table, {str(file["path"]): [0] for file in table.files("path")})
    rows = live_rows(table)
    assert rows == rows_by_delta_rs(table)
    deltalake.DeltaTable(table.url).optimize.compact()
    deltalake.DeltaTable(table.url).create_checkpoint()
    table = Table.open(table.url)
    assert live_rows(table) == rows
    assert table.data_files()["vector"].null_count == 1
