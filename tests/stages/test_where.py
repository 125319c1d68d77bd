"""Filters by SQL expressions: allowed syntax, errors, and verdicts."""

import pyarrow as pa
import pytest

from etl.errors import RecipeError
from etl.stages.filters.where import Where
from etl.text import language_id


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (
            "num_wrds > 50",
            "'num_wrds', which is not a column or an allowed function; did you mean 'num_words'",
        ),
        ("NUM_WORDS > 50", "did you mean 'num_words'"),
        ("lowr(text) = 'a'", "did you mean 'lower'"),
        ('"lower" = 1', "'lower', which is not a column"),
        ("xyzzy", "columns are id, source, text"),
        ("num_words >", "is not a valid SQL expression"),
        ("num_words > > 5", "is not a valid SQL expression"),
        ("num_words > 'a'", "is not a valid SQL expression"),
        ("text ~ '('", "is not a valid SQL expression"),
        ("", "is not a valid SQL expression"),
        ("num_words", "has the type Float64, not Boolean"),
        ("text || url", "has the type String, not Boolean"),
        ("1 = 1", "reads no column"),
        ("num_words > 0x10", "contains '0', which is not allowed here"),
        ("text = 'open", 'contains "\'", which is not allowed here'),
        ("naïve > 1", "contains 'na'"),
    ],
)  # fmt: skip
def test_an_invalid_expression_is_an_error(keep, message):
    with pytest.raises(RecipeError) as caught:
        Where(keep=keep)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "keep",
    [
        "num_words > 0" + " OR num_words > 1" * 20_000,
        "num_words " + "+ 1 " * 20_000 + "> 1",
        "text" + " || 'a'" * 500 + " = 'a'",
        "NOT " * 5000 + "num_words > 1",
        "num_words > " + "- " * 5000 + "1",
        "lower(" * 3000 + "text" + ")" * 3000 + " = 'a'",
        "concat(" + "text, " * 5000 + "text) = 'a'",
        "CASE " + "WHEN num_words > 1 THEN true " * 2000 + "ELSE false END",
        "(" * 5000 + "num_words" + ")" * 5000 + " > 1",
        "num_words > 1 AND x" + "x" * 100_000,
    ],
)
def test_a_huge_expression_is_an_error_and_not_a_crash(keep):
    with pytest.raises(RecipeError) as caught:
        Where(keep=keep)
    message = caught.value.what
    assert "more than 250 columns" in message or "not a " in message
    assert len(message) < 5000


def test_a_large_expression_works():
    conditions = " OR ".join(["url LIKE '%a%'"] * 83)
    numbers = ", ".join(map(str, range(20_000)))
    chain = "text" + " || 'a'" * 240 + " = 'a'"
    for keep in (conditions, f"num_words IN ({numbers})", chain, "(" * 30 + "row > 1" + ")" * 30):
        table = pa.table({name: pa.array(["a"]) if name != "num_words" else pa.array([7.0])
                          for name in Where(keep=keep).signals() if name != "row"}
                         or {"row": pa.array([2])})  # fmt: skip
        assert len(Where(keep=keep).reasons(table)) == 1


@pytest.mark.parametrize(
    "keep",
    [
        "lang IN (SELECT a FROM read_csv('{file}'))",
        "lang IN (select a from '{file}')",
        "lang IN (TABLE a)",
        "lang IN (FROM read_csv('{file}'))",
        "EXISTS (SELECT 1 FROM read_csv('{file}'))",
        "read_csv('{file}') = text",
        "lang = '\\' OR lang IN (SELECT a FROM read_csv('{file}')) -- '",
        "lang = 'a' OR lang /* ' */ IN (SELECT a FROM read_csv('{file}'))",
        "lang = E'\\'' OR lang IN (SELECT a FROM read_csv('{file}')) OR lang = ''",
        "lang = $$'$$ OR lang IN (SELECT a FROM read_csv('{file}')) OR lang = ''",
        "lang = `'` OR lang IN (SELECT a FROM read_csv('{file}')) OR lang = ''",
        '"lang" IN ("SELECT" a)',
        "COUNT(*) > 1",
        "SUM(num_words) > 1",
        "ROW_NUMBER() OVER (ORDER BY num_words) > 1",
        "num_words > 1; DROP TABLE documents",
    ],
)
def test_an_expression_can_read_only_one_row(keep, tmp_path):
    """Polars reads the file of a subquery while parsing, so its words must be rejected before."""
    file = tmp_path / "a.csv"
    file.write_text("a\nde\n")
    with pytest.raises(RecipeError, match="which is not a column|which is not allowed"):
        Where(keep=keep.format(file=file))


@pytest.mark.parametrize(
    "condition",
    [
        "length(text) = 3", "octet_length(text) = 4", "char_length(text) = 3",
        "upper(text) = 'ÄBC'", "lower('ABC') || text = 'abcäbc'", "text ILIKE 'Ä%'",
        "text RLIKE '^.bc$'", "text ~* 'BC'", "NOT text !~ 'bc'", "regexp_like(text, 'b')",
        "starts_with(text, 'ä') AND ends_with(text, 'c')",
        "left(text, 1) = 'ä' AND right(text, 1) = 'c'", "substr(text, 2, 1) = 'b'",
        "replace(text, 'b', '') = 'äc'", "reverse(text) = 'cbä'", "trim(' a ') || text = 'aäbc'",
        "coalesce(url, text) = text", "nullif(text, 'äbc') IS NULL", "lang IS NOT NULL",
        "CASE WHEN num_words > 1 THEN true ELSE false END", "CAST(num_words AS int) % 2 = 1",
        "num_words - -1 = 4", "(num_words + 1) * 2 / 4 >= 2.0", "num_words <> 1e3",
        "abs(0 - num_words) = 3 AND round(num_words) = 3", "least(num_words, 2) = 2",
        "greatest(num_words, 4) = 4", "sqrt(num_words * num_words) = 3", "metadata LIKE '%\"a\"%'",
    ],
)  # fmt: skip
def test_allowed_functions_and_operators(condition):
    row = {
        "text": ["äbc"],
        "url": [None],
        "lang": ["de"],
        "num_words": [3.0],
        "metadata": ['{"a": 1}'],
    }
    table = pa.table(row).cast(
        pa.schema([("text", "string"), ("url", "string"), ("lang", "string"),
                   ("num_words", "double"), ("metadata", "string")])
    )  # fmt: skip
    assert Where(keep=condition).reasons(table).to_pylist() == [None]
    assert Where(keep=f"NOT ({condition})").reasons(table).to_pylist() == ["where.condition"]


def test_false_and_null_are_rejected_with_reasons_of_their_own():
    table = pa.table({"num_words": [1.0, 3.0, None]})
    where = Where(keep="num_words > 2", name="words")
    assert where.reasons(table).to_pylist() == ["where.words", None, "where.words_unknown"]
    where = Where(keep="num_words > 2")
    assert where.reasons(table).to_pylist() == ["where.condition", None, "where.unknown"]
    where = Where(keep="num_words > 2", unknown="keep")
    assert where.reasons(table).to_pylist() == ["where.condition", None, None]


def test_identity_contains_the_language_model_only_if_it_is_read():
    assert Where(keep="num_words > 1").identity() == {
        "kind": "where", "keep": "num_words > 1", "name": "condition", "unknown": "reject"
    }  # fmt: skip
    assert Where(keep="lang = 'de'").identity()["model"] == language_id.model_identity()["model"]
