"""Deduplication against another lake, whose kept documents win, by its keys or its signatures."""

from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.lineage_graph import graph, trace
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import MismatchError, RecipeError, TableError
from etl.job.plan import make_plan
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import DedupExact, DedupMinhash, DedupParagraphs
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import make, record, words, write
from tests.helpers.paths import NewPlace, copy, remove

SETTINGS = {"verify": "exact", "bands": 28, "rows": 4}


def near(**settings: Any) -> DedupMinhash:
    return DedupMinhash.model_validate({**SETTINGS, **settings})


@pytest.fixture(scope="module")
def other(client: Client, new_place: NewPlace) -> Recipe:
    """Run two versions of a lake: four documents, then a duplicate and one more document."""
    folder = new_place("other")
    texts = [words(k) for k in range(4)]
    source = write(folder / "in", [record(f"other-{k}", text) for k, text in enumerate(texts)], 2)
    recipe = make(folder / "lake", source, "dedup_exact", near())
    run(recipe, cluster=client)
    write(source, [record("other-dup", ["Other", *words(1)[1:]]), record("later", words(50))], 1, 5)
    run(recipe, cluster=client)
    return recipe


def mine(folder: UPath, *stages: Any) -> Recipe:
    """Write six documents: equal to, similar to and unlike documents of the other lake, and two copies."""
    records = [
        record("equal", words(0)),
        record("similar", ["New", *words(1)[1:]]),
        record("later-equal", words(50)),
        record("own", words(77)),
        record("own-copy", words(77)),
        record("similar-copy", ["New", *words(1)[1:]]),
    ]
    return make(folder / "lake", write(folder / "in", records, 3), *stages)


def duplicates(recipe: Recipe) -> dict[str, tuple[object, str, str]]:
    """Map each duplicate to its keeper's lake (None: its own), the keeper's file and row, and the kind."""
    return {
        str(row["id"]): (
            row.get("keeper_lake"),
            f"{Path(str(row['keeper_source'])).stem}:{row['keeper_row']}",
            str(row["kind"]),
        )
        for row in rows(recipe.lake, "duplicates")
    }


def stays(recipe: Recipe) -> set[str]:
    kept = {str(row["id"]) for row in rows(recipe.lake, "documents")}
    return kept - {str(row["id"]) for row in rows(recipe.lake, "duplicates")}


@pytest.mark.parametrize("has_keys", [True, False])
def test_duplicates_of_the_other_lake_are_dropped(
    client: Client, place: UPath, other: Recipe, has_keys: bool
) -> None:
    lake = copy(other.lake, place / "copy")
    if not has_keys:
        remove(lake / "keys")
    recipe = mine(place, DedupExact(against=str(lake)), near(against=[{"lake": str(lake)}]))
    assert run(recipe, cluster=client).ok
    url = storage.normalize(str(lake))
    address = {
        r["id"]: f"{Path(str(r['source'])).stem}:{r['row']}" for r in rows(str(lake), "documents")
    }
    twin = duplicates(recipe)["own-copy"]
    assert twin[0] is None
    assert twin[2] == "exact"
    assert duplicates(recipe) == {
        "equal": (url, address["other-0"], "exact"),
        "similar": (url, address["other-1"], "near"),
        "similar-copy": (url, address["other-1"], "near"),
        "later-equal": (url, address["later"], "exact"),
        "own-copy": twin,
    }
    assert verify(str(recipe.lake)) == []
    (traced,) = trace(str(recipe.lake), id="similar")
    assert traced.outcome.endswith(f"in {url}")
    assert traced.duplicate is not None
    assert traced.duplicate.keeper_lake == url
    tables = [f"{url}/{n}" for n in ("texts", "duplicates", *(["keys"] if has_keys else []))]
    node = graph(f"{recipe.lake}/duplicates")
    assert [table.name for table in node.others] == tables
    assert f"{url}/texts version" in str(node)
    assert not make_plan(recipe).has_work()


def test_units_are_cut_in_a_run_against_another_lake(
    client: Client, place: UPath, other: Recipe
) -> None:
    records = [
        record("equal", words(0)),
        record("first", [*words(90), "\n\n", *words(91)]),
        record("second", [*words(90), "\n\n", *words(92)]),
    ]
    source = write(place / "in", records, 1)
    stages = DedupExact(against=str(other.lake)), DedupParagraphs(min_rest_chars=20)
    recipe = make(place / "lake", source, *stages)
    assert run(recipe, cluster=client).ok
    lakes = {
        row["id"]: (row["kind"], row["keeper_lake"]) for row in rows(recipe.lake, "duplicates")
    }
    other_lake = storage.normalize(str(other.lake))
    assert lakes == {"equal": ("exact", other_lake), "second": ("cut", None)}
    assert verify(str(recipe.lake)) == []


