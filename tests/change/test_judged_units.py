"""Units are judged in batches of any size, and the records of several are judged at once."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from etl.change import changed_units, judged_units
from etl.change.judged_units import batch_units
from etl.delta.table import Table
from etl.job.run import run
from etl.lake.table_digest import table_digest
from tests.helpers.corpus import write_corpus
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import STAGES, maker

FILES = st.lists(
    st.fixed_dictionaries({"rows": st.integers(1, 1 << 15), "size": st.integers(1, 20 << 20)}),
    min_size=1,
    max_size=2,
)


@given(st.lists(FILES, max_size=12))
def test_batches_are_bounded(files: list[list[dict[str, Any]]]) -> None:
    units = {str(number): each for number, each in enumerate(files)}
    batches = [*batch_units(units)]
    assert [*units.items()] == [item for batch in batches for item in batch.items()]
    bounds = {"rows": judged_units._BATCH_ROWS, "size": judged_units._BATCH_BYTES}

    def fits(*batches: dict[str, Any]) -> bool:
        entries = [file for batch in batches for each in batch.values() for file in each]
        return all(sum(file[name] for file in entries) <= bound for name, bound in bounds.items())

    assert all(len(batch) == 1 or fits(batch) for batch in batches)
    assert not any(fits(*pair) for pair in pairwise(batches))


@pytest.mark.parametrize("size", [1, 50])
def test_a_change_does_not_depend_on_batches(
    client: Client,
    new_place: NewPlace,
    tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    place = new_place("batches")
    write_corpus(place / "corpus")
    recipe = maker(place, tiny_tokenizer)
    monkeypatch.setattr(judged_units, "_BATCH_ROWS", size)
    monkeypatch.setattr(changed_units, "_BATCH_BYTES", 1000 * size)
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    for stage in STAGES[1:4]:  # documents come, and texts are read
        run(recipe(place / "lake", [stage]), cluster=client, apply_change=True)
        run(recipe(place / "fresh", [stage]), cluster=client, rebuild=True)
        digests = [
            [table_digest(Table.open(f"{place / lake}/{name}")) for lake in ("lake", "fresh")]
            for name in ("documents", "texts", "tokens")
        ]
        assert all(changed == fresh for changed, fresh in digests)
