"""Recipes: loading, validation errors with their lines, overrides, fingerprints, and the JSON Schema."""

import functools
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

import etl
from etl import pipelines, row_condition
from etl.cli.app import app
from etl.errors import RecipeError, SourceError, StorageError, nearest_names
from etl.recipe.json_schema import json_schema
from etl.recipe.recipe import Recipe
from etl.recipe.variables import expand_setting, expand_variables
from etl.settings_files.yaml_file import read_value
from etl.sources import Source
from etl.stages import DedupExact, Extract, GopherQuality, Language, Url, Where

GOOD = """\
name: web
source:
  path: raw/*.parquet
  columns: {text: content, id: doc_id}
lake: lake
stages:
  - language: {keep: [de, en]}
  - gopher_quality: {min_words: 10}
  - where: "num_words > 50 AND url NOT LIKE '%forum%'"
  - dedup_exact
"""


def load(folder: Path, text: str, *settings: str, env: Sequence[str] = ()) -> Recipe:
    file = folder / "web.yaml"
    file.write_text(text)
    return Recipe.load(file, settings=settings, env=env)


def test_a_recipe_file_is_loaded(tmp_path: Path) -> None:
    recipe = load(tmp_path, GOOD)
    assert [stage.kind for stage in recipe.stages] == [
        "language", "gopher_quality", "where", "dedup_exact",
    ]  # fmt: skip
    assert recipe.stages[1] == GopherQuality(min_words=10)
    assert recipe.source.columns.text == "content"
    assert recipe.source.path == str(tmp_path / "raw/*.parquet"), (
        "paths are relative to the recipe's folder"
    )
    assert recipe.table_url("tokens") == f"file://{tmp_path}/lake/tokens"
    assert recipe.steps == ("documents", "texts", "duplicates")


def test_the_same_recipe_in_python_has_the_same_fingerprint(tmp_path: Path) -> None:
    python = Recipe(
        name="other name",
        source={"path": "elsewhere", "columns": {"text": "content", "id": "doc_id"}},
        stages=[
            Language(keep=("de", "en")),
            GopherQuality(min_words=10),
            Where(keep="num_words > 50 AND url NOT LIKE '%forum%'"),
            DedupExact(),
        ],
    )
    recipe = load(tmp_path, GOOD)
    assert python.fingerprint("duplicates") == recipe.fingerprint("duplicates")


@settings(max_examples=25)
@given(
    st.integers(0, 10**5),
    st.floats(0, 1),
    st.text(min_size=1, max_size=20) | st.sampled_from(["${HOME}", "$${x}", "a: b # c"]),
)
def test_a_recipe_survives_a_round_trip_through_yaml(
    tmp_path_factory: pytest.TempPathFactory, words: int, ratio: float, name: str
) -> None:
    folder = tmp_path_factory.mktemp("recipe")
    recipe = Recipe(
        name=name,
        source={"path": "/raw/*.jsonl", "metadata": ["a", "b"]},
        lake="s3://lake/x",
        seed=words,
        stages=[{"gopher_quality": {"min_words": words, "max_symbol_word_ratio": ratio}}],
    )
    (folder / "r.yaml").write_text(recipe.to_yaml())
    assert Recipe.load(folder / "r.yaml") == recipe


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("min_words", "min_wrods", 8, "unknown key", "min_words"),
        ("gopher_quality:", "gopher_qualty:", 8, "unknown stage 'gopher_qualty'", "gopher_quality"),
        ("  - dedup_exact", "  - dedup_exat", 10, "unknown stage 'dedup_exat'", "dedup_exact"),
        ("columns:", "colums:", 4, "unknown key 'source.colums'", "columns"),
        ("text: content", "txt: content", 4, "unknown key", "text"),
        ("name: web", "nam: web", 1, "unknown key 'nam'", "name"),
        ("min_words: 10", "min_words: many", 8, "min_words", None),
        ("min_words: 10", "min_words: yes", 8, "min_words", None),
        ("num_words > 50", "num_wrods > 50", 9, "num_wrods", "num_words"),
        ("num_words > 50", "num_words >", 9, "where", None),
        ("lake: lake", "lake: [1]", 5, "lake", None),
        ("path: raw/*.parquet", "path:", 3, "source.path: input should be a valid string", None),
        ("[de, en]", "[de, no]", 7, "not False", "put quotes around"),
        ("source:\n  path: raw/*.parquet\n  columns:", "source: 5\nx:", 2, "source", "path"),
        ("lake: lake", "? [a]\n: b", 5, "invalid YAML: found unhashable key", None),
        ("lake: lake", "name: again", 5, "occurs twice", None),
        ("  - dedup_exact", "  - dedup_exact\n  - language", 6, "order is filters", None),
        (
            "  - dedup_exact",
            "  - dedup_exact\n  - dedup_exact",
            6,
            "dedup_exact occurs twice",
            None,
        ),
        (
            "  - dedup_exact",
            "  - dedup_paragraphs\n  - dedup_substrings",
            6,
            "dedup_paragraphs and dedup_substrings, which both cut",
            None,
        ),
        ("lake: lake", "lake: ${TOKENLAKE_NONE}", 5, "TOKENLAKE_NONE is not set", "export"),
        ("lake: lake", "lake: {", 7, "invalid YAML", None),
    ],
)
def test_an_error_names_the_line_and_the_closest_match(
    tmp_path: Path, old: str, new: str, line: int, message: str, hint: str | None
) -> None:
    assert old in GOOD
    with pytest.raises(RecipeError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    text = str(caught.value)
    assert message in text
    assert f"web.yaml:{line}" in text
    assert hint is None or hint in text


def test_invalid_recipe_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="must be a mapping"):
        load(tmp_path, "- just\n- a list\n")
    with pytest.raises(RecipeError, match="stages must be a list"):
        load(tmp_path, "name: x\nsource: {path: x}\nstages: language\n")
    with pytest.raises(RecipeError, match=r"web\.yaml"):
        Recipe.load(tmp_path / "wbe.yaml")
    with pytest.raises(RecipeError, match="did you mean 'demo'"):
        Recipe.load("dmo")