def test_only_stages_with_against_read_the_other_lake(
    client: Client, place: UPath, other: Recipe
) -> None:
    exact = mine(place / "a", DedupExact(against=other.lake), near())
    assert run(exact, cluster=client).ok
    assert stays(exact) == {"similar", "own"}
    similar = mine(place / "b", "dedup_exact", near(against=other.lake))
    assert run(similar, cluster=client).ok
    assert stays(similar) == {"own"}
    assert duplicates(similar)["equal"][2] == "near"


def test_a_version_of_the_other_lake_can_be_pinned(
    client: Client, place: UPath, other: Recipe
) -> None:
    """The version is from before the other lake's last file; a later run reads the same version."""
    version = Table.open(f"{other.lake}/texts").version - 2  # the last ends the arrival
    reference = {"lake": other.lake, "version": version}
    recipe = mine(place, DedupExact(against=reference), near(against=reference))
    assert run(recipe, cluster=client).ok
    assert stays(recipe) == {"later-equal", "own"}
    write(place / "in", [record("more", words(3)), record("again", words(50))], 1, 9)
    assert run(recipe, cluster=client).ok
    assert stays(recipe) == {"later-equal", "own"}
    assert duplicates(recipe)["again"][0] is None
    assert duplicates(recipe)["more"][0] == storage.normalize(str(other.lake))


def test_several_runs_give_the_duplicates_of_one_run(
    client: Client, place: UPath, other: Recipe
) -> None:
    stages = [DedupExact(against=other.lake), near(against=other.lake)]
    whole = mine(place, *stages)
    run(whole, cluster=client)
    grown = make(place / "grown", place / "some", *stages)
    for file in sorted((place / "in").iterdir()):
        (place / "some").mkdir(exist_ok=True)
        (place / "some" / file.name).write_bytes(file.read_bytes())
        run(grown, cluster=client)
    assert {k: v[1:] for k, v in duplicates(grown).items()} == {
        k: v[1:] for k, v in duplicates(whole).items()
    }


def test_keys_of_other_bands_are_computed_from_signatures(
    client: Client, place: UPath, other: Recipe
) -> None:
    recipe = mine(place, near(bands=56, rows=2, against=other.lake))
    (lake,) = make_plan(recipe).others
    assert lake.keyed == ("exact",)
    assert run(recipe, cluster=client).ok
    assert stays(recipe) == {"own"}


def test_a_reference_that_does_not_match_is_an_error(
    client: Client, place: UPath, other: Recipe
) -> None:
    def refused(kind: type[Exception], match: str, *stages: Any) -> None:
        with pytest.raises(kind, match=match):
            make_plan(mine(place, *stages))

    here = other.lake
    refused(MismatchError, "ngram 5 there, 3 here", near(ngram=3, against=here))
    refused(MismatchError, "permutations 112 there, 56 here", near(bands=14, against=here))
    refused(
        MismatchError, "whitespace there, none here", DedupExact(normalize="none", against=here)
    )
    refused(TableError, "has no version 99", DedupExact(against={"lake": here, "version": 99}))
    refused(TableError, "no Delta table", DedupExact(against=str(place / "nowhere")))
    refused(RecipeError, "with itself", DedupExact(against=str(place / "lake")))
    both = {"lake": here, "version": 1}
    refused(RecipeError, "two versions", DedupExact(against=both), near(against=here))
    plain = mine(place / "plain", "dedup_exact")
    run(plain, cluster=client)
    refused(MismatchError, "no column signature", near(against=plain.lake))


def test_a_version_before_a_rebuild_is_an_error(client: Client, place: UPath) -> None:
    old = mine(place / "old", "dedup_exact")
    version = run(old, cluster=client).versions["texts"]
    run(old, cluster=client, rebuild=True)
    reference = {"lake": str(old.lake), "version": version}
    with pytest.raises(MismatchError, match="were rebuilt after version"):
        make_plan(mine(place, DedupExact(against=reference)))


def test_the_reference_is_part_of_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    text = "name: r\nsource: {path: in}\nlake: lake\nstages:\n  - dedup_exact"
    file.write_text(text)
    plain = Recipe.load(file)
    forms = ["s3://a", "{lake: s3://a, version: 3}", "[s3://a, {lake: other}]"]
    recipes = []
    for form in forms:
        file.write_text(f"{text}: {{against: {form}}}\n")
        recipes.append(Recipe.load(file))
    prints = {recipe.fingerprint("duplicates") for recipe in (plain, *recipes)}
    assert len(prints) == 4
    assert len({recipe.fingerprint("documents") for recipe in (plain, *recipes)}) == 1
    (_, second) = recipes[-1].references["exact"]
    assert second.lake == str(tmp_path / "other")
    assert all(Recipe.model_validate(recipe.model_dump()) == recipe for recipe in recipes)
    assert "against" not in plain.canonical()["stages"][0]
    for recipe in recipes:
        file.write_text(recipe.to_yaml())
        assert Recipe.load(file) == recipe
