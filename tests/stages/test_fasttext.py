"""Classify with a model of a few hundred bytes, written here, and with a published model."""

import math
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.errors import RecipeError
from etl.job.plan import make_plan
from etl.recipe.recipe import Recipe
from etl.stages import FastText
from etl.stages.apply import apply
from etl.text import language_id
from tests.helpers.fasttext_models import Variant, write_variant
from tests.helpers.raw_rows import raw

WORDS = {"good": (1.0, 0.0), "bad": (0.0, 1.0), "</s>": (0.0, 0.0)}  # word -> its vector
LABELS = {"__label__hq": (2.0, 0.0), "__label__low quality": (0.0, 2.0)}  # label -> its weights


def write_model(path: Path, labels=tuple(LABELS), *, supervised: bool = True) -> str:
    """Write a fastText model (version 12): softmax over the mean of the word vectors."""
    dim, words = 2, list(WORDS)
    out = struct.pack("<ii", 793712314, 12)
    # The settings in file order, from the dimension to the sampling threshold; the loss is softmax.
    model = 3 if supervised else 2
    out += struct.pack("<12id", dim, 5, 1, 1, 5, 1, 3, model, 0, 0, 0, 100, 1e-4)
    out += struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 100, -1)
    for kind, names in ((0, words), (1, labels)):
        for name in names:
            out += name.encode() + b"\0" + struct.pack("<qb", 10, kind)
    for vectors in (
        [WORDS[word] for word in words],
        [LABELS[label] for label in LABELS][: len(labels)],
    ):
        out += struct.pack("<?qq", False, len(vectors), dim)
        out += b"".join(struct.pack("<2f", *vector) for vector in vectors)
    path.write_bytes(out)
    return str(path)


def expected(text: str, label: str = "__label__hq") -> float:
    """Compute the softmax with a naive implementation."""
    words = [*(word for word in text.split(" ") if word in WORDS), "</s>"]
    mean = [sum(WORDS[word][k] for word in words) / len(words) for k in range(2)]
    powers = {
        name: math.exp(sum(weight * x for weight, x in zip(weights, mean, strict=True)))
        for name, weights in LABELS.items()
    }
    return powers[label] / sum(powers.values())


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "tiny.bin")


def scores(stage: FastText, *texts: str | None) -> list[float | None]:
    (column,) = stage.columns()
    return stage.measure(pa.table({"text": pa.array(texts, pa.string())}))[column].to_pylist()


def test_the_golden_model_is_the_one_written_here(model):
    golden = Path(__file__).parent / "golden/files/classifier.bin"
    assert golden.read_bytes() == Path(model).read_bytes()


def test_probabilities_are_those_of_the_formula(model):
    texts = ["good", "bad", "good bad bad", "unknown", "", "__label__hq bad"]
    values = scores(FastText(model=model, label="hq"), *texts, None)
    assert values[-1] is None
    assert values[:-1] == [pytest.approx(expected(text), abs=2e-5) for text in texts]
    other = scores(FastText(model=model, label="__label__low quality"), "good")
    assert other == [pytest.approx(1 - expected("good"), abs=2e-5)]