def test_a_missing_file_has_the_hint_of_a_similar_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.yaml").touch()
    shipped = "shipped recipes: c4, demo, "
    for name in ("t.yml", "t", "tt.yaml"):
        with pytest.raises(RecipeError, match=rf"hint: did you mean 't\.yaml'\? {shipped}"):
            Recipe.load(name)
    with pytest.raises(RecipeError, match=f"hint: {shipped}"):
        Recipe.load("x.yaml")  # similar only by its suffix
    other = re.escape(str(tmp_path / "t.yaml"))
    with pytest.raises(RecipeError, match=f"did you mean '{other}'"):
        Recipe.load(tmp_path / "t.yml")


def test_environment_variables_are_substituted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.replace("lake: lake", "lake: s3://${BUCKET}/${FOLDER:-x}")
    text = text.replace("path: raw/*.parquet", "path: ['${BUCKET}/a', b, '$${BUCKET}']")
    text = text.replace("  - language", "  - url: {hosts: ['${LISTS}/hosts.txt']}\n  - language")
    text = text.replace("  - dedup_exact", "  - dedup_exact: {against: '${BUCKET}'}")
    monkeypatch.setenv("BUCKET", "mine")
    monkeypatch.setenv("LISTS", "/lists")
    env = ["BUCKET", "LISTS", "FOLDER"]
    recipe = load(tmp_path, text, "name=$${HOME}", env=env)
    assert (recipe.lake, recipe.name) == ("s3://mine/x", "${HOME}")
    assert recipe.source.path == tuple(str(tmp_path / p) for p in ("mine/a", "b", "${BUCKET}"))
    assert recipe.stages[0].hosts == ("/lists/hosts.txt",)
    assert recipe.stages[-1].against[0].lake == str(tmp_path / "mine")
    monkeypatch.setenv("FOLDER", "y")
    assert load(tmp_path, text, env=env).lake == "s3://mine/y"
    assert load(tmp_path, text, "lake=s3://${BUCKET}/z", env=env).lake == "s3://mine/z"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("name: web", "name: ${AWS_SECRET_ACCESS_KEY}", 1),
        ("text: content", "text: '${COLUMN:-text}'", 4),
        ("min_words: 10", "min_words: '${WORDS}'", 8),
        ("url NOT LIKE", "url <> '${AWS_SECRET_ACCESS_KEY}' AND url NOT LIKE", 9),
        ("  - dedup_exact", "  - ${STAGE}", 10),
        ("name: web", "name: web\n${KEY}: 1", 2),
    ],
)
def test_a_variable_that_is_not_in_a_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, line: int
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with pytest.raises(
        RecipeError, match=rf"yaml:{line}: the variable .* not in a path\n  hint"
    ) as e:
        load(tmp_path, GOOD.replace(old, new))
    assert "hunter2" not in str(e.value)


