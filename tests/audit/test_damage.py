"""`etl verify` finds damage by disks, users and other programs, and names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake import releases
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.lakes import make_sound_lake, with_copied_lake
from tests.helpers.paths import NewPlace, at, opened, remove


@pytest.fixture(scope="module")
def made(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a shared lake, read-only; tests that damage the lake use the copy ``recipe``."""
    return make_sound_lake(new_place("made"), client, tiny_tokenizer)


@pytest.fixture
def recipe(made: Recipe, place: UPath) -> Recipe:
    return with_copied_lake(made, place)


def data_files(recipe: Recipe) -> list[UPath]:
    """Return the live data files of all tables, by table and path."""
    return [
        at(recipe.table_url(kind)) / path
        for kind in recipe.steps
        for path in Table.open(recipe.table_url(kind)).data_files()["path"].to_pylist()
    ]


def entry(recipe: Recipe, kind: str, version: int) -> UPath:
    """Return the path of a log entry."""
    return at(recipe.lake) / kind / "_delta_log" / f"{version:020}.json"


@pytest.mark.parametrize("kind", ["documents", "tokens"])
def test_swapped_files_are_found(recipe: Recipe, kind: str) -> None:
    first, second = [f for f in data_files(recipe) if kind in f.parts][:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for quick in (True, False):
        names = {Path(str(p.file)).name for p in verify(recipe.lake, quick=quick)}
        assert names == {first.name, second.name}


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.slow
def test_a_flipped_bit_that_changes_a_value_is_found(made: Recipe, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(data_files(made)))
    content = path.read_bytes()
    offset = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[offset] ^= 1 << data.draw(st.integers(0, 7))
    rows = opened(path).read()
    try:
        path.write_bytes(flipped)
        problems = verify(made.lake)
        assert all(problem.file is not None and path.name in problem.file for problem in problems)
        assert problems or _same(path, rows)
    finally:
        path.write_bytes(content)


def _same(path: UPath, rows: pa.Table) -> bool:
    """Whether a file has exactly these rows."""
    return bool(opened(path).read().equals(rows))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: text[:50], "is not valid JSON"),
        (lambda _: "", "has no actions"),
        (lambda _: "[1]\n", "is not a list of actions"),
        (lambda text: text.replace("tokens", "nekots", 1), "does not match its checksum"),
    ],
)
def test_a_damaged_log_entry_is_found(
    recipe: Recipe, change: Callable[[str], str], what: str
) -> None:
    path = entry(recipe, "tokens", 1)
    path.write_text(change(path.read_text()))
    (problem,) = verify(recipe.lake, quick=True)
    assert str(problem) == f"tokens: the log entry of version 1 {what}"


@pytest.mark.parametrize("version", [0, 1])
def test_a_missing_log_entry_is_found(recipe: Recipe, version: int) -> None:
    entry(recipe, "documents", version).unlink()
    (problem,) = verify(recipe.lake)
    expected = f"1 log entries are missing, the first of version {version}"
    assert (problem.table, problem.what) == ("documents", expected)


def test_a_missing_end_of_a_log_is_found(recipe: Recipe) -> None:
    newest = Table.open(recipe.table_url("documents")).version
    entry(recipe, "documents", newest).unlink()
    (problem,) = verify(recipe.lake)
    expected = f"1 log entries are missing, the first of version {newest}"
    assert (problem.table, problem.what) == ("documents", expected)


def test_a_release_reveals_the_missing_end_of_the_last_log(recipe: Recipe) -> None:
    releases.create_release(recipe.lake, "all")
    newest = Table.open(recipe.table_url("tokens")).version
    entry(recipe, "tokens", newest).unlink()
    what = f"1 log entries are missing, the first of version {newest}"
    assert what in [p.what for p in verify(recipe.lake)]


@pytest.mark.parametrize("name", ["documents", "duplicates", "tokens"])
def test_a_missing_table_is_found(recipe: Recipe, name: str) -> None:
    remove(at(recipe.table_url(name)))
    (problem,) = verify(recipe.lake)
    assert problem.table == name