@pytest.mark.parametrize(
    "line_break", ["\n", "\r\n", "\n\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
)
def test_lines_are_joined_with_spaces(model, line_break):
    texts = [f"bad{line_break}good{line_break}bad", f"{line_break}\xa0\tbad good bad \u3000"]
    assert (
        scores(FastText(model=model, label="hq"), *texts)
        == [pytest.approx(expected("bad good bad"), abs=2e-5)] * 2
    )


@pytest.mark.parametrize(
    ("chars", "text"), [(4, "good"), (8, "good bad"), (7, "good ba"), (None, "good bad bad")]
)
def test_only_the_first_max_chars_are_read(model, chars, text):
    values = scores(FastText(model=model, label="hq", max_chars=chars), "good bad bad")
    assert values == [pytest.approx(expected(text), abs=2e-5)]


def test_columns_and_rules_are_named_after_the_label_or_name():
    stage = FastText(model="m", label="hq", min_score=0.5, max_score=0.9)
    assert stage.columns() == {"fasttext_hq": "probability"}
    assert list(stage.rules()) == ["hq_low", "hq_high"]
    assert [*FastText(model="m", label="__label__Low Quality").columns()] == [
        "fasttext_low_quality"
    ]
    assert [*FastText(model="m", label="好", name="good").columns()] == ["fasttext_good"]
    with pytest.raises(RecipeError, match="the label '好' cannot be a column name: set `name`"):
        FastText(model="m", label="好")
    with pytest.raises(RecipeError):
        FastText(model="m", label="hq", name="A b")


def test_several_labels_are_scored_at_once(model):
    stage = FastText(model=model, label=["hq", "low quality"], min_score=0.3)
    assert [*stage.columns()] == ["fasttext_hq", "fasttext_low_quality"]
    assert [*stage.rules()] == ["hq_low", "hq_high", "low_quality_low", "low_quality_high"]
    table = pa.table({"text": ["good bad", "good", "bad", None]})
    measured = stage.measure(table)
    for label, name in (("hq", "hq"), ("low quality", "low_quality")):
        alone = FastText(model=model, label=label).measure(table)[f"fasttext_{name}"]
        assert measured[f"fasttext_{name}"].equals(alone)
    assert stage.reasons(measured).to_pylist() == [
        None,
        "fasttext.low_quality_low",
        "fasttext.hq_low",
        None,
    ]
    named = FastText(model=model, label=["hq", "low quality"], name="web")
    assert [*named.columns()] == ["fasttext_web_hq", "fasttext_web_low_quality"]
    with pytest.raises(RecipeError, match="two of the labels give the same column name: a_b"):
        FastText(model=model, label=["a b", "a_b"])
    with pytest.raises(RecipeError, match="'好' cannot be a column name: use a stage for it"):
        FastText(model=model, label=["hq", "好"])
    with pytest.raises(RecipeError):
        FastText(model=model, label=[])
    with pytest.raises(RecipeError, match="no label 'spam'"):
        FastText(model=model, label=["hq", "spam"]).check()


def test_a_text_of_which_the_model_knows_nothing_has_no_score(tmp_path):
    variant = Variant(words=("the",), maxn=0)
    path = write_variant(tmp_path / "model.bin", variant)
    stage = FastText(model=str(path), label="de", min_score=1)
    assert scores(stage, "the", "unknown", "")[1:] == [None, None]
    result = apply(raw(["unknown"]), [stage])
    assert result["verdict"].to_pylist() == ["kept"]


def test_scores_at_the_limits_are_kept():
    table = pa.table({"fasttext_hq": pa.array([None, 0.49, 0.5, 0.9, 0.91])})
    stage = FastText(model="m", label="hq", min_score=0.5, max_score=0.9)
    assert stage.reasons(table).to_pylist() == [
        None,
        "fasttext.hq_low",
        None,
        None,
        "fasttext.hq_high",
    ]
    none = FastText(model="m", label="hq")
    assert none.reasons(table).to_pylist() == [None] * 5
    zero = FastText(model="m", label="hq", max_score=0.0)
    assert zero.reasons(table).to_pylist() == [None, *["fasttext.hq_high"] * 4]


def test_rejected_documents_are_not_classified(model):
    stages = [
        FastText(model=model, label="hq", min_score=0.5),
        FastText(model=model, label="low quality"),
    ]
    result = apply(raw(["good good", "bad bad"]), stages)
    assert result["reason"].to_pylist() == [None, "fasttext.hq_low"]
    assert [score is None for score in result["fasttext_low_quality"].to_pylist()] == [False, True]


def test_an_unknown_label_is_an_error(model):
    with pytest.raises(RecipeError) as caught:
        FastText(model=model, label="hqq").check()
    assert str(caught.value) == (
        f"file://{model}: the model has no label 'hqq'\n"
        "  hint: did you mean 'hq'? known names: hq, low quality"
    )


def test_an_unusable_model_is_an_error(tmp_path):
    with pytest.raises(RecipeError, match="none.bin: no such file"):
        FastText(model=str(tmp_path / "none.bin"), label="hq").identity()
    (tmp_path / "text.bin").write_bytes(b"no model" * 20)
    with pytest.raises(RecipeError, match="text.bin: not a fastText model"):
        FastText(model=str(tmp_path / "text.bin"), label="hq").check()
    vectors = write_model(tmp_path / "vectors.bin", supervised=False)
    with pytest.raises(RecipeError, match="vectors.bin: not a supervised fastText model"):
        FastText(model=vectors, label="hq").check()
    write_model(tmp_path / "other.bin")
    with pytest.raises(RecipeError, match="matches 3 files, but a model is one file"):
        FastText(model=str(tmp_path / "*.bin"), label="hq").check()


@pytest.mark.parametrize("size", [257, 240, 150, 76, 75, 3, 0])
def test_a_truncated_model_is_an_error(model, size):
    Path(model).write_bytes(Path(model).read_bytes()[:size])
    message = "the fastText model is truncated" if size >= 76 else "not a fastText model"
    with pytest.raises(RecipeError, match=message):
        FastText(model=model, label="hq").check()


def test_a_plan_checks_the_label_before_any_work_is_done(model, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}')
    recipe = Recipe(
        name="x",
        source={"path": str(tmp_path / "a.jsonl")},
        lake=str(tmp_path / "lake"),
        stages=[FastText(model=model, label="hqq")],
    )
    with pytest.raises(RecipeError, match="the model has no label 'hqq'"):
        make_plan(recipe)


def test_identity_depends_on_the_content_of_the_model(model, tmp_path):
    stage = FastText(model=model, label="hq")
    other = tmp_path / "moved.bin"
    other.write_bytes(Path(model).read_bytes())
    assert stage.identity() == FastText(model=str(other), label="hq").identity()
    assert stage.identity() != FastText(model=str(other), label="hq", max_chars=9).identity()
    before = stage.identity()
    write_model(Path(model), labels=tuple(LABELS)[:1])
    assert stage.identity() != before
    assert scores(stage, "bad") == [1.0]


def test_a_model_can_be_in_object_storage(s3, model):
    import s3fs

    s3fs.S3FileSystem().put(model, f"{s3}/tiny.bin")
    remote = FastText(model=f"{s3}/tiny.bin", label="hq")
    assert remote.identity() == FastText(model=model, label="hq").identity()
    assert scores(remote, "good") == scores(FastText(model=model, label="hq"), "good")


def test_a_published_model(data):
    """The language identifier is a supervised model, so its probabilities are ``lang_score``."""
    model = language_id.model_path()
    path = data / "docs" / "docs-00000.parquet"
    texts = pq.read_table(path, columns=["text"])["text"][::150]
    langs, lang_scores = (column.to_pylist() for column in language_id.identify_languages(texts))
    stage = FastText(model=str(model), label="de", max_chars=language_id.MAX_CHARS)
    measured = stage.measure(pa.table({"text": texts}))["fasttext_de"].to_pylist()
    rows = list(zip(langs, lang_scores, measured, strict=True))
    german = [(lang_score, score) for lang, lang_score, score in rows if lang == "de"]
    assert len(german) >= 3
    assert all(score == pytest.approx(lang_score, abs=0.02) for lang_score, score in german)
    assert all(score <= 0.5 for lang, _, score in rows if lang != "de")
