"""The counts of `etl tune` equal the counts of a run with the other settings."""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import Client
from typer.testing import CliRunner
from upath import UPath

from etl.audit.lake_report import report
from etl.audit.tune.tune import Tuning, sweep, tune
from etl.cli.app import app
from etl.delta.table import Table
from etl.errors import RecipeError, TableError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import STAGES, Stage
from tests.helpers.corpus import prose, write_jsonl, write_parquet
from tests.helpers.paths import NewPlace

Lake = Callable[..., str]

FILTERS = """
def short_words(document):
    return max(map(len, document["text"].split())) < 12

def letters(table):
    return [float(text.lower().count("r")) for text in table["text"].to_pylist()]
"""
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund, und der Hund schläft weiter. "


def texts(start: int, stop: int) -> list[str]:
    """Return prose of 10 to 120 words, lists, repetitions, German, long words, and copies of these."""
    result = []
    for number in range(start, stop):
        text = prose(number % 37, words=10 * (1 + number % 12))
        if number % 5 == 1:
            text = text.replace(" ", "\n- ")
        if number % 7 == 2:
            text = f"{text}\n" * (1 + number % 3)
        if number % 9 == 4:
            text = GERMAN * (1 + number % 8)
        if number % 13 == 6:
            text += " incomprehensibility"
        result.append(text)
    return result


def records(start: int, stop: int) -> list[dict[str, str | None]]:
    return [
        {"doc_id": f"doc-{start + n}", "body": None if n == 7 else text, "link": f"https://x/{n}"}
        for n, text in enumerate(texts(start, stop))
    ]


def sentences(text: str) -> str:
    """Format the words as sentences of nine, in paragraphs of a heading and four sentences."""
    words = text.split()
    lines = [" ".join(words[k : k + 9]) + "." for k in range(0, len(words), 9)]
    return "\n".join(f"Part {k}\n{' '.join(lines[k : k + 4])}" for k in range(0, len(lines), 4))


@pytest.fixture(scope="module")
def lake(
    client: Client,
    new_place: NewPlace,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_tokenizer: Path,
) -> Lake:
    """A function that makes a lake of the same input with other settings, once per setting."""
    folder, place = tmp_path_factory.mktemp("tune"), new_place("tune")
    crawl = place / "crawl"
    write_parquet(crawl / "a.parquet", records(0, 120))
    write_parquet(crawl / "b.parquet", records(60, 160))
    write_jsonl(crawl / "c.jsonl", records(160, 200))
    (folder / "own.py").write_text(FILTERS)
    stages = [
        {"where": "url NOT LIKE '%/13'"},
        {"language": {"min_score": 0.3}},
        "gopher_repetition",
        {"gopher_quality": {"min_words": 30, "min_alpha_word_ratio": 0.5}},
        {"length": {"max_words": 500}},
        {"python": {"call": "own:short_words", "per": "document", "folder": str(folder)}},
        "dedup_exact",
        {"tokenize": str(tiny_tokenizer)},
    ]
    recipe = {
        "name": "tune",
        "source": {
            "path": str(crawl),
            "columns": {"text": "body", "id": "doc_id", "url": "link"},
            "split_bytes": 8192,
        },
        "stages": stages,
    }
    made: dict[tuple[str, ...], str] = {}

    def make(*settings: str, keep: int | None = None) -> str:
        """Make the lake; with ``keep``, only with that many filters."""
        key = (str(keep), *settings)
        if key not in made:
            made[key] = str(place / f"lake{len(made)}")
            chosen = stages if keep is None else [*stages[:keep], *stages[-2:]]
            file = folder / "recipe.yaml"
            file.write_text(json.dumps({**recipe, "stages": chosen, "lake": made[key]}))
            assert run(Recipe.load(file, settings=settings), cluster=client).ok
        return made[key]

    return make


def predicted(tuning: Tuning) -> dict[str, object]:
    """Return the counts for the other settings, in the format of ``actual``."""
    return {
        "kept": tuning.whole.then.kept,
        "unique": tuning.whole.then.unique,
        "rejected": {name: then for name, (_, then) in tuning.rules.items() if then},
        "languages": {part.name: part.then.kept for part in tuning.languages if part.then.kept},
        "sources": {p.name: (p.rows, p.then.kept, p.then.unique) for p in tuning.sources},
    }


