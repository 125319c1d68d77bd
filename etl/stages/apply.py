"""Run filters and transforms over a batch of documents: signals first, then verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas
from etl.errors import StageError
from etl.kernels.bytes.one_chunk import one_chunk
from etl.stages.base import Filter, Rejected, Stage, Transform
from etl.stages.compute_signals import (
    GROUPS,
    WORDS_OF_LINES,
    WORDS_OF_TEXT,
    compute_signals,
    need_no_ngrams,
)
from etl.stages.dedup_base import DedupStage
from etl.stages.document_columns import (
    PlacedStage,
    describing_stages,
    judged_schema,
    split_at_transforms,
)
from etl.stages.filters.language import labels_of
from etl.stages.locate_errors import locate_errors
from etl.stages.masked_rows import indices_among, select, spread
from etl.stages.signals import COSTLY, SIGNALS, with_needs
from etl.stages.stage_clock import StageClock

_COMPUTED_ONCE: Final = frozenset({"language"})  # groups that are not recomputed for rewritten text

_REWRITTEN: Final = ("text", "lang", "lang_score", "metadata")  # what a transform may change


@dataclass(frozen=True)
class AppliedBatch:
    """A batch of documents with verdicts, and what the stages cost.

    ``seconds`` has the time of each stage (``"2 c4"``: position and kind) and of each group of signals
    (``"signals.words"``).
    """

    documents: pa.Table
    seconds: Mapping[str, float]


def apply(
    table: pa.Table, stages: Sequence[Stage], *, rejected: Rejected | None = None
) -> pa.Table:
    """Return the same rows in the same order with verdicts: the columns of ``judged_schema(stages)``.

    ``table`` has the columns of ``schemas.RAW``. Rows that already have a reason stay rejected. The text
    of rejected rows becomes null unless ``rejected`` asks for it. A signal that was not computed is null.

    Stages that need more than one batch (deduplication, tokenize) are not applied, but deduplication stages
    add the columns that documents are compared by.

    Raises StageError, which names the stage, the source and the rows.
    """
    return apply_and_time(table, stages, rejected=rejected).documents


def apply_and_time(
    table: pa.Table, stages: Sequence[Stage], *, rejected: Rejected | None = None
) -> AppliedBatch:
    """Apply stages as ``apply`` does, and return the documents with the seconds of each stage."""
    batch = _Batch(table, stages, rejected or Rejected())
    clock = StageClock()
    _apply_steps(batch, stages, clock)
    for stage in describing_stages(stages):
        with clock.measure(f"signals.{stage.identity_key}"):
            batch.describe(stage)
    documents = batch.finish()
    assert documents.num_rows == table.num_rows
    return AppliedBatch(documents, clock.seconds())


def _apply_steps(batch: "_Batch", stages: Sequence[Stage], clock: StageClock) -> None:
    """Apply the filters and transforms in order, each after the signals that it needs."""
    computed: set[str] = set()  # groups of signals that are computed for the current text
    runs = split_at_transforms(stages)
    for run, following in zip(runs, [*runs[1:], []], strict=True):
        # The transform between two runs has changed the text: its signals are computed again.
        computed &= _COMPUTED_ONCE
        by_line = _are_words_of_lines_read(following)
        for step in run:
            rows = batch.rows_for(step.stage)
            # A filter may skip all rows of a batch, and need signals that rejected rows have, too: so a
            # row's signals do not depend on the other rows of its batch.
            seen = rows if isinstance(step.stage, Transform) else batch.rows_with_signals()
            if not pc.any(seen).as_py():
                continue
            with locate_errors(step.stage, batch.documents, seen):
                if isinstance(step.stage, Transform):
                    with clock.measure(_label(step)):
                        batch.rewrite(step.stage, rows)
                else:
                    # A group is computed when its first filter needs it, for all filters of the run: so
                    # its kernel reads the text once.
                    groups = _groups_before(step, run, ahead=batch.has_all_signals)
                    _compute_groups(batch, run, groups - computed, clock, by_line=by_line)
                    computed |= groups
                    if pc.any(rows).as_py():
                        with clock.measure(_label(step)):
                            batch.judge(step, rows)


def _compute_groups(
    batch: "_Batch",
    run: Sequence[PlacedStage],
    groups: set[str],
    clock: StageClock,
    *,
    by_line: bool,
) -> None:
    """Compute all signals of these groups that the run reads, group by group in the order of GROUPS.

    With ``by_line`` words are counted by line, too.
    """
    for group in GROUPS:
        if group in groups:
            columns = _columns_of_group(group, run)
            if group == "words" and by_line:
                columns |= {WORDS_OF_LINES: WORDS_OF_LINES}
            with clock.measure(f"signals.{group}"):
                batch.compute(columns, batch.rows_with_signals())


def _are_words_of_lines_read(following: Sequence[PlacedStage]) -> bool:
    """Return whether the signals after the next transform are computed from the words of lines before it."""
    if not following:
        return False
    transform = following[0].stage
    names = [name for step in following for name in _signals_read(step)]
    return isinstance(transform, Transform) and transform.counts_words and need_no_ngrams(names)


def _groups_before(step: PlacedStage, run: Sequence[PlacedStage], *, ahead: bool) -> set[str]:
    """Return the groups to compute before a filter: those that it reads, and ``ahead`` all cheap ones.

    Ahead, cheap groups are computed at once, before the first filter of the run rejects anything. Words are
    split by the rules of the document's language if a filter of the run reads that, so it is identified
    before them.
    """
    of_run = {SIGNALS[name].group for other in run for name in _signals_read(other)}
    groups = {SIGNALS[name].group for name in _signals_read(step)}
    if ahead:
        groups |= of_run - COSTLY
    return groups | of_run & {"language"} if "words" in groups else groups


def _columns_of_group(group: str, run: Sequence[PlacedStage]) -> dict[str, str]:
    """Return the signals of a group that any filter of the run reads, and their columns."""
    columns = {name: step.columns.get(name, name) for step in run for name in _signals_read(step)}
    names = (name for name in SIGNALS if SIGNALS[name].group == group)
    return {name: columns[name] for name in names if name in columns}


def _signals_read(step: PlacedStage) -> list[str]:
    return with_needs(step.reads)


def _label(step: PlacedStage) -> str:
    """Return the name of a stage in the costs, which is unique in a recipe."""
    return f"{step.position} {step.stage.kind}"


class _Batch:
    """The columns of a batch of documents; ``text`` is as the stages so far have rewritten it."""

    def __init__(self, table: pa.Table, stages: Sequence[Stage], rejected: Rejected) -> None:
        raw = table.select(schemas.RAW.names).cast(schemas.RAW)
        no_text = pc.if_else(
            pc.is_null(raw["text"]), "source.null_text", pa.scalar(None, pa.string())
        )
        reason = pc.coalesce(raw["reason"], no_text)
        raw = raw.set_column(raw.schema.get_field_index("reason"), "reason", reason)
        schema = judged_schema(stages)
        describing = describing_stages(stages)
        later = {n for stage in describing for n in stage.document_columns().names}
        fields = [field for field in schema if field.name not in (*later, "verdict")]
        columns = [
            raw[field.name] if field.name in raw.column_names else pa.nulls(len(raw), field.type)
            for field in fields
        ]
        self.documents = pa.table(columns, schema=pa.schema(fields))
        self._schema = schema
        self._labels = labels_of(stages)
        self._hashes = next(s for s in describing if schemas.CONTENT_HASH in s.document_columns())
        self._rejected = rejected
        # Mask of the rows whose text is current. A rejected row that a transform skips is removed from
        # it, because its text is no longer the text that later stages would see.
        self._current = self._kept()
        self._text_when_rejected = self.documents["text"]  # of kept rows: the current text
        self._words: dict[str, pa.Array] = {}  # counts of words of the current text, if known
        self._media_type = raw["media_type"]

    def _kept(self) -> pa.BooleanArray:
        return one_chunk(pc.is_null(self.documents["reason"]))

    @property
    def has_all_signals(self) -> bool:
        """Whether signals of rejected documents are computed, too."""
        return self._rejected.signals

    def rows_with_signals(self) -> pa.BooleanArray:
        """Return a mask of the rows whose signals are computed."""
        return self._current if self._rejected.signals else pc.and_(self._current, self._kept())

    def rows_for(self, stage: Stage) -> pa.BooleanArray:
        """Return a mask of the rows that a stage processes."""
        if stage.sees_kept_only():
            return pc.and_(self._current, self._kept())
        return self.rows_with_signals()

    def compute(self, columns: Mapping[str, str], rows: pa.BooleanArray) -> None:
        """Compute signals of the current text: ``columns`` maps each signal to its column."""
        table = self._with_words(self.documents.select(["text", "lang"]), WORDS_OF_TEXT)
        signals = compute_signals(select(table, rows), [*columns], labels=self._labels)
        if "lang" in columns:
            self._words = {}  # they were counted by the rules of another language
        for name, column in columns.items():
            if name == WORDS_OF_LINES:
                self._words[name] = spread(signals[name], rows)
            else:
                self._set(column, rows, signals[name])

    def judge(self, step: PlacedStage, rows: pa.BooleanArray) -> None:
        """Compute the filter's own signals, then reject the rows that break its rules."""
        stage = step.stage
        if schemas.CONTENT_HASH.name in step.reads:
            self.describe(self._hashes)
        table = select(self._input_of(step), rows)
        if isinstance(stage, Filter) and (own := stage.columns()):
            measured = (
                stage.measure(table)
                .select([*own])
                .cast(pa.schema([(name, pa.float64()) for name in own]))
            )
            for name in own:
                self._set(name, rows, measured[name])
                table = _with_column(table, name, measured[name])
        self._reject(rows, stage.reasons(table))

    def rewrite(self, stage: Transform, rows: pa.BooleanArray) -> None:
        """Rewrite the rows; the transform may reject some, but must not change their addresses."""
        documents = self.documents
        if stage.counts_words:
            documents = self._with_words(documents, WORDS_OF_LINES)
        if stage.reads_media_type:
            documents = documents.append_column("media_type", self._media_type)
        before = select(documents, rows)
        after = stage.apply(before)
        self._words = {}
        if stage.reads_media_type:  # it was that of the text before
            self._media_type = pa.nulls(len(self.documents), pa.string())
        if WORDS_OF_TEXT in after.column_names:
            self._words = {WORDS_OF_TEXT: spread(after[WORDS_OF_TEXT], rows)}
        names = [*schemas.ADDRESS, *_REWRITTEN, "reason", *stage.columns()]
        after = after.select(names).cast(pa.schema([self.documents.schema.field(n) for n in names]))
        if after.num_rows != before.num_rows or any(after[n] != before[n] for n in schemas.ADDRESS):
            raise StageError(f"{stage.kind} changed the number of rows or their addresses")
        for name in (*_REWRITTEN, *stage.columns()):
            self._set(name, rows, after[name])
        self._reject(rows, pc.coalesce(after["reason"], stage.reasons(after)))
        kept = self._kept()
        if self._rejected.text:
            self._text_when_rejected = pc.if_else(
                kept, self.documents["text"], self._text_when_rejected
            )
        # The text of a rejected row that the transform has skipped is not current any more.
        if stage.costly or not self._rejected.signals:
            self._current = pc.and_(self._current, kept)

    def describe(self, stage: DedupStage) -> None:
        """Compute the columns that documents are compared by later, unless they are there."""
        if {*stage.document_columns().names} <= {*self.documents.column_names}:
            return
        size = len(self.documents)
        rows = pa.repeat(True, size) if stage.describes_rejected else self._kept()
        values = stage.describe(select(self.documents.select(["text"]), rows)["text"])
        if values and len(values[0]) != size:
            indices = indices_among(rows)
            values = [column.take(indices) for column in values]
        for field, column in zip(stage.document_columns(), values, strict=True):
            self.documents = self.documents.append_column(field, column)

    def finish(self) -> pa.Table:
        """Return the rows with their verdict, in the schema of judged documents."""
        kept, text = self._kept(), self.documents["text"]
        self._set("text_bytes", kept, pc.if_else(kept, pc.binary_length(text), None))
        documents = self.documents.append_column("verdict", pc.if_else(kept, *schemas.VERDICTS))
        if not pc.all(kept).as_py():
            of_rejected = self._text_when_rejected if self._rejected.text else None
            documents = _with_column(documents, "text", pc.if_else(kept, text, of_rejected))
        return documents.select(self._schema.names).cast(self._schema)

    def _input_of(self, step: PlacedStage) -> pa.Table:
        """Return the columns that a filter reads, signals under their own names; all if it names none."""
        reads = step.reads or [
            name for name in self.documents.column_names if name not in step.columns.values()
        ]
        columns = {name: step.columns.get(name, name) for name in (*reads, *step.columns)}
        existing = {*self.documents.column_names}
        return pa.table({n: self.documents[c] for n, c in columns.items() if c in existing})

    def _with_words(self, table: pa.Table, name: str) -> pa.Table:
        """Append some counts of words of the current text, if they are known."""
        return table.append_column(name, self._words[name]) if name in self._words else table

    def _reject(self, rows: pa.BooleanArray, reasons: pa.Array | pa.ChunkedArray) -> None:
        """Set the reason of rows that have none."""
        before = select(self.documents.select(["reason"]), rows)["reason"]
        self._set("reason", rows, pc.coalesce(before, reasons))

    def _set(self, name: str, rows: pa.BooleanArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Set the values of a column in the rows of a mask."""
        if len(values) != len(self.documents):
            whole = one_chunk(self.documents[name])
            values = pc.replace_with_mask(whole, rows, one_chunk(values))
        self.documents = _with_column(self.documents, name, values)


def _with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), values)
