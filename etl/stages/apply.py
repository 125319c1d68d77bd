"""Documents through the filters and transforms of a recipe: signals first, verdicts after.

The cost of a batch is one pass of each group of signals over the text between two transforms, and one
Polars expression per filter. Groups marked as costly wait until the filters before them have spoken, and
see only what is still kept; so do transforms.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from etl.errors import StageError, TokenlakeError
from etl.kernels.utf8 import one_chunk
from etl.stages.base import Filter, Stage, Transform
from etl.stages.dedup_exact import DedupExact, Normalize, content_hash
from etl.stages.signals import COSTLY, SIGNALS, compute


def signal_names(stages: Iterable[Stage]) -> list[str]:
    """The float columns that these stages' rules read, in the order of ``SIGNALS``.

    >>> from etl.stages.where import Where
    >>> signal_names([Where(keep="num_words > 50 AND num_chars < 1e6")])
    ['num_chars', 'num_words']
    """
    asked = {name for stage in stages if isinstance(stage, Filter) for name in stage.signals()}
    fixed = schemas.documents([]).names  # lang and lang_score are columns of every table
    return [name for name in SIGNALS if name in asked and name not in fixed]


def apply(
    table: pa.Table, stages: Sequence[Stage], *, keep_rejected_text: bool = False
) -> pa.Table:
    """The same rows in the same order, judged: columns of ``schemas.documents(signal_names(stages))``.

    ``table`` has the columns of ``schemas.RAW``; a row that has a reason already stays rejected. Stages
    that need more than a batch (deduplication, tokenize) are passed over, but DedupExact says how
    ``content_hash`` is normalised. The text of rejected rows becomes null unless asked for. A signal
    that was not computed is null. Raises StageError that names stage, source and rows.
    """
    documents = _start(table, signal_names(stages))
    for run in _runs(stages):
        computed: set[str] = set()  # groups of signals that stand for the text as it is
        for stage in run:
            kept = one_chunk(pc.is_null(documents["reason"]))
            if not pc.any(kept).as_py():
                break
            with _named(stage, documents, kept):
                if isinstance(stage, Transform):
                    documents = _rewrite(documents, kept, stage)
                    continue
                groups = _groups(run, stage) - computed
                documents = _compute(documents, kept, _asked(run, groups))
                computed |= groups
                documents = _judge(documents, kept, stage)
    result = _finish(documents, stages, keep_rejected_text=keep_rejected_text)
    assert result.num_rows == table.num_rows
    return result


def _start(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The raw rows with every column of ``documents`` but the last two, signals null."""
    raw = table.select(schemas.RAW.names).cast(schemas.RAW)
    reason = pc.if_else(
        pc.is_null(raw["text"]), pc.coalesce(raw["reason"], "source.null_text"), raw["reason"]
    )
    raw = raw.set_column(raw.schema.get_field_index("reason"), "reason", reason)
    fields = [f for f in schemas.documents(names) if f.name not in ("content_hash", "verdict")]
    columns = [
        raw[field.name] if field.name in raw.column_names else pa.nulls(len(raw), field.type)
        for field in fields
    ]
    return pa.table(columns, schema=pa.schema(fields))


def _runs(stages: Sequence[Stage]) -> list[list[Filter | Transform]]:
    """The stages cut so that a transform begins a run: its filters judge one and the same text."""
    runs: list[list[Filter | Transform]] = [[]]
    for stage in stages:
        if isinstance(stage, Transform):
            runs.append([])
        if isinstance(stage, Filter | Transform):
            runs[-1].append(stage)
    return runs


def _signals(stage: Stage) -> list[str]:
    names = stage.signals() if isinstance(stage, Filter) else []
    return [name for name in names if name in SIGNALS]


def _groups(run: Sequence[Stage], stage: Stage) -> set[str]:
    """What to compute before a filter: all cheap groups of its run, and the costly ones it reads."""
    cheap = {SIGNALS[name].group for other in run for name in _signals(other)} - COSTLY
    return cheap | {SIGNALS[name].group for name in _signals(stage)}


def _asked(run: Sequence[Stage], groups: set[str]) -> list[str]:
    """The signals of these groups that any filter of the run reads."""
    asked = {name for stage in run for name in _signals(stage)}
    return [name for name in SIGNALS if name in asked and SIGNALS[name].group in groups]


def _compute(documents: pa.Table, kept: pa.BooleanArray, names: Sequence[str]) -> pa.Table:
    if not names:
        return documents
    found = compute(_rows(documents.select(["text"]), kept), names)
    for name in names:
        documents = _put(documents, name, kept, found[name])
    return documents


def _judge(documents: pa.Table, kept: pa.BooleanArray, stage: Filter) -> pa.Table:
    reads = [n for n in stage.signals() if n in documents.column_names] or documents.column_names
    reasons = stage.reasons(_rows(documents.select(reads), kept))
    return _put(documents, "reason", kept, reasons)


def _rewrite(documents: pa.Table, kept: pa.BooleanArray, stage: Transform) -> pa.Table:
    """The kept rows rewritten; a transform may give a row a reason, and changes no address."""
    before = _rows(documents, kept)
    after = stage.apply(before).select(documents.column_names)
    if after.num_rows != before.num_rows or any(after[n] != before[n] for n in schemas.ADDRESS):
        raise StageError(f"{stage.kind} changed the number of rows, or their addresses")
    for name in documents.column_names:
        if name not in schemas.ADDRESS:
            documents = _put(documents, name, kept, after[name])
    return documents


def _rows(table: pa.Table, kept: pa.BooleanArray) -> pa.Table:
    return table if pc.all(kept).as_py() else table.filter(kept)


def _put(table: pa.Table, name: str, kept: pa.BooleanArray, values: pa.Array) -> pa.Table:
    """The table with a column's values replaced in the kept rows."""
    at = table.schema.get_field_index(name)
    if len(values) != len(table):
        values = pc.replace_with_mask(one_chunk(table[name]), kept, one_chunk(values))
    return table.set_column(at, table.schema.field(at), values)


def _finish(documents: pa.Table, stages: Sequence[Stage], *, keep_rejected_text: bool) -> pa.Table:
    normalize: Normalize = next(
        (stage.normalize for stage in stages if isinstance(stage, DedupExact)), "whitespace"
    )
    kept = pc.is_null(documents["reason"])
    documents = documents.append_column("content_hash", content_hash(documents["text"], normalize))
    verdict = pc.if_else(kept, *schemas.VERDICTS)
    documents = documents.append_column("verdict", verdict)
    if not keep_rejected_text and not pc.all(kept).as_py():
        text = pc.if_else(kept, documents["text"], pa.scalar(None, pa.string()))
        documents = documents.set_column(documents.schema.get_field_index("text"), "text", text)
    return documents.cast(schemas.documents(signal_names(stages)))


@contextmanager
def _named(stage: Stage, documents: pa.Table, kept: pa.BooleanArray) -> Iterator[None]:
    """Raise what a stage raises as a StageError that says where; a user's own mistake says it itself."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TokenlakeError) and error.where is not None:
            raise
        address = _rows(documents.select(schemas.ADDRESS), kept)
        first, last = address.take([0, len(address) - 1]).to_pylist()
        end = f" to {last['row']}" if last["source"] == first["source"] else f" to {last['source']}"
        where = f"{first['source']} rows {first['row']}{end}"
        if isinstance(error, TokenlakeError):
            raise StageError(error.what, where=where, hint=error.hint) from error
        what = f"{stage.kind} failed: {type(error).__name__}: {error}"
        raise StageError(what, where=where) from error
