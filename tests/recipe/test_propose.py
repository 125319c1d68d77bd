"""Proposed recipes: they load, and have the stages that suit the documents."""

import json
from pathlib import Path

import pytest

from etl import pipelines
from etl.recipe.propose import Proposal, propose_recipe
from etl.recipe.recipe import Recipe
from etl.text import segmenters

SAMPLE = Path(pipelines.__file__).parent / "sample"
GERMAN = "Der Hund läuft schnell durch den großen Garten, und die Katze schläft im Haus."
ENGLISH = "The dog runs quickly through the large garden, and the cat sleeps in the house."


def load(proposal: Proposal, folder: Path) -> Recipe:
    (folder / "proposed.yaml").write_text(proposal.text)
    return Recipe.load(folder / "proposed.yaml")


def propose(folder: Path, *texts: str, **columns: str) -> Proposal:
    lines = [json.dumps({"content": text, **columns}) for text in texts]
    (folder / "raw.jsonl").write_text("\n".join(lines))
    return propose_recipe(str(folder / "raw.jsonl"))


def test_a_proposal_is_a_recipe(tmp_path: Path) -> None:
    tokenizer = str(SAMPLE / "tokenizer.json")
    proposal = propose_recipe(str(SAMPLE / "*.parquet"), lake="s3://b/l", tokenizer=tokenizer)
    recipe = load(proposal, tmp_path)
    assert recipe.name == "sample"
    assert recipe.lake == "s3://b/l"
    assert recipe.source.columns.known == {"text": "content", "id": "doc_id", "url": "url"}
    assert proposal.stages == tuple(stage.kind for stage in recipe.stages)
    assert proposal.stages[-1] == "tokenize"
    assert max(map(len, proposal.text.splitlines())) <= 80 + len(str(SAMPLE))


def test_the_languages_of_the_documents_are_kept(tmp_path: Path) -> None:
    proposal = propose(tmp_path, *[ENGLISH] * 60, *[GERMAN] * 39, "Le chat dort dans la maison.")
    language, repetition, *_ = load(proposal, tmp_path).stages
    assert language.model_dump()["keep"] == ("en", "de"), "French is less than 2 %"
    assert repetition.model_dump()["languages"] == "fineweb2"
    assert "# Languages of the sample: en 60%, de 39%" in proposal.text
    assert "extract" not in proposal.stages


def test_a_proposal_needs_no_extra_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    japanese = "犬が庭を走り、猫は家で眠っています。今日は天気が良いです。"
    found = propose(tmp_path, *[japanese] * 20)
    assert found.text.count("words: dictionary}") == 2
    monkeypatch.setitem(segmenters.PACKAGES, "ja", ("not-installed",))
    found = propose(tmp_path, *[japanese] * 20)
    assert "words: dictionary}" not in found.text
    assert "pip install 'tokenlake[segmenters]'" in " ".join(found.text.replace("#", "").split())
    load(found, tmp_path)


def test_a_lake_is_named_after_its_recipe(tmp_path: Path) -> None:
    assert "\nlake: lakes/raw\n" in propose(tmp_path, ENGLISH).text


def test_pages_get_stages_for_the_web(tmp_path: Path) -> None:
    page = f"<html><body><p>{ENGLISH}</p></body></html>"
    proposal = propose(tmp_path, page, page, link="https://example.org/")
    assert proposal.is_html
    assert proposal.stages[0] == "extract"
    assert {"c4", "fineweb_quality", "pii"} < {*proposal.stages}
    load(proposal, tmp_path)


def technical(index: int) -> str:
    """Return English prose with many numbers: a third of its words have no letter."""
    words = [
        f"number {index * n} of 12 , {n} is the {n * 7} that we have in the list ."
        for n in range(9)
    ]
    return " ".join(f"{name} and {text}" for name, text in zip("abcdefghi", words, strict=True))


def test_a_rule_that_rejects_most_is_named_and_its_limit_loosened(tmp_path: Path) -> None:
    proposal = propose(tmp_path, *map(technical, range(3, 53)))
    quality = next(s for s in load(proposal, tmp_path).stages if s.kind == "gopher_quality")
    limit = quality.model_dump()["min_alpha_word_ratio"]
    assert 0.3 < limit < 0.8
    assert 2 * proposal.kept >= proposal.judged == 50
    (change,) = [each for each in proposal.changes if "few_alpha_words" in each]
    assert change.startswith("`gopher_quality.few_alpha_words` rejects ")
    assert f"the proposal has min_alpha_word_ratio: {limit}" in change
    assert change in " ".join(proposal.text.replace("#", " ").split())


def test_a_limit_of_a_language_is_loosened(tmp_path: Path) -> None:
    texts = [f"{GERMAN} Das ist der Satz mit der Nummer {n}." for n in range(40)]
    proposal = propose(tmp_path, *texts)
    assert proposal.kept >= 20
    quality = next(s for s in load(proposal, tmp_path).stages if s.kind == "gopher_quality")
    assert quality.model_dump()["languages"]["de"]["min_words"] < 30
    assert any("`gopher_quality.short` rejects 40 of 40" in each for each in proposal.changes)


def test_good_texts_keep_the_defaults() -> None:
    proposal = propose_recipe(str(SAMPLE / "*.parquet"))
    assert 2 * proposal.kept >= proposal.judged > 100
    assert proposal.changes == ()
    assert proposal.doubts == ()


def test_doubts_are_comments(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id;when\n" + "".join(f"{n};2026-01-{n:02}\n" for n in range(1, 29))
    )
    proposal = propose_recipe(str(tmp_path / "a.csv"))
    assert load(proposal, tmp_path).source.delimiter == ";"
    assert "'when' holds dates or numbers" in proposal.doubts[0]
    assert any("the language of " in doubt for doubt in proposal.doubts)
    written = " ".join(proposal.text.replace("#", " ").split())
    assert all(f"DOUBT: {doubt}." in written for doubt in proposal.doubts)


@pytest.mark.parametrize("name", ["no", "a: b", "${HOME}", "ü # x", "'"])
def test_any_name_of_a_file_and_column_is_quoted(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.jsonl"
    file.write_text(json.dumps({name: ENGLISH, f"{name}2": 1}))
    recipe = load(propose_recipe(str(file)), tmp_path)
    assert recipe.source.path == str(file)
    assert recipe.source.columns.text == name
