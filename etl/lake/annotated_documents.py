"""Check that annotations match documents: a key that no document has is a mistake."""

from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from etl.delta.live_rows import read_live_row_groups
from etl.delta.table import Table
from etl.recipe.recipe import Recipe
from etl.stages.annotation_table import KEY_COLUMNS
from etl.stages.filters.annotate import Annotate

_EXAMPLES: Final = 3


def check_annotations(
    recipe: Recipe, documents: Table, filled: Collection[str] | None = None
) -> None:
    """Raise RecipeError if no document has a value from the table of a stage ``annotate``.

    ``filled`` are the columns that have a value in some document. By default they are found by reading these
    columns of the table, up to the first value. A table without documents has no errors.
    """
    stages = [stage for stage in recipe.stages if isinstance(stage, Annotate)]
    if not stages or not any(file["rows"] for file in documents.files("rows")):
        return
    for stage in stages:
        columns = [*stage.columns()]
        known = _filled(documents, columns) if filled is None else filled
        if not {*columns} & {*known}:
            raise stage.no_match_error(_examples(documents, KEY_COLUMNS[stage.key]))


def _filled(documents: Table, columns: list[str]) -> set[str]:
    """Return the columns that have a value in the first row group in which one of them has."""
    for file in documents.files("path", "vector"):
        for rows in read_live_row_groups(documents.url, file, columns):
            if filled := {name for name in columns if rows[name].null_count < rows.num_rows}:
                return filled
    return set()


def _examples(documents: Table, columns: tuple[str, ...]) -> pa.Table:
    """Return some documents that have the first of some columns."""
    for file in documents.files("path", "vector"):
        for rows in read_live_row_groups(documents.url, file, [*columns]):
            some = rows.filter(pc.is_valid(rows[columns[0]]))
            if some.num_rows:
                return some.slice(0, _EXAMPLES)
    return rows.slice(0, 0)
