"""What deduplication removes of each group, against counts that a reader can check."""

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl import schemas
from etl.dedup.losses import LOST, Losses, collapsed_groups, count_lost
from etl.recipe.guard import Guard, groups_of

SOURCES = ("s3://raw/a/0", "s3://raw/a/1", "s3://raw/b/c/2")

kinds = st.sampled_from([None, *schemas.WHOLE, schemas.CUT, schemas.SHORT])
documents = st.fixed_dictionaries(
    {
        "source": st.sampled_from(SOURCES),
        "text_bytes": st.integers(0, 9),
        "lang": st.sampled_from([None, "de", "en"]),
        "kind": kinds,
        "similarity": st.sampled_from([0.0, 0.5, 1.0]),
        "is_estimate": st.sampled_from([None, False, True]),
        "keeper_source": st.sampled_from(SOURCES),
        "keeper_lake": st.sampled_from([None, None, "s3://lake"]),
    }
)


def counts_and_losses(document: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Return what a document adds to its groups: documents, lost documents, bytes and lost bytes."""
    size, kind = document["text_bytes"], document["kind"]
    is_here = document["keeper_source"] == document["source"] and document["keeper_lake"] is None
    if (
        kind in ("exact", "near")
        and document["similarity"] == 1
        and not document["is_estimate"]
        and not is_here
    ):
        return 0, 0, 0, 0
    if kind in ("exact", "near", "short"):
        return 1, 1, size, size
    return 1, 0, size, round(size * document["similarity"]) if kind == "cut" else 0


@given(st.lists(documents))
def test_documents_and_bytes_are_counted_as_by_a_loop(drawn: list[dict[str, Any]]) -> None:
    rows = [{**document, "row": row} for row, document in enumerate(drawn)]
    frame = pl.DataFrame(
        rows,
        schema={
            **dict.fromkeys(("source", "lang", "kind", "keeper_source", "keeper_lake"), pl.String),
            **dict.fromkeys(("row", "keeper_row"), pl.Int64),
            "text_bytes": pl.Int32,
            "similarity": pl.Float64,
            "is_estimate": pl.Boolean,
        },
    )
    columns = ["source", "row", "text_bytes", "lang"]
    decided = frame.drop("text_bytes", "lang").filter(pl.col("kind").is_not_null())
    counted = count_lost(frame.select(columns), decided)
    for source in SOURCES:
        each = [counts_and_losses(row) for row in rows if row["source"] == source]
        sums = tuple(sum(values) for values in zip((0, 0, 0, 0), *each, strict=True))
        found = counted.filter(source=source).select(LOST).row(0)
        assert tuple(value or 0 for value in found) == sums


shares = st.builds(
    lambda lost, kept: Losses(lost + kept, lost, 2 * (lost + kept), 2 * lost),
    st.integers(0, 12),
    st.integers(0, 4),
)


names = st.sampled_from([f"s3://raw/{path}" for path in ("a/x/0", "a/x/1", "a/y/2", "b/3", "4")])


@given(st.dictionaries(names, shares))
def test_what_is_reported_explains_all_groups_that_collapse(files: dict[str, Losses]) -> None:
    """If all that is reported is exempt, no group collapses; each that is reported does."""
    guard = Guard(min_documents=8, max_share=0.75)

    def groups(exempt: list[str]) -> dict[str, Losses]:
        found: dict[str, Losses] = {}
        for file, losses in files.items():
            if not Guard(exempt=exempt).is_exempt(file):
                for group in groups_of(file):
                    found.setdefault(group, Losses()).add(losses)
        return found

    reported = collapsed_groups(groups([]), guard)
    assert all(
        each.documents >= 8 and each.lost > 0.75 * each.documents for each in reported.values()
    )
    assert not collapsed_groups(groups([*reported]), guard)
    inside = [(a, b) for a in reported for b in reported if a != b and b.startswith(a)]
    assert not inside


@pytest.mark.parametrize(
    ("files", "reported"),
    [
        ({"b/0": (99, 0), "w/0": (0, 8)}, ["b/0"]),  # the folder s3://raw collapses because of it
        ({"b/0": (20, 1), "b/1": (20, 1), "w/0": (0, 9)}, ["b/"]),
        ({"b/0": (5, 0), "b/1": (5, 0), "w/0": (0, 9)}, ["b/"]),  # files too small to be judged
        ({"b/0": (50, 0), "w/0": (50, 9)}, [""]),
        ({"b/0": (50, 0), "w/0": (0, 50)}, ["b/0"]),
    ],
)
def test_the_fewest_folders_are_reported(
    files: dict[str, tuple[int, int]], reported: list[str]
) -> None:
    found: dict[str, Losses] = {}
    for file, (lost, kept) in files.items():
        for group in groups_of(f"s3://raw/{file}"):
            found.setdefault(group, Losses()).add(Losses(lost + kept, lost))
    collapsed = collapsed_groups(found, Guard(min_documents=8, max_share=0.8))
    assert [*collapsed] == [f"s3://raw/{name}" for name in reported]