def actual(lake: str) -> dict[str, object]:
    """Return the counts of a lake that a run made."""
    summary = report(lake)
    return {
        "kept": summary.kept,
        "unique": summary.tokenized,
        "rejected": summary.rejected,
        "languages": summary.languages,
        "sources": {s.source: (s.rows, s.kept, s.tokenized) for s in summary.sources},
    }


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(("gopher_quality.min_words=60",), marks=pytest.mark.slow),
        ("gopher_quality.min_words=5", "gopher_quality.min_stop_words=null"),
        ("gopher_repetition.max_duplicate_line_ratio=0.6", "language.keep=[en]"),
        pytest.param(
            (
                "gopher_repetition.max_top_2gram_char_ratio=null",
                "gopher_repetition.max_top_3gram_char_ratio=null",
                "gopher_repetition.max_duplicate_5gram_char_ratio=0.9",
            ),
            marks=pytest.mark.slow,
        ),
        ("length.max_words=80", "language.min_score=null"),
        ("where.keep=url LIKE '%4%' AND num_words < 100", "gopher_quality.max_bullet_line_ratio=0"),
    ],
)
def test_counts_equal_those_of_a_run(lake: Lake, settings: tuple[str, ...]) -> None:
    tuning = tune(lake(keep=5), settings)
    assert predicted(tuning) == actual(lake(*settings, keep=5))
    assert predicted(tuning) != actual(lake(keep=5)), "the settings change something"
    assert tuning.unknown == {}
    assert tuning.whole.unknown == 0


@pytest.mark.slow
def test_present_counts_equal_those_of_the_lake(lake: Lake) -> None:
    tuning = tune(lake(), ["gopher_quality.min_words=30"])
    assert predicted(tuning) == actual(lake())
    assert tuning.whole.now == tuning.whole.then
    assert tuning.whole.now.tokens == report(lake()).tokens
    assert tuning.whole.now.estimated == 0
    assert tuning.whole.rows == 260
    assert [p.now.tokens for p in sorted(tuning.sources, key=lambda part: part.name)] == [
        source.tokens for source in report(lake()).sources
    ]


def test_tokens_of_documents_that_stay_kept_are_exact(lake: Lake) -> None:
    settings = ["gopher_quality.min_words=60"]
    tuning = tune(lake(keep=5), settings).whole.then
    assert (tuning.tokens, tuning.estimated) == (report(lake(*settings, keep=5)).tokens, 0)


def test_tokens_of_newly_kept_documents_are_estimated(lake: Lake) -> None:
    settings = ["gopher_quality.min_words=5", "gopher_quality.min_stop_words=null"]
    tuning = tune(lake(keep=5), settings).whole
    real = report(lake(*settings, keep=5)).tokens
    assert tuning.now.tokens is not None
    assert tuning.then.tokens is not None
    assert tuning.then.estimated > 0
    new = real - tuning.now.tokens
    assert abs(tuning.then.tokens - real) < 0.1 * new


def test_documents_that_a_function_has_not_judged_are_unknown(lake: Lake) -> None:
    settings = ["gopher_quality.min_words=5"]
    tuning, real = tune(lake(), settings), actual(lake(*settings))
    assert tuning.unknown == {"6 python": tuning.whole.unknown}
    assert tuning.whole.unknown > 0
    assert tuning.whole.then.kept == tuning.whole.now.kept
    assert isinstance(real["kept"], int)
    assert tuning.whole.then.kept < real["kept"] < tuning.whole.then.kept + tuning.whole.unknown
    stricter = ["gopher_quality.min_words=60"]
    assert tune(lake(), stricter).unknown == {}
    assert predicted(tune(lake(), stricter)) == actual(lake(*stricter))


def test_the_limits_of_a_score_are_tuned(
    lake: Lake, place: UPath, tmp_path: Path, client: Client
) -> None:
    (tmp_path / "own.py").write_text(FILTERS)
    crawl = write_parquet(place / "a.parquet", records(0, 60))

    def make(name: str, low: float, high: float | None) -> str:
        score = {"call": "own:letters", "min_score": low, "max_score": high}
        recipe = Recipe(
            name="score",
            source={"path": str(crawl), "columns": {"text": "body"}},
            lake=str(place / name),
            stages=[{"length": {"min_words": 20}}, {"python": {**score, "folder": str(tmp_path)}}],
        )
        assert run(recipe, cluster=client).ok
        return str(recipe.lake)

    tuning = tune(make("one", 5, None), ["python.min_score=10", "python.max_score=30"])
    real = report(make("other", 10, 30))
    assert tuning.whole.then.kept == real.kept
    assert {name: then for name, (_, then) in tuning.rules.items() if then} == real.rejected
    assert set(real.rejected) >= {"python.letters_low", "python.letters_high"}
    assert (tuning.whole.then.unique, tuning.whole.then.tokens) == (None, None)
    with pytest.raises(RecipeError, match="changes the text or a signal"):
        tune(f"{place}/one", ["python.sees=all"])
    with pytest.raises(RecipeError, match="changes the text or a signal"):
        tune(f"{place}/one", ["python.name=other"])