@pytest.mark.parametrize(
    "reference", ["${%s}", "${%s:-x}", "${TOKENLAKE_NONE:-x}/${%s}", "${HOME}/$${x}/${%s}"]
)
@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "PGPASS", "home", "tokenlake_x", "PATH", "NOT_SET"],
)
def test_a_variable_that_the_user_does_not_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reference: str
) -> None:
    if name != "NOT_SET":
        monkeypatch.setenv(name, "hunter2")
    url = f"s3://{reference % name}/x"
    text = GOOD.replace("lake: lake", f"lake: '{url}'")
    for words in ((text,), (GOOD, f"lake='{url}'"), (GOOD, f"source.path=['{url}']")):
        with pytest.raises(RecipeError, match=f"environment variable {name}") as caught:
            load(tmp_path, *words, env=["OTHER", f"{name}S", name[:3]])
        assert f"--env {name} " in str(caught.value)
        assert "hunter2" not in str(caught.value)
    monkeypatch.setenv(name, "named")
    assert str(load(tmp_path, text, env=[name]).lake).endswith("named/x")


def test_the_value_of_a_variable_is_not_expanded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENLAKE_ROOT", "${GITHUB_PAT}")
    monkeypatch.setenv("GITHUB_PAT", "hunter2")
    text = GOOD.replace(
        "lake: lake", "lake: s3://${TOKENLAKE_ROOT}/${TOKENLAKE_NONE:-${GITHUB_PAT}}"
    )
    assert load(tmp_path, text).lake == "s3://${GITHUB_PAT}/${GITHUB_PAT}"


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1))
def test_a_setting_for_another_machine_has_the_values_of_variables(text: str) -> None:
    path = "/lists/" + text
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUS", "s3://mine")
        quoted = json.dumps(path.replace("${", "$${"), ensure_ascii=False)
        written = f"{{against: [{quoted}, '${{CORPUS}}/x'], cut: 1}}"
        expanded = expand_setting(f"dedup_exact={written}", ["CORPUS"])
    data = read_value(expanded.partition("=")[2], "--set")
    against = expand_variables({"source": {"path": data["against"]}})["source"]["path"]
    assert against == [path, "s3://mine/x"]


def test_credentials_in_the_value_of_a_variable_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "s3://user:hunter2@bucket")
    with pytest.raises(StorageError, match="must not contain credentials") as caught:
        load(tmp_path, GOOD.replace("lake: lake", "lake: ${STORE}/x"), env=["STORE"])
    assert "hunter2" not in str(caught.value)


def test_a_variable_in_a_setting_follows_the_same_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDS", "5")
    with pytest.raises(RecipeError, match="--set name: the variable WORDS is not in a path"):
        load(tmp_path, GOOD, "name=${WORDS}")
    with pytest.raises(RecipeError, match="--set seed: .* has 6000 characters"):
        load(tmp_path, GOOD, f"seed={'9' * 6000}")
    with pytest.raises(RecipeError, match="--set seed: the value '2024-99-99' cannot be read"):
        load(tmp_path, GOOD, "seed=2024-99-99")


def test_large_recipes_are_read_or_refused_in_bounded_time(tmp_path: Path) -> None:
    keys = "".join(f"k{n}: 1\n" for n in range(8000))
    with pytest.raises(RecipeError, match="unknown key 'k0'(.|\n)*and 7980 more errors"):
        load(tmp_path, GOOD + keys)
    stages = "".join("  - where: num_words > 1\n" for _ in range(1001))
    with pytest.raises(RecipeError, match=r"yaml:1007: 1005 stages, but at most 1000"):
        load(tmp_path, GOOD + stages)
    languages = ", ".join(f"'{n}'" for n in range(20_000))
    recipe = load(tmp_path, GOOD.replace("num_words > 50", f"lang IN ({languages})"))
    assert recipe.stages[2].signals() == ["lang", "url"]


