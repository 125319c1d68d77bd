"""A change of annotations reads no text, and a lake then equals one that has run the new recipe."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import RecipeError
from etl.job import plan_report
from etl.job.change_plan import plan_change
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake.table_digest import table_digest
from etl.recipe.recipe import Recipe
from tests.helpers.annotations import KEYS, annotate, annotations
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.lake_rows import rows
from tests.helpers.overlapping_runs import overlaps
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import STAGES, Chain, MakeRecipe, Stages, Step, maker

TABLES = ("documents", "texts", "tokens")
TRANSFORMS: tuple[Stages, ...] = ((), ("unicode",), ({"c4": {"min_sentences": 1}},))
FILE_RECORDS = 50
NUM_RECORDS = 150


def write_records(place: UPath) -> None:
    """Write records to files, whose rows are numbered from 0."""
    for start in range(0, NUM_RECORDS, FILE_RECORDS):
        few = records(start, start + FILE_RECORDS)
        write_jsonl(place / "corpus" / f"{start:03}.jsonl", few)


def annotated_records(place: UPath, key: str, modulus: int) -> pa.Table:
    """Return annotations of every second record, with its texts as each of TRANSFORMS leaves it."""
    numbers = range(0, NUM_RECORDS, FILE_RECORDS)
    files = {
        f"file://{place}/corpus/{start:03}.jsonl": records(start, start + FILE_RECORDS)
        for start in numbers
    }
    return annotations(files, key, modulus, TRANSFORMS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("annotations")


@pytest.fixture
def make(new_place: NewPlace, tiny_tokenizer: Path) -> tuple[UPath, MakeRecipe]:
    """Return a folder with records, and a function that makes a recipe over them for a lake."""
    place = new_place("annotated")
    write_records(place)
    return place, maker(place, tiny_tokenizer)


def digests(recipe: Recipe) -> dict[str, int]:
    return {name: table_digest(Table.open(recipe.table_url(name))) for name in TABLES}


def data_files(recipe: Recipe, table: str) -> set[str]:
    return {file["path"] for file in Table.open(recipe.table_url(table)).files("path")}


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize("key", KEYS)
def test_a_new_version_is_a_change(
    client: Client, make: tuple[UPath, MakeRecipe], folder: Path, key: str, kind: str
) -> None:
    """Texts are read only of documents that come, and only they are added."""
    place, recipe = make
    table = Path(folder, f"{key}-{kind}")
    condition = {"where": "coalesce(annotate_score, 3) > 1"}
    for version, modulus in enumerate((6, 4)):
        values = annotated_records(place, key, modulus)
        if kind == "delta":
            deltalake.write_deltalake(str(table), values, mode="overwrite")
        else:
            table.mkdir(exist_ok=True)
            for number, part in enumerate((values[:20], values[20:])):
                pq.write_table(part, table / f"{number}.parquet")
        stage = annotate(table, key, version=version if kind == "delta" else None)
        new = recipe(place / "lake", [stage, condition])
        if version == 0:
            run(new, cluster=client)
            before = {row["id"] for row in rows(new.lake, "texts")}
    plan = plan_change(new)
    assert plan is not None
    assert (plan.refusals, plan.stored_texts) == ((), 0)
    assert 0 < plan.come == plan.records
    run(new, cluster=client, apply_change=True)
    after = {row["id"] for row in rows(new.lake, "texts")}
    assert (plan.leave, plan.come) == (len(before - after), len(after - before))
    assert [*verify(str(new.lake))] == []
    fresh = recipe(place / "fresh", [stage, condition])
    run(fresh, cluster=client)
    assert digests(new) == digests(fresh)
    assert sum(row["annotate_score"] is not None for row in rows(new.lake, "documents")) > 30


@pytest.mark.parametrize("key", KEYS)
def test_an_added_stage_writes_only_documents(
    client: Client, make: tuple[UPath, MakeRecipe], folder: Path, key: str
) -> None:
    """Most input is not there any more: nothing is read from it."""
    place, recipe = make
    path = folder / f"added-{key}.parquet"
    pq.write_table(annotated_records(place, key, 4), path)
    label = {"score": "score", "law": {"column": "topic", "equals": "law"}}
    stages = [STAGES[0], annotate(path, key, values=label)]
    fresh = recipe(place / "fresh", stages)
    run(fresh, cluster=client)
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    new = recipe(place / "lake", stages)
    held = {name: data_files(new, name) for name in TABLES}
    for start in range(0, NUM_RECORDS - FILE_RECORDS, FILE_RECORDS):
        (place / "corpus" / f"{start:03}.jsonl").unlink()
    plan = plan_change(new)
    assert plan is not None
    assert (plan.leave, plan.come, plan.stored_texts, plan.records) == (0, 0, 0, 0)
    run(new, cluster=client, apply_change=True)
    assert held["documents"].isdisjoint(data_files(new, "documents"))
    assert all(held[name] == data_files(new, name) for name in TABLES[1:])
    assert digests(new) == digests(fresh)


def test_decisions_remain_if_the_same_documents_are_compared(
    client: Client, make: tuple[UPath, MakeRecipe], folder: Path
) -> None:
    """A change of values that deduplication prefers documents by is not such a change."""
    place, recipe = make
    tables = ("duplicates", "keys", "tokens", "tokens_shuffled")

    def annotated(lake: str, modulus: int, *keep: str) -> Recipe:
        path = folder / f"decisions-{modulus}.parquet"
        pq.write_table(annotated_records(place, "url", modulus), path)
        near = {"dedup_minhash": {"keep": {"highest": keep[0]}} if keep else {}}
        return recipe(place / lake, [annotate(path, "url"), "dedup_exact", near])

    run(annotated("lake", 4), cluster=client)
    shuffle(str(place / "lake"), cluster=client)
    held = {name: data_files(annotated("lake", 4), name) for name in tables}
    assert all(held.values())
    new = annotated("lake", 6)
    plan = plan_change(new)
    assert plan is not None
    assert (plan.arrivals, plan.others > 10) == (0, True)
    run(new, cluster=client, apply_change=True)
    assert {name: data_files(new, name) for name in tables} == held
    assert plan_change(new) is None
    assert [*verify(str(new.lake))] == []
    preferred = annotated("lake", 4, "annotate_score")
    run(preferred, cluster=client, apply_change=True)
    last = annotated("lake", 6, "annotate_score")
    run(last, cluster=client, apply_change=True)
    fresh = annotated("fresh", 6, "annotate_score")
    run(fresh, cluster=client)
    for name in (*TABLES, "duplicates"):
        one, other = (table_digest(Table.open(each.table_url(name))) for each in (last, fresh))
        assert one == other


def test_annotations_that_no_document_has_are_an_error(
    client: Client, make: tuple[UPath, MakeRecipe], folder: Path
) -> None:
    """The error has keys of both sides; a change is not committed."""
    place, recipe = make
    path = folder / "none.parquet"
    pq.write_table(pa.table({"url": ["http://x/0", "http://x/1"], "score": [1.0, 2.0]}), path)
    stage = annotate(path, "url")
    message = r"no url is in both\s+hint: documents have 'https://x/.*; the table has 'http://x/0'"
    wrong = recipe(place / "wrong", [stage])
    sample = plan_report.plan(wrong).sample
    assert sample is not None
    assert "63 documents of the sample have no value" in sample.warnings[0]
    with pytest.raises(RecipeError, match=message):
        run(wrong, cluster=client)
    run(recipe(place / "lake", []), cluster=client)
    before = Table.open(recipe(place / "lake", []).table_url("documents")).version
    with pytest.raises(RecipeError, match=message):
        run(recipe(place / "lake", [stage]), cluster=client, apply_change=True)
    assert Table.open(recipe(place / "lake", []).table_url("documents")).version == before


STEPS = st.builds(
    Step,
    stages=st.lists(st.sampled_from(STAGES), max_size=2, unique_by=lambda each: str(each)[:10]),
    position=st.integers(0, 2),
    care=st.sampled_from(["", "", "optimize", "add a file", "lose a file", "shuffle"]),
    table=st.sampled_from(TABLES),
    kill=st.integers(0, 4),
    is_finished=st.booleans(),
    overlap=st.none() | overlaps(commits=3),
)
ANNOTATED = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from([3, 4]),
    st.sampled_from(["keep", "reject"]),
    st.sampled_from(
        [None, "annotate_score > 0", "coalesce(annotate_score, 2) < 2 OR num_words > 80"]
    ),
    st.sampled_from([{"score": "score"}, {"score": "score", "even": "is_even"}]),
    st.booleans(),  # before the transforms, if that is possible
)


@pytest.mark.slow
@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    steps=st.lists(st.tuples(STEPS, st.none() | ANNOTATED), min_size=2, max_size=4),
    transforms=st.sampled_from(TRANSFORMS),
)
def test_chains_of_changes_with_annotations(
    client: Client,
    new_place: NewPlace,
    tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[Step, Any]],
    transforms: Stages,
) -> None:
    place = new_place("chain")
    write_records(place)
    make = maker(place, tiny_tokenizer)

    def recipe(lake: str, step: Step, annotated: Any) -> Recipe:
        first, last = step.stages[: step.position], step.stages[step.position :]
        if annotated is None:
            return make(place / lake, [*first, *transforms, *last])
        key, modulus, missing, condition, values, is_first = annotated
        path = place / f"{key}-{modulus}.parquet"
        path.write_bytes(_parquet(annotated_records(place, key, modulus)))
        stages = [annotate(path, key, missing=missing, values=values)]
        stages += [] if condition is None else [{"where": condition}]
        if is_first and key != "content_hash":
            return make(place / lake, [*stages[:1], *first, *transforms, *stages[1:], *last])
        return make(place / lake, [*first, *transforms, *stages, *last])

    chain = Chain(place, client, records)
    last = recipe("lake", *steps[0])
    chain.run(last)
    for step, annotated in steps[1:]:
        chain.take_care(last, step)
        last = chain.change(last, recipe("lake", step, annotated), step, monkeypatch)
        chain.check()
    chain.end(last)
    fresh = last.model_copy(update={"lake": str(place / "fresh")})
    chain.run(fresh)
    assert digests(last) == digests(fresh)


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())