def test_text_without_letters_stays_rejected(place: UPath, client: Client) -> None:
    bodies = ["1,000.00", GERMAN.upper(), prose(1, words=40), "+49 30 1234567"]
    crawl = write_parquet(place / "a.parquet", [{"body": body} for body in bodies])

    def make(name: str, keep: list[str]) -> str:
        recipe = Recipe(
            name="letters",
            source={"path": str(crawl), "columns": {"text": "body"}},
            lake=str(place / name),
            stages=[{"language": {"keep": keep, "labels": "letters", "min_score": None}}],
        )
        assert run(recipe, cluster=client).ok
        return str(recipe.lake)

    tuning, real = tune(make("one", ["de", "en"]), ["language.keep=[de]"]), make("other", ["de"])
    assert (tuning.whole.now.kept, tuning.whole.then.kept) == (2, 1) == (2, report(real).kept)
    assert report(real).rejected == {"language.no_letters": 2, "language.other": 1}
    assert {name: then for name, (_, then) in tuning.rules.items()} == report(real).rejected


def test_thresholds_before_and_after_a_transform_are_tuned(
    place: UPath, tmp_path: Path, client: Client
) -> None:
    crawl = write_parquet(
        place / "a.parquet",
        [{**record, "body": sentences(record["body"] or "")} for record in records(0, 120)],
    )

    def make(name: str, *settings: str) -> str:
        recipe = {
            "name": "published",
            "source": {"path": str(crawl), "columns": {"text": "body"}},
            "lake": str(place / name),
            "stages": [
                {"gopher_repetition": {"max_top_3gram_char_ratio": None}},
                {"gopher_quality": {"min_words": 30, "min_alpha_word_ratio": None}},
                {"c4": {"terminal_punctuation": False, "min_sentences": 3}},
                {"fineweb_quality": {"max_short_line_ratio": 0.9}},
                {"length": {"min_words": 20}},
                {"repeated_lines": {"min_chars": 100}},
            ],
        }
        file = tmp_path / "recipe.yaml"
        file.write_text(json.dumps(recipe))
        assert run(Recipe.load(file, settings=settings), cluster=client).ok
        return str(place / name)

    one = make("one")
    for number, settings in enumerate(
        [
            ("gopher_quality.min_words=5", "c4.min_sentences=2", "length.min_words=30"),
            ("gopher_repetition.max_top_4gram_char_ratio=null", "c4.min_sentences=6"),
            ("fineweb_quality.max_short_line_ratio=0.2", "repeated_lines.min_chars=700"),
        ]
    ):
        tuning = tune(one, settings)
        real = report(make(f"other{number}", *settings))
        assert tuning.whole.then.kept == real.kept
        assert real.rejected != report(one).rejected, "the settings change something"
        assert {name: then for name, (_, then) in tuning.rules.items() if then} == real.rejected
        assert tuning.unknown == {}
    with pytest.raises(RecipeError, match="changes the text or a signal"):
        tune(one, ["c4.min_words_per_line=2"])


def test_filters_with_their_own_signals_and_files_are_tuned(
    place: UPath, tmp_path: Path, client: Client
) -> None:
    crawl = write_parquet(place / "a.parquet", records(0, 60))
    (tmp_path / "quiz.txt").write_text("in the morning\nway from here\n")

    def make(name: str, fraction: float, min_hits: int) -> str:
        sets = {"sets": {"quiz": str(tmp_path / "quiz.txt")}, "ngram": 3, "min_words": 3}
        recipe = Recipe(
            name="own",
            source={"path": str(crawl), "columns": {"text": "body"}},
            lake=str(place / name),
            stages=[
                {"sample": fraction},
                {"decontaminate": {**sets, "min_hits": min_hits}},
                {"length": {"min_words": 20}},
            ],
        )
        assert run(recipe, cluster=client).ok
        return str(recipe.lake)

    one = make("one", 0.5, 1)
    for fraction, min_hits in [(0.9, 1), (0.2, 2), (1.0, 3)]:
        tuning = tune(one, [f"sample.fraction={fraction}", f"decontaminate.min_hits={min_hits}"])
        real = report(make(f"{fraction}", fraction, min_hits))
        assert tuning.whole.then.kept == real.kept
        assert {name: then for name, (_, then) in tuning.rules.items() if then} == real.rejected
        assert tuning.unknown == {}
    for setting in ("sample.seed=3", "decontaminate.ngram=4", "decontaminate.sets={other: x}"):
        with pytest.raises(RecipeError, match="changes the text or a signal"):
            tune(one, [setting])