def test_damaged_and_missing_checkpoints_are_found(recipe: Recipe) -> None:
    Table.open(recipe.table_url("documents")).checkpoint()
    assert verify(recipe.lake) == []
    (checkpoint,) = (at(recipe.lake) / "documents" / "_delta_log").glob("*.checkpoint.parquet")
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:-9])
    problem, pointer = verify(recipe.lake)
    assert "cannot be read" in problem.what
    assert pointer.what.startswith("_last_checkpoint names the checkpoint of version")
    checkpoint.unlink()
    (problem,) = verify(recipe.lake)
    assert problem.what.endswith("which is missing")
    checkpoint.with_name("_last_checkpoint").write_text("{")
    (problem,) = verify(recipe.lake)
    assert "_last_checkpoint is damaged" in problem.what
    checkpoint.with_name("_last_checkpoint").unlink()
    assert verify(recipe.lake) == [], "the log is complete without checkpoints"


def test_a_checkpoint_of_another_table_is_found(recipe: Recipe) -> None:
    tables = [Table.open(recipe.table_url(kind)) for kind in ("documents", "duplicates")]
    ours, theirs = (entry(recipe, table.url.rsplit("/", 1)[-1], 0).parent for table in tables)
    for table in tables:
        table.checkpoint()
    (name,) = (path.name for path in ours.glob("*.checkpoint.parquet"))
    (other,) = theirs.glob("*.checkpoint.parquet")
    (ours / name).write_bytes(other.read_bytes())
    problems = [p.what for p in verify(recipe.lake, quick=True) if p.table == "documents"]
    assert f"{name} is that of another table" in problems
    for command in ("report", "history"):
        result = etl(
            command, recipe.table_url("documents") if command == "history" else recipe.lake
        )
        assert result.exit_code == 1
        assert "a checkpoint of another table, 'duplicates'" in result.stderr


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.slow
def test_a_flipped_bit_in_a_checkpoint_is_found_or_has_no_effect(
    made: Recipe, data: st.DataObject
) -> None:
    table = Table.open(made.table_url("documents"))
    before = table.data_files()
    folder = entry(made, "documents", 0).parent
    try:
        table.checkpoint()
        (path,) = folder.glob("*.checkpoint.parquet")
        content = bytearray(path.read_bytes())
        offset = data.draw(st.integers(0, len(content) - 1))
        content[offset] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(bytes(content))
        problems = [p for p in verify(made.lake, quick=True) if p.table == "documents"]
        assert problems or Table.open(table.url).data_files().equals(before)
    finally:
        for path in [*folder.glob("*.checkpoint.parquet"), *folder.glob("_last_checkpoint")]:
            path.unlink()


def _commit_action(recipe: Recipe, kind: str, action: dict[str, Any]) -> None:
    """Commit one action as another program would."""
    newest = Table.open(recipe.table_url(kind)).version
    entry(recipe, kind, newest + 1).write_text(json.dumps(action) + "\n")


def test_unsupported_table_features_are_refused(recipe: Recipe) -> None:
    features = {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    _commit_action(recipe, "documents", {"protocol": protocol})
    with pytest.raises(
        TableError, match=r"unsupported Delta features \(typeWidening\)(.|\n)*rewrite the table"
    ):
        Table.open(recipe.table_url("documents"))
    (problem,) = verify(recipe.lake)
    assert "typeWidening" in problem.what
    first = json.loads(entry(recipe, "tokens", 0).read_text().splitlines()[1])
    metadata = (
        first.get("metaData")
        or json.loads(
            next(x for x in entry(recipe, "tokens", 0).read_text().splitlines() if "metaData" in x)
        )["metaData"]
    )
    metadata["configuration"]["delta.columnMapping.mode"] = "name"
    _commit_action(recipe, "tokens", {"metaData": metadata})
    with pytest.raises(TableError):
        Table.open(recipe.table_url("tokens"))
