"""Evaluation sets in all formats, their matches, and the reasons and errors."""

import gzip
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.errors import RecipeError
from etl.recipe.recipe import Recipe
from etl.stages import Decontaminate, Where
from etl.stages.apply import apply
from tests.helpers.odd_files import WHY, make_odd_files
from tests.helpers.raw_rows import raw

ALPHABET = [chr(letter) * 2 for letter in range(ord("a"), ord("z") + 1)]  # 26 words
LONG = " ".join(ALPHABET[:20])
SHORT = " ".join(ALPHABET[10:20])


@pytest.fixture
def sets(tmp_path):
    """The same two items in each format."""
    rows = [{"text": LONG, "question": SHORT}, {"text": SHORT, "question": LONG}]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "a.csv").write_text(f"text,question\n{LONG},{SHORT}\n{SHORT},{LONG}\n")
    (tmp_path / "a.txt").write_text(f"{LONG}\r\n\n  {SHORT}\n")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    return tmp_path


def hits(stage: Decontaminate, *texts: str | None) -> list[float | None]:
    (column,) = stage.columns()
    return stage.measure(pa.table({"text": pa.array(texts, pa.string())}))[column].to_pylist()


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "csv", "txt", "parquet"])
def test_all_formats_give_the_same_counts(sets, suffix):
    stage = Decontaminate(sets={"quiz": str(sets / f"a.{suffix}")})
    stage.check()
    assert hits(stage, LONG, SHORT, None, "", f"x {LONG} x") == [9, 1, None, 0, 9]


def test_the_column_can_differ_between_sets(sets):
    path = str(sets / "a.jsonl")
    assert hits(Decontaminate(sets={"q": path}, column="question"), LONG) == [9]
    both = {"one": path, "two": path}
    stage = Decontaminate(sets=both, column={"two": "question"})
    measured = stage.measure(pa.table({"text": [LONG]}))
    assert measured.to_pylist() == [{"decontaminate_one": 9, "decontaminate_two": 9}]
    wrong = {"two": str(sets / "a.parquet")}
    with pytest.raises(RecipeError, match="has no column 'questions'\n.*'question'"):
        Decontaminate(sets=wrong, column={"two": "questions"}).check()
    message = "column has a key 'three', which is not one of the sets: one, two"
    with pytest.raises(RecipeError, match=message):
        Decontaminate(sets=both, column={"three": "question"})


@pytest.mark.parametrize(("words", "count"), [(12, 0), (13, 1), (14, 2)])
def test_an_ngram_has_as_many_words_as_set(tmp_path, words, count):
    (tmp_path / "a.txt").write_text(LONG)
    stage = Decontaminate(sets={"quiz": str(tmp_path / "a.txt")})
    assert hits(stage, "x " + " ".join(ALPHABET[:words]) + " x") == [count]
    assert hits(stage.model_copy(update={"ngram": words}), " ".join(ALPHABET[:words])) == [1]
    assert hits(stage.model_copy(update={"ngram": words}), " ".join(ALPHABET[: words - 1])) == [0]


@pytest.mark.parametrize(("words", "count"), [(7, 0), (8, 1), (12, 1), (13, 1)])
def test_short_items_match_as_a_whole(tmp_path, caplog, words, count):
    item = " ".join(ALPHABET[:words])
    (tmp_path / "a.txt").write_text(f"{item}\n{' '.join(ALPHABET[-9:])}\n")
    stage = Decontaminate(sets={"quiz": str(tmp_path / "a.txt")})
    with caplog.at_level(logging.WARNING):
        assert hits(stage, f"x {item} x", f"x {item.rpartition(' ')[0]} x") == [count, 0]
    warning = "quiz: 1 of 2 items have fewer than 8 words and are ignored"
    assert (warning in caplog.text) == (words < 8)


def test_reasons_name_the_set_and_the_ngram(sets):
    stage = Decontaminate(sets={"z_quiz": str(sets / "a.txt"), "a_quiz": str(sets / "a.csv")})
    texts = [f"Of course: {LONG.upper().replace(' ', ', ')}.", "aa bb", None, f"“{SHORT}”"]
    result = apply(raw(texts), [stage])
    assert result["reason"].to_pylist() == [
        f"decontaminate.a_quiz: {' '.join(ALPHABET[:13])}",
        None,
        "source.null_text",
        f"decontaminate.a_quiz: {SHORT}",
    ]
    assert result["decontaminate_z_quiz"].to_pylist() == [9, 0, None, 1]
    columns = result.select([*stage.columns()])  # without the text, as when read from the table
    assert stage.reasons(columns).to_pylist()[0] == "decontaminate.a_quiz"


def test_a_long_ngram_is_truncated_in_the_reason(tmp_path):
    (tmp_path / "a.txt").write_text(" ".join("x" * 50 for _ in range(8)))
    stage = Decontaminate(sets={"quiz": str(tmp_path / "a.txt")})
    (reason,) = apply(raw([" ".join("X" * 50 for _ in range(8))]), [stage])["reason"].to_pylist()
    assert len(reason) == len("decontaminate.quiz: ") + 200