def test_documents_without_stored_signals_are_unknown(
    lake: Lake, place: UPath, client: Client
) -> None:
    crawl = write_parquet(place / "a.parquet", records(0, 60))
    recipe = Recipe(
        name="few",
        source={"path": str(crawl), "columns": {"text": "body"}},
        lake=str(place / "lake"),
        rejected={"signals": False},
        stages=[{"length": {"min_words": 30}}, "gopher_repetition"],
    )
    run(recipe, cluster=client)
    tuning = tune(str(recipe.lake), ["length.min_words=20"])
    assert tuning.unknown == {"2 gopher_repetition": tuning.whole.unknown}
    assert (
        tuning.whole.unknown
        == tuning.rules["length.few_words"][0] - tuning.rules["length.few_words"][1]
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("gopher_quality.min_word=3", "did you mean 'min_words'?"),
        ("gopher.min_words=3", "did you mean 'gopher_quality'?"),
        ("gopher_quality.min_words=many", "should be a valid integer, not 'many'"),
        ("language.keep=[xx]", "unknown language 'xx'"),
        ("language.labels=letters", "changes the text or a signal"),
        ("seed=3", "it is not a setting of a filter"),
        ("rejected.signals=false", "it is not a setting of a filter"),
        ("dedup_exact.normalize=none", "it is not a setting of a filter"),
        ("tokenize.append_eos=false", "it is not a setting of a filter"),
        ("python.per=table", "`python` does not decide by stored columns"),
        ("python.min_score=0.5", "`python` does not decide by stored columns"),
        ("where.keep=text LIKE '%the%'", "`where` does not decide by stored columns"),
        ("where.keep=terminal_line_ratio > 0.1", "no column holds terminal_line_ratio"),
        ("gopher_quality", "cannot read the setting"),
    ],
)
def test_a_setting_that_is_not_a_threshold_is_refused(
    lake: Lake, setting: str, message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        tune(lake(), [setting])
    assert message in str(caught.value)
    assert "--set" in str(caught.value)


@pytest.mark.slow
def test_a_sweep_returns_one_tuning_per_value(lake: Lake) -> None:
    values = ["null", "20", "80"]
    tunings = sweep(
        lake(keep=5), f"gopher_quality.min_words={', '.join(values)}", ["length.max_words=90"]
    )
    assert tunings == [
        tune(lake(keep=5), ["length.max_words=90", f"gopher_quality.min_words={value}"])
        for value in values
    ]
    with pytest.raises(RecipeError, match="key=value,value"):
        sweep(lake(keep=5), "gopher_quality.min_words")


def test_a_lake_that_no_recipe_made_is_refused(place: UPath, lake: Lake) -> None:
    with pytest.raises(TableError, match="no Delta table at this URL"):
        tune(str(place), ["a.b=1"])
    documents = Table.open(f"{lake()}/documents")
    from etl.lake.table_specs import DOCUMENTS

    Table.create(f"{place}/documents", documents.schema, DOCUMENTS.layout)
    with pytest.raises(TableError, match="not made by a recipe"):
        tune(str(place), ["a.b=1"])


def test_the_command_prints_text_and_json(lake: Lake) -> None:
    def etl(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["tune", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    settings = ["--set", "gopher_quality.min_words=5"]
    tuning = tune(lake(), settings[1:])
    assert json.loads(etl(lake(), *settings, "--json"))["whole"]["rows"] == tuning.whole.rows
    text = etl(lake(), *settings)
    assert f"unknown: {tuning.whole.unknown:,} documents would now reach `6 python`" in text
    now, then = tuning.rules["gopher_quality.short"]
    (line,) = [line for line in text.splitlines() if line.startswith("gopher_quality.short")]
    assert line.split()[1:] == [f"{now}", f"{then}", f"{then - now:+}"]
    table = etl(lake(keep=5), "--sweep", "gopher_quality.min_words=5,60").splitlines()
    assert table[2].split()[:2] == ["gopher_quality.min_words", "kept"]
    assert [line.split()[0] for line in table[3:6]] == ["now", "5", "60"]
    assert "~" in table[4]
    assert "~" not in table[5]


def fields_read(function: object) -> set[str]:
    """Return the names after ``self.`` in a method."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


@pytest.mark.parametrize("model", STAGES.values(), ids=STAGES)
def test_only_rules_read_thresholds(model: type[Stage]) -> None:
    assert {*model.thresholds} <= {*model.model_fields}
    assert {*model.thresholds} <= fields_read(model.rules)
    makers = [vars(model)[name] for name in ("measure", "apply") if name in vars(model)]
    fields = {name for maker in makers for name in fields_read(maker)}
    helpers = [vars(model)[name] for name in fields if inspect.isfunction(vars(model).get(name))]
    fields |= {name for helper in helpers for name in fields_read(helper)}
    assert fields & {*model.thresholds} == set()