def test_settings_override_the_recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load(
        tmp_path,
        GOOD,
        "gopher_quality.min_words=80",
        "seed=3",
        "source.columns.id=uid",
        "lake=here",
    )
    assert recipe.stages[1] == GopherQuality(min_words=80)
    assert (recipe.seed, recipe.source.columns.id) == (3, "uid")
    assert recipe.source.columns.text == "content", "other columns do not change"
    assert recipe.lake == str(tmp_path / "here"), (
        "paths in settings are relative to the working folder"
    )
    with pytest.raises(RecipeError, match="no key or stage 'gopher_qualty'"):
        load(tmp_path, GOOD, "gopher_qualty.min_words=80")
    with pytest.raises(RecipeError, match="--set gopher_quality.min_words=many: "):
        load(tmp_path, GOOD, "gopher_quality.min_words=many")
    with pytest.raises(RecipeError, match="'path' has no keys"):
        load(tmp_path, GOOD, "source.path.x=1")
    with pytest.raises(RecipeError, match="--set stages=5"):
        load(tmp_path, GOOD, "stages=5")
    with pytest.raises(RecipeError, match="no key or stage 'language'"):
        load(tmp_path, GOOD, "stages=5", "language.keep=de")
    with pytest.raises(RecipeError, match="min_wrods"):
        load(tmp_path, GOOD, "gopher_quality.min_wrods=80")
    with pytest.raises(RecipeError, match="write key=value"):
        load(tmp_path, GOOD, "gopher_quality")


def test_a_setting_of_a_stage_is_what_a_recipe_writes_after_its_name(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD, "gopher_quality={min_words: 80}").stages == (
        load(tmp_path, GOOD, "gopher_quality.min_words=80").stages
    )
    published = Recipe.load("fineweb", settings=["source=a.warc", "extract=tokenlake"])
    assert published.stages[0] == Extract(extractor="tokenlake")
    with pytest.raises(RecipeError, match="--set extract=readability: "):
        Recipe.load("fineweb", settings=["source=a.warc", "extract=readability"])
    with pytest.raises(RecipeError, match="no key or stage 'extract'"):
        load(tmp_path, GOOD, "extract=tokenlake")


def test_a_recipe_is_validated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(row_condition, "_check_words", lambda text, _: checked.append(text))
    load(tmp_path, GOOD, "gopher_quality.min_words=80")
    assert checked == ["num_words > 50 AND url NOT LIKE '%forum%'"]


def test_paths_in_python_are_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stages = [Url(hosts="hosts.txt"), {"python": "mine:is_prose"}, DedupExact(against="other")]
    recipe = Recipe(name="a", source=Source(path=["a", "s3://b/c"]), lake="lake", stages=stages)
    assert recipe.source.path == (str(tmp_path / "a"), "s3://b/c")
    assert recipe.lake == str(tmp_path / "lake")
    url, python, exact = recipe.stages
    assert url.hosts == (str(tmp_path / "hosts.txt"),)
    assert python.folder == str(tmp_path)
    assert exact.against[0].lake == str(tmp_path / "other")


def test_a_mistake_in_a_nested_mapping_names_its_keys(tmp_path: Path) -> None:
    keep = "dedup_minhash: {keep: {highst: num_words}}"
    with pytest.raises(RecipeError, match="did you mean 'highest'. known names: highest, lowest"):
        load(tmp_path, GOOD.replace("dedup_exact", keep))


def test_the_fingerprint_depends_only_on_what_is_computed(tmp_path: Path) -> None:
    base = load(tmp_path, GOOD)
    same = [GOOD.replace("name: web", "name: x"), GOOD.replace("raw/*", "new/*")]
    same.append(GOOD.replace("lake: lake", "lake: s3://elsewhere"))
    same.append(GOOD.replace("{min_words: 10}", "{min_words: 10, max_words: 100_000}"))
    for text in same:
        assert load(tmp_path, text).fingerprint("duplicates") == base.fingerprint("duplicates")
    other = [GOOD.replace("min_words: 10", "min_words: 11"), GOOD + "seed: 1\n"]
    other.append(GOOD.replace("text: content", "text: body"))
    for text in other:
        assert load(tmp_path, text).fingerprint("documents") != base.fingerprint("documents")


def test_the_json_schema_names_every_stage_and_key() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    for name in ("gopher_quality", "min_words", "dedup_exact", "split_bytes", "append_eos"):
        assert f'"{name}"' in text
    assert schema["additionalProperties"] is False


def test_shipped_recipes_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENLAKE_SOURCE", "raw")
    monkeypatch.setenv("TOKENLAKE_TOKENIZER", "tokenizer.json")
    for name in pipelines.list_recipes():
        assert Recipe.load(name).name == name