@pytest.mark.parametrize(("min_hits", "is_rejected"), [(8, True), (9, True), (10, False)])
def test_min_hits_is_inclusive(sets, min_hits, is_rejected):
    stage = Decontaminate(sets={"quiz": str(sets / "a.txt")}, min_hits=min_hits)
    result = apply(raw([LONG]), [Where(keep="num_words > 100"), stage])
    assert result["decontaminate_quiz"].to_pylist() == [9]  # rejected documents are counted too
    assert result["reason"].to_pylist() == ["where.condition"]
    (reason,) = apply(raw([LONG]), [stage])["reason"].to_pylist()
    assert (reason is not None) == is_rejected


def test_identity_depends_on_content_and_not_on_paths(sets, tmp_path):
    one = Decontaminate(sets={"a": str(sets / "a.txt"), "b": str(sets / "a.csv")})
    (tmp_path / "other.txt").write_bytes((sets / "a.txt").read_bytes())
    other = Decontaminate(sets={"b": str(sets / "a.csv"), "a": str(tmp_path / "other.txt")})
    assert one.identity() == other.identity()
    before = one.identity()
    (sets / "a.txt").write_text(SHORT)
    assert one.identity() != before
    assert hits(Decontaminate(sets={"a": str(sets / "a.txt")}), LONG) == [1]


def test_paths_of_sets_are_relative_to_the_recipe(sets):
    stages = [{"decontaminate": {"sets": {"quiz": "a.txt"}, "min_hits": 2}}]
    (sets / "recipe.yaml").write_text(
        json.dumps({"name": "x", "source": {"path": "a.jsonl"}, "stages": stages})
    )
    (stage,) = Recipe.load(sets / "recipe.yaml").stages
    assert stage == Decontaminate(sets={"quiz": str(sets / "a.txt")}, min_hits=2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "\n\n", "a.txt: the set quiz has no items"),
        ("a.txt", "a few words", "a.txt: no item of the set quiz has at least 8 words"),
        ("a.jsonl", '{"text": ""}\n{"text": \n', "a.jsonl: row 0 has no usable 'text' .source"),
        ("a.jsonl", '{"txt": "a"}\n', "a.jsonl: row 0 has no usable 'text' .source.no_text"),
        ("a.doc", "a", "a.doc"),
    ],
)
def test_an_unusable_set_is_an_error(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(RecipeError, match=message):
        hits(Decontaminate(sets={"quiz": str(tmp_path / name)}), LONG)


def test_items_without_a_text_are_left_out_and_counted(tmp_path):
    items = [{"text": LONG}, {"text": ""}, {"text": None}, {"other": 1}, {"text": SHORT}]
    lines = [*map(json.dumps, items), "no JSON", ""]
    (tmp_path / "a.jsonl").write_text("\n".join([lines[1], *lines]))
    (tmp_path / "b.jsonl").write_text("\n".join([lines[0], lines[4]]))
    pq.write_table(pa.table({"text": [None, LONG, ""]}), tmp_path / "c.parquet")
    for name, count in (("a.jsonl", 5), ("b.jsonl", 0), ("c.parquet", 2)):
        stage = Decontaminate(sets={"quiz": str(tmp_path / name)})
        stage.check()
        assert hits(stage, LONG, "an other text") in ([8, 0], [9, 0])
        skipped = stage.skipped_items()
        assert sum(skipped.values()) == count
        assert all(reason.startswith("decontaminate.quiz: source.") for reason in skipped)


def test_files_of_a_set_that_cannot_be_read_are_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": LONG}))
    before = Decontaminate(sets={"quiz": str(tmp_path)})
    identity = before.identity()
    make_odd_files(tmp_path)
    for path in (tmp_path, tmp_path / "**/*.jsonl"):
        stage = Decontaminate(sets={"quiz": str(path)})
        stage.check()
        assert stage.identity() == identity
        assert hits(stage, LONG) == hits(before, LONG) != [0]
        assert len(stage.unreadable_files()) == len(WHY)
        assert [len(files.files) for files in stage.files().values()] == [1]
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(RecipeError, match="is not|leads to no file"):
        before.check()


def test_invalid_settings_are_rejected(sets):
    path = str(sets / "a.txt")
    with pytest.raises(RecipeError, match="none.txt: no such file"):
        Decontaminate(sets={"quiz": str(sets / "none.txt")}).check()
    for wrong in ({}, {"Quiz": path}, {"a b": path}, path):
        with pytest.raises(RecipeError):
            Decontaminate(sets=wrong)
    with pytest.raises(RecipeError, match=r"min_words \(8\) is greater than ngram \(5\)"):
        Decontaminate(sets={"quiz": path}, ngram=5)
    assert Decontaminate(sets={"quiz": path}, ngram=5, min_words=5).ngram == 5


def test_real_documents(data, tmp_path):
    texts = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"])["text"][:500]
    pq.write_table(pa.table({"text": texts}), tmp_path / "docs.parquet")
    stage = Decontaminate(sets={"docs": str(tmp_path / "docs.parquet")})
    counts = stage.measure(pa.table({"text": texts}))["decontaminate_docs"].to_pylist()
    assert sum(count > 0 for count in counts) >= 490  # all but the shortest
    other = pq.read_table(data / "bench" / "dracor-de-00000.parquet", columns=["text"])["text"][:50]
    assert max(stage.measure(pa.table({"text": other}))["decontaminate_docs"].to_pylist()) == 0
