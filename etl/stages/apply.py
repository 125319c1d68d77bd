"""TODO."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.errors import StageError, TokenlakeError
from etl.kernels.bytes.utf8 import one_chunk
from etl.stages.base import Filter, Stage, Transform
from etl.stages.dedup_exact import DedupExact, Normalize, content_hash
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.document_columns import PlacedStage, documents_schema, split_at_transforms
from etl.stages.rejected_rows import Rejected
from etl.stages.signal_kernels import GROUPS, compute_signals
from etl.stages.signals import COSTLY, SIGNALS, with_needs

_LASTING: Final = frozenset({"language"})  # what a rewritten text does not change


_REWRITTEN: Final = ("text", "url", "lang", "lang_score", "metadata")  # what a transform may change


def apply(
    table: pa.Table,
    stages: Sequence[Stage],
    *,
    rejected: Rejected | None = None,
    costs: dict[str, float] | None = None,
) -> pa.Table:
    """The same rows in the same order, judged: columns of ``documents_schema(stages)``.

    ``table`` has the columns of ``schemas.RAW``; a row that has a reason already stays rejected. Stages
    that need more than a batch (deduplication, tokenize) are passed over, but DedupExact says how
    ``content_hash`` is normalised, DedupMinhash gives what is kept its ``signature``, and DedupParagraphs its
    units. The text of rejected rows becomes null unless asked for. A signal that was not computed is null.
    To ``costs`` the seconds of each stage (``"2 c4"``: place and kind) and each group of signals
    (``"signals.words"``) are added. Raises StageError that names stage, source and rows.
    """
    rejected = rejected or Rejected()
    batch = _Batch(table, documents_schema(stages), rejected)
    clock = _Clock(costs if costs is not None else {})
    computed: set[str] = set()  # groups of signals that stand for the text as it is
    for run in split_at_transforms(stages):
        computed &= _LASTING
        for step in run:
            rows = batch.seen_by(step.stage)
            if not pc.any(rows).as_py():
                continue
            with _named(step.stage, batch.documents, rows):
                if isinstance(step.stage, Transform):
                    with clock.of(step):
                        batch.rewrite(step.stage, rows)
                else:
                    groups = _groups(run, step) - computed
                    computed |= groups
                    for group in (name for name in GROUPS if name in groups):
                        with clock.of(f"signals.{group}"):
                            batch.compute(_asked(run, group), batch.readable())
                    with clock.of(step):
                        batch.judge(step, rows)
    for stage in stages:
        if isinstance(stage, DedupMinhash):
            with clock.of("signals.minhash"):
                batch.sign(stage)
        if isinstance(stage, DedupParagraphs):
            with clock.of("signals.units"):
                batch.cut_up(stage)
    result = batch.finish(stages)
    assert result.num_rows == table.num_rows
    return result


def _groups(run: Sequence[PlacedStage], step: PlacedStage) -> set[str]:
    """What to compute before a filter: all cheap groups of its run, and the costly ones it reads."""
    cheap = {SIGNALS[name].group for other in run for name in _signals(other)} - COSTLY
    return cheap | {SIGNALS[name].group for name in _signals(step)}


def _asked(run: Sequence[PlacedStage], group: str) -> dict[str, str]:
    """The signals of a group that any filter of the run reads, and their columns."""
    asked = {name: step.columns.get(name, name) for step in run for name in _signals(step)}
    return {name: asked[name] for name in SIGNALS if name in asked and SIGNALS[name].group == group}


def _signals(step: PlacedStage) -> list[str]:
    return with_needs(step.stage.signals())


class _Batch:
    """Documents on their way: their columns, of which ``text`` is as the stages have rewritten it so far."""

    def __init__(self, table: pa.Table, schema: pa.Schema, rejected: Rejected) -> None:
        raw = table.select(schemas.RAW.names).cast(schemas.RAW)
        no_text = pc.if_else(
            pc.is_null(raw["text"]), "source.null_text", pa.scalar(None, pa.string())
        )
        reason = pc.coalesce(raw["reason"], no_text)
        raw = raw.set_column(raw.schema.get_field_index("reason"), "reason", reason)
        fields = [field for field in schema if field.name not in ("content_hash", "verdict")]
        columns = [
            raw[field.name] if field.name in raw.column_names else pa.nulls(len(raw), field.type)
            for field in fields
        ]
        self.documents = pa.table(columns, schema=pa.schema(fields))
        self._schema = schema
        self._rejected = rejected
        self._live = self._kept()  # the rows whose text is what a stage would see
        self._stored = self.documents["text"]  # as it was when a row was rejected

    def _kept(self) -> pa.BooleanArray:
        return one_chunk(pc.is_null(self.documents["reason"]))

    def readable(self) -> pa.BooleanArray:
        """The rows whose signals are wanted: a mask."""
        return self._live if self._rejected.signals else pc.and_(self._live, self._kept())

    def seen_by(self, stage: Stage) -> pa.BooleanArray:
        """The rows that a stage sees: a mask."""
        if stage.sees_kept_only():
            return pc.and_(self._live, self._kept())
        return self.readable()

    def compute(self, names: Mapping[str, str], rows: pa.BooleanArray) -> None:
        """Put signals of the text into their columns."""
        found = compute_signals(_rows(self.documents.select(["text", "lang"]), rows), [*names])
        for name, column in names.items():
            self._put(column, rows, found[name])

    def judge(self, step: PlacedStage, rows: pa.BooleanArray) -> None:
        """Measure what the filter itself measures, and reject what its rules say."""
        stage = step.stage
        seen = _rows(self._view(step), rows)
        if isinstance(stage, Filter) and (own := stage.columns()):
            measured = stage.measure(seen).select([*own]).cast(_floats(own))
            for name in own:
                self._put(name, rows, measured[name])
                seen = _with_column(seen, name, measured[name])
        self._reject(rows, stage.reasons(seen))

    def rewrite(self, stage: Transform, rows: pa.BooleanArray) -> None:
        """Rewrite the rows; the stage may reject some, and changes no address."""
        before = _rows(self.documents, rows)
        after = stage.apply(before)
        names = [*schemas.ADDRESS, *_REWRITTEN, "reason", *stage.columns()]
        after = after.select(names).cast(pa.schema([self.documents.schema.field(n) for n in names]))
        if after.num_rows != before.num_rows or any(after[n] != before[n] for n in schemas.ADDRESS):
            raise StageError(f"{stage.kind} changed the number of rows, or their addresses")
        for name in (*_REWRITTEN, *stage.columns()):
            self._put(name, rows, after[name])
        self._reject(rows, pc.coalesce(after["reason"], stage.reasons(after)))
        kept = self._kept()
        self._stored = pc.if_else(kept, self.documents["text"], self._stored)
        if stage.costly or not self._rejected.signals:
            self._live = pc.and_(self._live, kept)

    def sign(self, stage: DedupMinhash) -> None:
        """Give the rows that are kept their signatures."""
        rows = self._kept()
        texts = _rows(self.documents.select(["text"]), rows)["text"]
        self._put("signature", rows, stage.signature(texts))

    def cut_up(self, stage: DedupParagraphs) -> None:
        """Give the rows that are kept their units."""
        text = one_chunk(self.documents["text"])
        found = stage.units(pc.if_else(self._kept(), text, pa.scalar(None, text.type)))
        for name, values in zip(schemas.UNITS.names, found, strict=True):
            self.documents = _with_column(self.documents, name, values)

    def finish(self, stages: Sequence[Stage]) -> pa.Table:
        """The rows as the table holds them."""
        normalize: Normalize = next(
            (stage.normalize for stage in stages if isinstance(stage, DedupExact)), "whitespace"
        )
        documents, kept = self.documents, self._kept()
        hashes = content_hash(documents["text"], normalize)
        documents = documents.append_column("content_hash", hashes)
        documents = documents.append_column("verdict", pc.if_else(kept, *schemas.VERDICTS))
        if not pc.all(kept).as_py():
            none = pa.scalar(None, pa.string())
            stored = self._stored if self._rejected.text else none
            text = pc.if_else(kept, documents["text"], stored)
            documents = documents.set_column(documents.column_names.index("text"), "text", text)
        return documents.select(self._schema.names).cast(self._schema)

    def _view(self, step: PlacedStage) -> pa.Table:
        """The columns that a filter reads, signals under their own names; all, if it names none."""
        reads = step.stage.signals() or [
            name for name in self.documents.column_names if name not in step.columns.values()
        ]
        columns = {name: step.columns.get(name, name) for name in (*reads, *step.columns)}
        there = {
            n: self.documents[c] for n, c in columns.items() if c in self.documents.column_names
        }
        return pa.table(there)

    def _reject(self, rows: pa.BooleanArray, reasons: pa.Array | pa.ChunkedArray) -> None:
        """Give rows a reason that have none."""
        before = _rows(self.documents.select(["reason"]), rows)["reason"]
        self._put("reason", rows, pc.coalesce(before, reasons))

    def _put(self, name: str, rows: pa.BooleanArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Replace a column's values in the rows of a mask."""
        if len(values) != len(self.documents):
            whole = one_chunk(self.documents[name])
            values = pc.replace_with_mask(whole, rows, one_chunk(values))
        self.documents = _with_column(self.documents, name, values)