def test_the_closest_name_is_suggested() -> None:
    hint = nearest_names("langage", ["language", "where"])
    assert hint == "did you mean 'language'? known names: language, where"
    assert nearest_names("zzz", ["language", "where"]) == "known names: language, where"
    assert nearest_names("zzz", []) is None
    assert nearest_names("zzz", map(str, range(30))).endswith("18, 19, ...")


def test_a_setting_selects_one_of_several_stages_by_name(tmp_path: Path) -> None:
    text = """
name: names
source: {path: data}
stages:
  - where: {keep: num_words > 1, name: short}
  - where: {keep: num_words < 100, name: long}
  - python: my_filters:is_prose
  - python: {call: "my_filters:is_prose", name: again}
  - length
"""
    (tmp_path / "my_filters.py").write_text("def is_prose(table): return [True]")
    (tmp_path / "names.yaml").write_text(text)

    def stages(*settings: str) -> list[dict[str, object]]:
        recipe = Recipe.load(tmp_path / "names.yaml", settings=settings)
        return [stage.model_dump(exclude_defaults=True) for stage in recipe.stages]

    assert stages("where.short.keep=num_words > 7")[0]["keep"] == "num_words > 7"
    assert stages("where.long.keep=num_words > 7")[1]["keep"] == "num_words > 7"
    assert stages("python.is_prose.per=document")[2]["per"] == "document"
    assert stages("python.again.min_score=3.5")[3]["min_score"] == 3.5
    assert stages("length.min_words=3")[4] == {"min_words": 3}
    for setting, message in [
        ("where.keep=num_words > 7", "choose one of where.short, where.long"),
        ("where.shrt.keep=num_words > 7", "did you mean 'where.short'?"),
        ("length.short.min_words=3", "leave out 'short'"),
        ("python.again.per=word", "--set python.again.per=word: stages.python.per: input"),
    ]:
        with pytest.raises(RecipeError) as caught:
            stages(setting)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefg")
        ) + "name: *g", "expands to more than 100000 values"),
        ("name: a\nsource: {path: &a [*a]}\nstages: []", "2: a value contains itself"),
        ("name: a\nsource: " + "[" * 5000 + "]" * 5000, "yaml:2: more than 100 levels of nesting"),
        ("name: " + "{a: " * 50_000, "more than 100 levels of nesting"),
        ("name: " + "{a: " * 50 + "}" * 50, "'stages' is missing"),
        ("name: [" + "1," * 200_000 + "]", "yaml:1: more than 100000 values"),
        ("name: a\nseed: 0x" + "9" * 6000, "yaml:2: '0x99999"),
        ("name: a\nseed: 1" + ":1" * 100_000, "yaml:2: '1:1:1:1"),
        ("name: a\nseed: " + "9" * 6000 + ".5", "has 6002 characters"),
        ("name: a\nseed: " + "9" * 19, "yaml:2: the number '9999999999999999999' has more than 64"),
        ("name: a\nseed: !!timestamp x", "yaml:2: the value 'x' cannot be read"),
        ("name: a\nseed: !!int ''", "yaml:2: the value '' cannot be read"),
        ("name: a\nseed: !!binary xyz", "yaml:2: invalid YAML: failed to decode base64"),
        ("name: a\n<<: 5", "yaml:2: invalid YAML: expected a mapping"),
        ("seed: 1\n" * 10_000, "the key 'seed' occurs twice"),
        ("name: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("name: 2026-13-45", "yaml:1: the value '2026-13-45' cannot be read (month must be in 1..12)"),
        (f"seed: {'9' * 6000}", "has 6000 characters; a value that is not text has at most 100"),
        ("name: !!float x", "cannot be read"),
        ("name: a\n#" + " " * (1 << 20), "is larger than 1048576 bytes"),
    ],
)  # fmt: skip
def test_malicious_yaml_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        Recipe.load(tmp_path / "recipe.yaml")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 2000


