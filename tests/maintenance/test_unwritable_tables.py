"""Planning refuses a lake whose tables the run could not write, before any input is read."""

import deltalake
import pytest

from etl import storage
from etl.errors import TableError
from etl.job.plan import Drops, make_plan
from etl.recipe.recipe import Recipe


def delta(recipe: Recipe, table: str) -> deltalake.DeltaTable:
    url = f"{recipe.lake}/{table}"
    return deltalake.DeltaTable(url, storage_options=storage.delta_options(url))


@pytest.mark.parametrize("table", ["documents", "duplicates", "keys", "tokens"])
def test_a_constraint_of_another_program_is_reported_by_the_plan(
    recipe: Recipe, table: str
) -> None:
    column = "num_tokens" if table == "tokens" else "unit" if table == "keys" else "row"
    delta(recipe, table).alter.add_constraint({"known": f"{column} IS NOT NULL"})
    with pytest.raises(TableError, match="checkConstraints"):
        make_plan(recipe)


def test_the_rebuild_of_an_append_only_table_is_refused_by_the_plan(recipe: Recipe) -> None:
    delta(recipe, "tokens").alter.set_table_properties({"delta.appendOnly": "true"})
    assert not make_plan(recipe).has_work()
    with pytest.raises(TableError, match=r"delta\.appendOnly"):
        make_plan(recipe, Drops(rebuild=True))
