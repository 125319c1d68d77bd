"""The Annotate stage: columns of an outside table, joined by id, URL, address or content hash."""

from math import isnan
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from etl.stages.annotation_index import AnnotationIndex, build_index, hash_keys
from etl.stages.apply import apply
from etl.stages.filters.annotate import Annotate
from tests.helpers.raw_rows import raw

NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-9, 9).map(float))
NAMES = st.text(max_size=3)


def annotate(table: Path, **settings: Any) -> Annotate:
    return Annotate(**{"table": str(table), "key": "url", "values": ["score"], **settings})


def write(folder: Path, name: str = "scores.parquet", **columns: Any) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def measured(stage: Annotate, column: str = "annotate_score", **columns: Any) -> list[Any]:
    size = len(next(iter(columns.values())))
    documents = raw(["a text"] * size, **columns)
    return stage.measure(documents)[column].to_pylist()


@given(
    rows=st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30),
    keys=st.lists(st.one_of(st.none(), NAMES), max_size=30),
    repeats=st.integers(1, 3),
)
def test_the_index_finds_what_a_dictionary_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, keys: Any, repeats: int
) -> None:
    folder = tmp_path_factory.mktemp("index")

    def part(some: list[str]) -> tuple[Any, Any]:
        values = pa.array([rows[key] for key in some], pa.list_(pa.float64(), 2))
        numbers = values.values.fill_null(float("nan")).to_numpy().reshape(-1, 2)
        return hash_keys(pa.array(some).cast(pa.binary())), numbers

    parts = [part([key]) for key in rows] * repeats
    build_index(parts, num_values=2, folder=folder, table="")
    found = AnnotationIndex(folder, 2).find(pa.array(keys, pa.string()).cast(pa.binary()))
    shown = [tuple(None if isnan(value) else value for value in row) for row in found.tolist()]
    assert shown == [rows.get(key, (None, None)) for key in keys]


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        ("id", {"id": ["a", "b", None]}),
        ("url", {"url": ["http://a", "http://b", None]}),
        ("address", {"source": ["file:///a"] * 3, "row": [0, 1, 7]}),
    ],
)
def test_each_key_joins_the_documents_that_have_it(tmp_path: Path, key: str, columns: Any) -> None:
    path = write(tmp_path, score=[1.5, 2.5, 3.5], **columns)
    given_columns = {} if key == "address" else {key: [*columns[key][:2], "http://c", None]}
    stage = annotate(path, key=key)
    assert measured(stage, text=["a"] * 4, **given_columns) == [1.5, 2.5, None, None]


def test_a_content_hash_is_that_of_the_final_text(tmp_path: Path) -> None:
    texts = ["one  text", "another text", "\u00a0one text"]
    hashes = apply(raw(texts), [])["content_hash"]
    for column in (hashes, pa.array([value.hex() for value in hashes.to_pylist()])):
        path = write(tmp_path, f"{column.type}.parquet", content_hash=column[:2], score=[1, 2])
        stage = annotate(path, key="content_hash")
        documents = apply(raw(texts), [stage])
        assert documents["annotate_score"].to_pylist() == [1.0, 2.0, 1.0]
        assert documents["content_hash"].equals(hashes)


def test_numbers_booleans_and_labels_become_signals(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        page=["a", "b", "c", "d"],
        score=pa.array([1, -2, None, 3], pa.int8()),
        is_good=[True, False, None, True],
        topic=pa.array(["Law", "Art & Craft", None, "Law"]).dictionary_encode(),
    )
    label = {"column": "topic", "equals": "Art & Craft"}
    stage = annotate(
        path, key_column="page", values={"n": "score", "good": "is_good", "art": label}
    )
    documents = apply(raw(["text"] * 5, url=["d", "c", "b", "a", "z"]), [stage])
    shown = {name: documents[name].to_pylist() for name in stage.columns()}
    assert shown == {
        "annotate_n": [3, None, -2, 1, None],
        "annotate_good": [1, None, 0, 1, None],
        "annotate_art": [0, None, 1, 0, None],
    }


def test_missing_documents_are_kept_or_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, url=["a", "b"], score=[1.0, None], other=[None, None])
    documents = raw(["text"] * 3, url=["a", "b", "c"])
    kept = apply(documents, [annotate(path)])
    assert kept["reason"].null_count == 3
    rejected = apply(documents, [annotate(path, missing="reject")])
    assert rejected["reason"].to_pylist() == [None, *["annotate.score_missing"] * 2]