def properties_of(schema: object, path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the properties of a JSON Schema and of the schemas in it, with their paths."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from ((f"{path}.{name}", value) for name, value in properties.items())
        for key, value in schema.items():
            yield from properties_of(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from properties_of(value, path)


def test_every_property_of_the_json_schema_is_described() -> None:
    properties = dict(properties_of(json_schema()))
    assert len(properties) > 150
    assert [path for path, value in properties.items() if not value.get("description")] == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"source": {"path": "a"}, "stages": ["c4", "gopher_qualty"]},
            "Recipe.stages[1]: unknown stage 'gopher_qualty'\n  hint: did you mean 'gopher_quality'?",
        ),
        (
            {"source": {"path": "a"}, "stages": [{"gopher_quality": {"min_word": 5}}]},
            "unknown key 'stages.gopher_quality.min_word'\n  hint: did you mean 'min_words'?",
        ),
        (
            {"source": {"path": "a", "formt": "csv"}, "stages": []},
            "Recipe: unknown key 'source.formt'\n  hint: did you mean 'format'?",
        ),
        ({"source": {"path": "a"}, "stages": [], "sed": 1}, "Recipe: unknown key 'sed'"),
        ({"source": {"path": "a"}, "stages": ["dedup_exact", "c4"]}, "c4 must come before"),
        (
            {"sed": 1},
            "Recipe: 'source' is missing\n  hint: write `source: ...`\nRecipe: unknown key 'sed'",
        ),
    ],
)
def test_a_recipe_made_in_python_has_the_same_errors(
    settings: dict[str, object], expected: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(name="r", **settings)
    assert expected in str(caught.value)


def test_a_stage_or_source_made_in_python_has_the_same_errors() -> None:
    number: dict[str, Any] = {"min_word": 5}
    with pytest.raises(RecipeError, match=r"(?s)GopherQuality: unknown key.*'min_words'\?"):
        GopherQuality(**number)
    with pytest.raises(RecipeError, match="GopherQuality: min_words: .*, not 'five'"):
        GopherQuality(min_words="five")
    columns: dict[str, Any] = {"colums": {}}
    with pytest.raises(RecipeError, match=r"(?s)Source: unknown key 'colums'.*'columns'\?"):
        Source(path="a", **columns)


def test_a_recipe_may_have_a_function_of_a_module(tmp_path: Path) -> None:
    file = tmp_path / "functions_of_recipes.py"
    file.write_text("def keep(table):\n    return [True] * len(table)\n")
    sys.path.insert(0, str(tmp_path))
    try:
        keep = importlib.import_module("functions_of_recipes").keep
    finally:
        sys.path.remove(str(tmp_path))
    stages = [keep, {"python": {"call": keep, "per": "document", "name": "again"}}]
    recipe = Recipe(name="r", source={"path": "a"}, stages=stages)
    written = load(
        tmp_path,
        "name: r\nsource: {path: a}\nstages:\n  - python: functions_of_recipes:keep\n"
        "  - python: {call: functions_of_recipes:keep, per: document, name: again}\n",
    )
    assert recipe.stages == written.stages
    assert recipe.fingerprint() == written.fingerprint()
    before = recipe.fingerprint()
    file.write_text("def keep(table):\n    return [False] * len(table)\n")
    assert recipe.fingerprint() != before
    assert Recipe.load(_written(tmp_path, recipe)).stages == recipe.stages


def _written(folder: Path, recipe: Recipe) -> Path:
    file = folder / "written.yaml"
    file.write_text(recipe.to_yaml())
    return file


def test_a_function_that_no_module_defines_is_refused() -> None:
    def inner(table: object) -> object:
        return table

    for function in (inner, lambda table: table, functools.partial(inner)):
        with pytest.raises(RecipeError, match="no module defines the function .* import it from"):
            Recipe(name="r", source={"path": "a"}, stages=[function])


def test_whatever_loads_a_recipe_takes_the_names_of_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = [getattr(etl, name) for name in etl.__all__ if name.islower()]
    loading = [each for each in functions if "recipe" in inspect.signature(each).parameters]
    assert len(loading) >= 4
    assert [each for each in loading if "env" not in inspect.signature(each).parameters] == []
    for command in get_command(app).commands.values():
        if any(parameter.metavar == "RECIPE" for parameter in command.params):
            assert "--env" in [option for parameter in command.params for option in parameter.opts]

    file = tmp_path / "web.yaml"
    file.write_text(GOOD.replace("path: raw/*.parquet", "path: '${CORPUS}/*.parquet'"))
    monkeypatch.setenv("CORPUS", "/none")
    with pytest.raises(RecipeError, match="--env CORPUS"):
        etl.plan(file)
    with pytest.raises(SourceError, match=r"/none/\*.parquet: no files found"):
        etl.plan(file, env=["CORPUS"])
    assert etl.make_trial(file, limit=1, env=["CORPUS"]).source.paths == ("/none/*.parquet",)