def _rows(table: pa.Table, rows: pa.BooleanArray) -> pa.Table:
    return table if pc.all(rows).as_py() else table.filter(rows)


def _floats(names: Iterable[str]) -> pa.Schema:
    return pa.schema([pa.field(name, pa.float64()) for name in names])


def _with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values)


class _Clock:
    """Adds up seconds of wall time: a worker does one thing at a time, and waits for its children."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @contextmanager
    def of(self, what: PlacedStage | str) -> Iterator[None]:
        label = what if isinstance(what, str) else f"{what.place} {what.stage.kind}"
        start = time.perf_counter()
        yield
        self._seconds[label] = self._seconds.get(label, 0.0) + time.perf_counter() - start


@contextmanager
def _named(stage: Stage, documents: pa.Table, rows: pa.BooleanArray) -> Iterator[None]:
    """Raise what a stage raises as a StageError that says where; a user's own mistake says it itself."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TokenlakeError) and error.where is not None:
            raise
        address = _rows(documents.select(schemas.ADDRESS), rows)
        first, last = address.take([0, len(address) - 1]).to_pylist()
        end = f" to {last['row']}" if last["source"] == first["source"] else f" to {last['source']}"
        where = f"{first['source']} rows {first['row']}{end}"
        if isinstance(error, TokenlakeError):
            raise StageError(error.what, where=where, hint=error.hint) from error
        what = f"{stage.kind} failed: {type(error).__name__}: {error}"
        raise StageError(what, where=where) from error
