"""MinHash signatures in the table, the probabilities in a plan, and the settings of the stage."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing import minhash_signatures
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash, Length
from etl.stages.apply import apply
from etl.stages.document_columns import judged_schema
from tests.helpers.raw_rows import raw

STAGE = DedupMinhash(ngram=2, bands=3, rows=2)

texts = st.lists(st.none() | st.text(st.sampled_from("ab 1é!東\n"), max_size=12), max_size=8)


@given(texts)
def test_a_signature_is_length_and_numbers(documents):
    array = pa.array(documents, pa.string())
    column = STAGE.signature(array)
    expected = minhash_signatures.signatures(
        buffers(array), STAGE.shingling, permutations=6, seed=0
    )
    assert column.type == pa.binary()
    assert [value is None for value in column.to_pylist()] == [row[0] == 0 for row in expected]
    numbers = STAGE.numbers(column.drop_null())
    assert numbers.tolist() == [row.tolist() for row in expected if row[0] > 0]
    assert STAGE.numbers(column.drop_null()[1:]).tolist() == numbers[1:].tolist()


def test_only_kept_rows_have_a_signature():
    stages = [Length(min_words=2), STAGE]
    result = apply(raw(["one", "one two", None, "?", "one two three"]), stages)
    assert result.schema == judged_schema(stages)
    assert [value.is_valid for value in result["signature"]] == [False, True, False, False, True]
    assert (
        result["signature"]
        .combine_chunks()
        .drop_null()
        .equals(STAGE.signature(pa.array(["one two", "one two three"])))
    )
    assert "signature" not in apply(raw(["one two"]), [Length()]).column_names


def test_the_signature_is_that_of_the_rewritten_text():
    result = apply(raw(["a b\r\nc \x00d"]), [*_stages("unicode"), STAGE])
    (text,) = result["text"].to_pylist()
    assert text != "a b\r\nc \x00d"
    assert result["signature"].to_pylist() == STAGE.signature(pa.array([text])).to_pylist()


def _stages(*names):
    return Recipe(name="x", source={"path": "x"}, stages=names).stages


@pytest.mark.parametrize("similarity", [0.5, 0.8, 0.9])
def test_probabilities_agree_with_a_simulation(similarity):
    """Simulate 4,000 pairs of signatures whose numbers agree with the probability ``similarity``."""
    stage = DedupMinhash(bands=6, rows=4, min_similarity=0.75, verify="estimate")
    rng = np.random.default_rng(1)
    agree = rng.random((4000, 24)) < similarity
    is_found = agree.reshape(-1, 6, 4).all(axis=2).any(axis=1)
    assert is_found.mean() == pytest.approx(stage.candidate_probability(similarity), abs=0.03)
    # Being found and passing depend on the same numbers, so the product is a lower bound.
    passed = is_found & (agree.mean(axis=1) >= 0.75)
    assert -0.01 < passed.mean() - stage.match_probability(similarity) < 0.15


def test_the_curve_has_the_probabilities_of_each_similarity():
    stage = DedupMinhash(min_similarity=0.82)
    points = {point: (found, joined) for point, found, joined in stage.curve()}
    assert points[0.8][0] == pytest.approx(0.924, abs=0.001)
    assert points[0.8][1] == 0
    assert 0.999 <= points[0.82][1] / points[0.82][0] < 1
    assert [found for found, _ in points.values()] == sorted(found for found, _ in points.values())
    assert DedupMinhash(min_similarity=1.0).match_probability(1.0) == 1


@given(
    st.floats(0.01, 1),
    st.integers(1, 40),
    st.integers(1, 30),
    st.sampled_from(["exact", "near_limit", "estimate", "containment"]),
)
def test_texts_are_compared_unless_the_estimate_is_far_from_the_limit(limit, bands, rows, verify):
    stage = DedupMinhash(min_similarity=limit, bands=bands, rows=rows, verify=verify)
    least, enough = stage.agreement_limits()
    size = stage.permutations
    assert 0 <= least <= enough <= size + 1
    at_limit = stage.agreement_probabilities(limit)
    assert at_limit.sum() == pytest.approx(1)
    if verify == "containment":
        assert (least, enough) == (0, size + 1)
        return
    if verify == "estimate":
        assert least == enough == np.flatnonzero(np.arange(size + 1) / size >= limit)[0]
        return
    assert at_limit[:least].sum() <= 0.001 < at_limit[: least + 1].sum() + 1e-9
    if verify == "exact":
        assert enough == size + 1
    else:
        assert at_limit[enough:].sum() <= 0.001 < at_limit[enough - 1 :].sum() + 1e-9


def test_probabilities_of_long_signatures_are_finite():
    stage = DedupMinhash(bands=512, rows=8, min_similarity=0.9)
    assert stage.match_probability(0.95) == pytest.approx(1)
    assert stage.match_probability(0.5) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bands": 0}, "greater than or equal to 1"),
        ({"bands": 100, "rows": 50}, "rows is 5000, more than the maximum of 4096"),
        ({"min_similarity": 0.0}, "greater than 0"),
        ({"keep": {}}, "one of highest, lowest, sources"),
        ({"keep": {"highest": "num_words", "lowest": "num_words"}}, "one of highest"),
        (
            {"keep": {"highest": "num_words"}},
            "which no stage computes; computed columns: lang_score",
        ),
        ({"keep": "last"}, "first"),
        ({"verify": "always"}, "exact.*near_limit.*estimate"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(RecipeError, match=message):
        _stages({"dedup_minhash": settings})


def test_keep_can_name_sources_or_a_column():
    (by_list,) = _stages({"dedup_minhash": {"keep": {"sources": ["*/wiki/*", "*"]}}})
    assert by_list.keep.sources == ("*/wiki/*", "*")
    stages = ["length", {"dedup_minhash": {"keep": {"highest": "num_words"}}}]
    assert _stages(*stages)[1].keep_column == "num_words"


def test_fingerprints_change_only_with_the_settings_that_matter():
    def fingerprints(**settings):
        recipe = Recipe(name="x", source={"path": "x"}, stages=[DedupMinhash(**settings)])
        return recipe.fingerprint("documents"), recipe.fingerprint("duplicates")

    default = fingerprints()
    for settings in ({"min_similarity": 0.7}, {"keep": "longest"}, {"bands": 28, "rows": 4}):
        assert fingerprints(**settings)[0] == default[0], "the signatures are the same"
        assert fingerprints(**settings)[1] != default[1]
    for settings in ({"seed": 1}, {"ngram": 4}, {"rows": 9}, {"unit": "chars"}):
        assert fingerprints(**settings)[0] != default[0]


def test_signatures_of_similar_texts_agree():
    """The last tenth of the words differs, so the Jaccard index of the shingles is about 0.8."""
    words = [random.Random(3).choice("abcdefgh") + str(k) for k in range(400)]
    other = [*words[:360], *(f"x{word}" for word in words[360:])]
    stage = DedupMinhash(fold_digits=False)
    one, two = stage.numbers(stage.signature(pa.array([" ".join(words), " ".join(other)])))
    assert (one[1:] == two[1:]).mean() == pytest.approx(356 / 436, abs=0.12)


def test_the_table_of_the_plan_fits_60_columns():
    _, *table = DedupMinhash().plan_lines()
    assert max(map(len, table)) <= 60
