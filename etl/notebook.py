"""Apply stages to data in memory, for notebooks: the rows and columns remain, and verdicts are added.

The stages see the data as a run sees the same columns of a file: texts of any type become strings, and rows
without a usable text have a reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from etl import schemas
from etl.errors import RecipeError, TableError, nearest_names
from etl.frames import column_names, take, to_frame, with_columns
from etl.recipe.recipe_errors import explain_stage_errors
from etl.recipe.stage_list import StageList, parse_stage
from etl.sources import Columns, Source, Split
from etl.sources.batches import bound_batches, check_texts
from etl.sources.formats import columnar
from etl.sources.formats.column_values import is_binary, is_text
from etl.sources.records import MAX_ROWS
from etl.stages import STAGES, Filter, Stage, Transform
from etl.stages.apply import apply as apply_stages
from etl.stages.base import Rejected
from etl.stages.document_columns import judged_schema, split_at_transforms
from etl.stages.function import Function
from etl.stages.signals import with_needs

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

    Frame = TypeVar("Frame", pa.Table, pl.DataFrame, pd.DataFrame, dd.DataFrame)

OneStage = Stage | str | Mapping[str, Any] | Callable[[Any], Any]

ColumnNames = Columns | Mapping[str, str | None] | None

_BATCH_BYTES: Final = 16 << 20  # as in a run
_GIVEN: Final = (
    "source",
    "row",
    "metadata",
    "reason",
)  # of ``schemas.RAW``, as ``etl.read`` returns
_LANGUAGE: Final = frozenset({"lang", "lang_score"})


@overload
def apply(
    data: "Frame",
    stages: OneStage | Sequence[OneStage],
    *,
    columns: ColumnNames = None,
) -> "Frame": ...
@overload
def apply(
    data: Iterable[str | bytes | Mapping[str, Any] | None] | Mapping[str, Iterable[Any]],
    stages: OneStage | Sequence[OneStage],
    *,
    columns: ColumnNames = None,
) -> pl.DataFrame: ...
def apply(
    data: Any,
    stages: OneStage | Sequence[OneStage],
    *,
    columns: ColumnNames = None,
) -> Any:
    """Apply stages and return all rows with all their columns, their signals, reason and verdict.

    ``data`` is a frame of Polars, pandas or Dask or an Arrow table, and so is the result; texts, dicts, or a
    dict of columns give a frame of Polars. ``stages`` are filters and transforms, as objects or written as
    in a recipe. A function is a ``python`` stage: any callable that takes a table of the documents still
    kept and returns a verdict for each, or with ``per: document`` a dict and one verdict.

    The column ``text`` is required; ``id``, ``url`` and ``media_type`` are read if they exist. ``columns``
    gives other names, as in ``Source``. Transforms rewrite the text; a rejected row has the text that the
    stage rejected. Rows that have a ``reason``, from ``etl.read`` or an earlier call, stay rejected.

    Raises TableError if the data has no text column or a column would be overwritten, and RecipeError for
    invalid stages and for those that need a whole lake: deduplication and tokenize.

    >>> documents = [{"text": "Too short.", "label": 0}, {"text": "Long enough to be kept.", "label": 1}]
    >>> judged = apply(documents, {"length": {"min_words": 4}})
    >>> judged.select("text", "label", "reason").rows()
    [('Too short.', 0, 'length.few_words'), ('Long enough to be kept.', 1, None)]
    >>> is_long = lambda document: len(document["text"]) > 20
    >>> apply(["Too short."], {"python": {"call": is_long, "per": "document"}})["reason"].to_list()
    ['python.lambda']
    """
    parsed = _parse(stages)
    if others := [s.kind for s in parsed if not isinstance(s, Filter | Transform)]:
        raise RecipeError(
            f"{', '.join(others)} cannot be applied to a table or DataFrame: only filters and transforms can",
            hint=f"remove {', '.join(others)} here; `etl.run` applies all stages of a recipe to a lake",
        )
    if not isinstance(columns, Columns | Mapping | None):
        raise TableError(f"{columns!r:.60} is not a dict", hint="write columns={'text': NAME}")
    text = dict(columns or {}).get("text") or "text"
    if hasattr(data, "map_partitions"):  # of Dask, which only its user imports
        data = data.to_frame(name=text) if hasattr(data, "to_frame") else data
        meta = _apply(data._meta, parsed, columns)
        return data.map_partitions(_apply_to_partition, parsed, columns, meta=meta)
    return _apply(to_frame(data, text), parsed, columns)


def _parse(stages: OneStage | Sequence[OneStage]) -> tuple[Stage, ...]:
    """Return the stages as objects; raise RecipeError if one is invalid."""
    if isinstance(stages, Stage | str | Mapping) or callable(stages):
        stages = [stages]
    if not isinstance(stages, Sequence):
        hint = "give a stage, a list of stages, or RECIPE.documents_stages"
        raise RecipeError(f"{type(stages).__qualname__} is not a list of stages", hint=hint)
    written = [parse_stage(stage) for stage in stages]
    values = [
        Function.of(stage.pop("call"), **stage)
        if isinstance(stage, dict) and callable(stage.get("call"))
        else stage
        for stage in written
    ]
    try:
        return TypeAdapter(StageList).validate_python(values)
    except ValidationError as error:
        raise explain_stage_errors(error) from error


def _apply_to_partition(
    frame: "pd.DataFrame",
    stages: Sequence[Stage],
    columns: ColumnNames,
    partition_info: Mapping[str, Any] | None = None,
) -> "pd.DataFrame":
    """Apply stages to a partition of Dask, whose number is in the addresses of rows without one."""
    number = "" if partition_info is None else f" {partition_info['number']}"
    judged: pd.DataFrame = _apply(frame, stages, columns, name=f"partition{number}")
    return judged


def _apply(
    frame: Any, stages: Sequence[Stage], columns: ColumnNames, *, name: str = "table"
) -> Any:
    """Apply stages to a frame in memory; ``name`` is the source of rows without a column ``source``."""
    names = column_names(frame)
    read = _columns_to_read(names, columns)
    added = _columns_to_add(names, stages)
    used = [*read.known.values(), *(each for each in (*_GIVEN, "verdict") if each in names)]
    table = take(frame, list(dict.fromkeys(used)))
    batches = [schemas.RAW.empty_table(), *_raw_batches(table, read, name)]
    rejected = Rejected(text=True)
    judged = pa.concat_tables([apply_stages(batch, stages, rejected=rejected) for batch in batches])
    result = {column: judged[column] for column in added}
    if any(isinstance(stage, Transform) for stage in stages):
        result = {**_rewritten(table, read, judged), **result}
    return with_columns(frame, pa.table(result))


def _columns_to_read(names: Sequence[str], columns: ColumnNames) -> Columns:
    """Return the columns that hold the text and facts about it; raise TableError if one is missing."""
    present = {use: use for use in Columns.model_fields if use in names}
    read = Columns(**(present | dict(columns or {})))
    for use, name in read.known.items():
        if name not in names:
            near = nearest_names(name, map(str, names)) or "it has no columns"
            hint = f"pass columns={{{use!r}: NAME}}; {near}"
            raise TableError(f"the data has no column {name!r}", hint=hint)
    return read


def _columns_to_add(names: Sequence[str], stages: Sequence[Stage]) -> list[str]:
    """Return the columns that the stages add; raise TableError if the data has one of these.

    The language columns are added if a stage reads it. A reason may be there, and then a verdict.
    """
    steps = (step for run in split_at_transforms(stages) for step in run)
    reads = {name for step in steps for name in with_needs(step.reads)}
    fixed = {*schemas.judged([]).names} - {"reason", "verdict"}
    left_out = fixed - _LANGUAGE if reads & _LANGUAGE else fixed
    added = [name for name in judged_schema(stages).names if name not in left_out]
    allowed = {"reason", "verdict"} if "reason" in names else set()
    if taken := [name for name in added if name in names and name not in allowed]:
        raise TableError(
            f"the data has the columns {', '.join(taken)}, which the stages would overwrite",
            hint="rename or drop them; apply stages that compute the same columns in one call",
        )
    return added


def _raw_batches(table: pa.Table, read: Columns, name: str) -> Iterator[pa.Table]:
    """Yield the rows as batches of a source, converted as the rows of a file are."""
    source = Source(path=name, columns=read)
    split = Split(uri=name, size=0, fingerprint="", format="arrow")
    table = _with_text(table, read.text)
    given = _given_columns(table)
    raws = (
        check_texts(raw, source.max_text_bytes)
        for batch in table.combine_chunks().to_batches(max_chunksize=MAX_ROWS)
        for raw in columnar.convert(batch.select([*read.known.values()]), split, source, 0)
    )
    start = 0
    for batch in bound_batches(raws, _BATCH_BYTES):
        stop = start + batch.num_rows
        values = {"row": pa.array(range(start, stop), pa.int64())}
        values |= {column: array[start:stop] for column, array in given.items()}
        if "reason" in values:
            values["reason"] = pc.coalesce(values["reason"], batch["reason"])
        yield pa.table({n: values.get(n, batch[n]) for n in schemas.RAW.names}, schemas.RAW)
        start = stop


def _with_text(table: pa.Table, name: str) -> pa.Table:
    """Return the table; raise TableError if a column has other values than texts."""
    kind, index = _plain(table[name].type), table.schema.get_field_index(name)
    if table[name].null_count == table.num_rows:  # of any type
        return table.set_column(index, name, pa.nulls(table.num_rows, pa.string()))
    if not is_text(kind):
        hint = "convert it to strings, or pass columns={'text': NAME} for another column"
        raise TableError(f"the column {name!r} has values of type {kind}, not texts", hint=hint)
    return table


def _given_columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return those columns of a source that the data has; others of these names are ordinary columns.

    Raises TableError if reasons and verdicts do not come from stages.
    """
    given = {}
    for name in _GIVEN:
        if name in table.column_names:
            values, kind = table[name], schemas.RAW.field(name).type
            is_same = pa.types.is_integer if name == "row" else _is_string
            if is_same(_plain(values.type)) and (name == "reason" or not values.null_count):
                given[name] = values.cast(_plain(values.type)).cast(kind)
    if "reason" in table.column_names:
        _check_reasons(table, given.get("reason", table["reason"]))
    return given