def test_a_delta_table_is_read_at_its_version(tmp_path: Path) -> None:
    path = tmp_path / "scores"
    for score in (1.0, 2.0):
        rows = pa.table({"url": ["a", "b"], "score": [score, score], "part": ["x", "x"]})
        deltalake.write_deltalake(str(path), rows, mode="overwrite", partition_by=["part"])
    first, second = (annotate(path, version=version) for version in (0, 1))
    assert measured(first, url=["a", "c"]) == [1.0, None]
    assert measured(second, url=["a", "c"]) == [2.0, None]
    assert first.identity()["table"] != second.identity()["table"]
    with pytest.raises(RecipeError, match="write `version: 1`, which is the newest"):
        annotate(path).check()
    with pytest.raises(RecipeError, match="version 7"):
        annotate(path, version=7).check()
    with pytest.raises(RecipeError, match="no column 'part'"):
        annotate(path, version=1, values=["part"]).check()


def test_the_identity_is_the_content_of_the_files(tmp_path: Path) -> None:
    columns = {"url": ["a"], "score": [1.0]}
    one = annotate(write(tmp_path, "one/a.parquet", **columns))
    other = annotate(write(tmp_path, "other/b.parquet", **columns).parent)
    assert one.identity() == other.identity()
    write(tmp_path, "one/a.parquet", url=["a"], score=[2.0])
    assert one.identity() != other.identity()
    assert measured(one, url=["a"]) == [2.0]


def test_a_key_with_two_values_is_reported_with_both(tmp_path: Path) -> None:
    write(tmp_path, "t/a.parquet", url=["x", "y", "y"], score=[1.0, 2.0, 2.0])
    path = write(tmp_path, "t/b.parquet", url=["x", "y"], score=[1.0, 2.5])
    with pytest.raises(RecipeError) as error:
        annotate(path.parent).check()
    shown = str(error.value)
    assert "a.parquet: url 'y' has two rows with other values: score is 2, and 2.5 in file" in shown
    assert "b.parquet" in shown


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ({"score": ["a"]}, {}, "score: {column: score, equals: VALUE}"),
        ({"score": [[1]]}, {}, "a signal is a number or a Boolean"),
        ({"score": [2**53 + 1]}, {}, "not exact as float64"),
        ({"scores": [1]}, {}, "did you mean 'scores'"),
        ({"score": [1]}, {"key_column": "link"}, "the table has no column 'link'"),
        ({"score": [1]}, {"key_column": "flag"}, "type bool, which is not that of 'url'"),
        ({"score": [1]}, {"key": "content_hash", "key_column": "url"}, "not hexadecimal"),
        ({"score": [1], "url": [None]}, {}, "no rows with a key"),
        ({"score": [1]}, {"values": {"a": {"column": "flag", "equals": "x"}}}, "needs strings"),
        ({"score": [1]}, {"version": 3}, "no Delta table at this URL"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    tmp_path: Path, columns: Any, settings: Any, message: str
) -> None:
    path = write(tmp_path, **{"url": ["x"], "flag": [True], **columns})
    with pytest.raises(RecipeError) as error:
        annotate(path, **settings).check()
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("url,score\n")
    with pytest.raises(RecipeError, match="cannot be read as Parquet"):
        annotate(tmp_path / "scores.csv").check()
    with pytest.raises(RecipeError, match="no such file"):
        annotate(tmp_path / "none.parquet").check()


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (["a", "a"], "two stages compute the column 'annotate_score'"),
        ([{"where": "annotate_score > 1"}, "a"], "which no stage before it provides"),
        (["a", {"where": "annotate_sore > 1"}], "reads 'annotate_sore', which no stage before"),
        (["hash", "unicode"], "annotate reads the content hash.* put it after unicode"),
        ([{"annotate": {"table": "x", "key": "url", "values": ["A b"]}}], "cannot name a signal"),
        ([{"annotate": {"table": "x", "key": "url", "values": ["a", "a"]}}], "named twice"),
        (
            [{"annotate": {"table": "x", "key": "address", "key_column": "a", "values": ["a"]}}],
            "remove `key_column`",
        ),
    ],
)
def test_stages_that_do_not_fit_are_refused(stages: Any, message: str) -> None:
    entry = {"table": "x", "key": "url", "values": ["score"]}
    known = {"a": {"annotate": entry}, "hash": {"annotate": {**entry, "key": "content_hash"}}}
    stages = [known.get(stage, stage) if isinstance(stage, str) else stage for stage in stages]
    with pytest.raises(RecipeError, match=message):
        Recipe(source="x", stages=stages)


def test_conditions_and_keep_read_annotations_after_a_transform() -> None:
    entry = {"table": "x", "key": "url", "values": ["score"]}
    keep = {"dedup_minhash": {"keep": {"highest": "annotate_score"}}}
    stages = [{"annotate": entry}, "unicode", {"where": "annotate_score > 1"}, keep]
    assert [stage.kind for stage in Recipe(source="x", stages=stages).stages][-1] == "dedup_minhash"
