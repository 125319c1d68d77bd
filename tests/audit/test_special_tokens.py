"""Documents that spell a special token, in a whole run: counted, kept as text or token, or rejected."""

from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_report import report
from etl.audit.trace import trace
from etl.audit.verify.verify import verify
from etl.job.plan import make_plan
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.lake_rows import rows

EOS = "<|endoftext|>"
TEXTS = (prose(1), f"{EOS} {prose(2)}", prose(3), prose(4) + EOS, f"{EOS} {prose(2)}")
SPELLED = {"d1", "d3"}  # d4 is a duplicate


def make(place: UPath, tokenizer: Path, setting: str, *, dedup: bool = True) -> Recipe:
    records = [{"doc_id": f"d{n}", "body": text} for n, text in enumerate(TEXTS)]
    write_jsonl(place / "in.jsonl", records)
    tokenize = {"tokenize": {"tokenizer": str(tokenizer), "special_tokens": setting}}
    return Recipe(
        name="special",
        source={"path": str(place / "in.jsonl"), "columns": {"text": "body", "id": "doc_id"}},
        lake=str(place / f"lake-{setting}"),
        stages=["gopher_quality", *(["dedup_exact"] if dedup else []), tokenize],
    )


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("setting", ["text", "keep"])
def test_documents_that_spell_a_special_token_are_counted(
    client: Client, place: UPath, tiny_tokenizer: Path, setting: str, dedup: bool
) -> None:
    recipe = make(place, tiny_tokenizer, setting, dedup=dedup)
    count = 2 if dedup else 3
    assert run(recipe, cluster=client).special_texts == count
    lake = str(recipe.lake)
    assert report(lake).special_texts == count
    assert f"special     {count} documents whose text spells a special token" in (
        etl("report", lake).output
    )
    assert verify(lake) == []
    ids: dict[object, Any] = {row["id"]: row["tokens"] for row in rows(lake, "tokens")}
    inside = {id for id, tokens in ids.items() if 0 in tokens[:-1]}
    assert inside & SPELLED == (SPELLED if setting == "keep" else set())
    assert all(tokens[-1] == 0 for tokens in ids.values())


def test_rejected_documents_are_accounted_for(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    recipe = make(place, tiny_tokenizer, "reject")
    assert [stage.kind for stage in recipe.stages] == [
        "gopher_quality", "special_tokens", "dedup_exact", "tokenize"
    ]  # fmt: skip
    result = run(recipe, cluster=client)
    assert (result.rejected, result.special_texts) == ({"special_tokens.spelled": 3}, 0)
    lake = str(recipe.lake)
    assert verify(lake) == []
    assert report(lake).rejected == {"special_tokens.spelled": 3}
    [found] = trace(lake, id="d3")
    assert found.outcome == f"rejected by special_tokens.spelled: {EOS}"
    assert {row["id"] for row in rows(lake, "tokens")} == {"d0", "d2"}
    assert "special_tokens" in etl("tune", lake, "--set", "gopher_quality.min_words=20").output
    assert not make_plan(recipe).has_work()


def test_a_recipe_that_rejects_can_be_saved_and_read_again(
    place: UPath, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    recipe = make(place, tiny_tokenizer, "reject")
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    again = Recipe.load(tmp_path / "recipe.yaml")
    assert again == recipe
    assert again.fingerprint() == recipe.fingerprint()
    other = make(place, tiny_tokenizer, "text")
    assert other.fingerprint("documents") != recipe.fingerprint("documents")
    recorded = Recipe.recorded(recipe.canonical(), where="a lake")
    assert [s.kind for s in recorded.stages] == [s.kind for s in recipe.stages]
