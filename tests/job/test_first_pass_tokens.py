"""Without deduplication, the first pass writes tokens, too: the same as the second, and never ahead."""

import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.job import read_step
from etl.job.run import run
from etl.job.run_report import RunReport
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_parquet
from tests.helpers.killed_runs import Outcome, end_run, outcome, start_run
from tests.helpers.lake_rows import addresses, rows, rows_by_table
from tests.helpers.paths import NewPlace
from tests.helpers.recipes import MakeRecipe

TEXTS = st.one_of(
    st.integers(0, 9).map(prose),
    st.integers(0, 9).map(lambda number: f"{prose(number)} <|endoftext|>"),
    st.sampled_from(["", "too short"]),
)
FILES = st.lists(st.lists(TEXTS, max_size=4), min_size=1, max_size=3)


def without(recipe: Recipe, *kinds: str) -> Recipe:
    stages = tuple(stage for stage in recipe.stages if stage.kind not in kinds)
    return recipe.model_copy(update={"stages": stages})


def with_source(recipe: Recipe, folder: UPath) -> Recipe:
    folder.mkdir(parents=True)
    source = recipe.source.model_copy(update={"path": str(folder)})
    return recipe.model_copy(update={"source": source})


@pytest.fixture(scope="module")
def undisturbed(client: Client, make_recipe: MakeRecipe, new_place: NewPlace) -> Outcome:
    recipe = without(make_recipe(new_place("undisturbed") / "lake"), "dedup_exact")
    run(recipe, cluster=client)
    return outcome(recipe)


@pytest.fixture
def fused(recipe: Recipe) -> Recipe:
    """A recipe whose first pass writes tokens."""
    return without(recipe, "dedup_exact")


@pytest.mark.parametrize("commit", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5))])
def test_a_run_killed_between_its_two_commits_resumes(
    client: Client, fused: Recipe, tmp_path: Path, undisturbed: Outcome, commit: int
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(fused.to_yaml())
    process = start_run(file, f"tokens-{commit}")
    assert process.wait(timeout=120) == -signal.SIGKILL
    end_run(process)
    kept = [row for row in rows(fused.lake, "documents") if row["verdict"] == "kept"]
    tokens = rows(fused.lake, "tokens")
    assert set(addresses(tokens)) < set(addresses(kept))
    run(fused, cluster=client)
    assert outcome(fused) == undisturbed


def test_another_run_tokenizes_the_documents_between_the_two_commits(
    client: Client, fused: Recipe, monkeypatch: pytest.MonkeyPatch, undisturbed: Outcome
) -> None:
    reports: list[RunReport] = []
    commit = read_step._commit_derived

    def run_first(context: Any, results: Any, step: Any) -> None:
        if step == "tokens":
            monkeypatch.setattr(read_step, "_commit_derived", commit)
            reports.append(run(fused, cluster=client))
        commit(context, results, step)

    monkeypatch.setattr(read_step, "_commit_derived", run_first)
    reports.append(run(fused, cluster=client))
    assert outcome(fused) == undisturbed
    num_tokens = pc.sum(pa.array(row["num_tokens"] for row in undisturbed["tokens"])).as_py()
    assert sum(report.tokens for report in reports) == num_tokens


@pytest.mark.slow
@settings(max_examples=6)
@given(files=FILES, first=st.integers(0, 3))
def test_both_passes_give_identical_tables(
    client: Client, make_recipe: MakeRecipe, new_place: NewPlace, files: list[list[str]], first: int
) -> None:
    """The first files are read by a run without tokens, so that the second pass tokenizes them."""
    folder = new_place("files")
    recipe = without(make_recipe(folder / "fused"), "dedup_exact")
    recipe = with_source(recipe, folder / "raw")
    separate = recipe.model_copy(update={"lake": str(folder / "separate")})

    def write(numbers: range) -> None:
        for number in numbers:
            records = [{"doc_id": None, "body": text, "link": None} for text in files[number]]
            write_parquet(folder / "raw" / f"{number}.parquet", records)

    first = min(first, len(files))
    write(range(first))
    if first:
        run(without(separate, "tokenize"), cluster=client)
    write(range(first, len(files)))
    whole, last = run(recipe, cluster=client), run(separate, cluster=client)
    assert rows_by_table(separate) == rows_by_table(recipe)
    assert verify(str(separate.lake)) == verify(str(recipe.lake)) == []
    assert (last.tokens, last.special_texts) == (whole.tokens, whole.special_texts)