def _check_reasons(table: pa.Table, reasons: pa.ChunkedArray) -> None:
    """Raise TableError if the columns ``reason`` and ``verdict`` do not come from stages."""
    kinds = {*STAGES, "source"}
    for reason in reasons.unique().to_pylist():
        if reason is not None and str(reason).partition(".")[0] not in kinds:
            what = f"the column 'reason' has the value {reason!r:.60}, which no stage gives"
            raise TableError(what, hint="rename the column: stages write their reasons to it")
    if "verdict" in table.column_names:
        expected = pc.if_else(pc.is_null(reasons), *schemas.VERDICTS).to_pylist()
        if table["verdict"].to_pylist() != expected:
            what = "the column 'verdict' differs from what the column 'reason' says"
            raise TableError(what, hint="rename the column: stages write their verdicts to it")


def _rewritten(table: pa.Table, read: Columns, judged: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return the columns that transforms rewrite; a value that was not read remains as it is."""
    result: dict[str, pa.ChunkedArray] = {}
    for name, column in (("text", read.text), ("url", read.url), ("metadata", "metadata")):
        if column and column in table.column_names and is_text(kind := _plain(table[column].type)):
            narrow = pa.types.is_string(kind) or pa.types.is_binary(kind)
            wide = pa.large_binary() if is_binary(kind) else pa.large_string()
            target = kind if narrow else wide  # Arrow 26 cannot coalesce views
            original = table[column].cast(kind).cast(target)
            result[column] = pc.coalesce(judged[name].cast(target), original)
    return result


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, which a dictionary or an extension type wraps."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_string(kind: pa.DataType) -> bool:
    return is_text(kind) and not is_binary(kind)
