"""Read a few documents of each format before a run: check the columns, and apply the stages."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from etl.errors import SourceError
from etl.job.check_columns import spread_by_format, with_columns
from etl.plural import many
from etl.recipe.little_kept import little_kept
from etl.recipe.recipe import Recipe
from etl.schemas import RAW
from etl.sources import Split
from etl.sources.read_split import read_first
from etl.stages.apply import apply
from etl.stages.base import Rejected
from etl.stages.filters.annotate import Annotate
from etl.stages.filters.where import Where
from etl.stages.looser_limits import loosen

_ROWS_PER_FORMAT: Final = 64
_VERDICTS: Final = 10
_TEXT_CHARS: Final = 200  # of a document that is shown


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A sampled document: its address, the reason if it is rejected, and the start of its text."""

    source: str
    row: int
    reason: str | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class InputSample:
    """What the filters and transforms of a recipe decide on a few documents.

    ``reasons`` counts rejected documents. ``verdicts`` are ten of them at equal distances. ``warnings`` are
    sentences about files that cannot be read, missing keys, annotations without documents, and conditions
    that are null. ``text_bytes`` is the size of the texts as they are read, and ``rejected_bytes`` that of
    rejected texts as a lake may store them.
    """

    files: int
    documents: int
    reasons: Mapping[str, int]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]
    text_bytes: int
    rejected_bytes: int

    @property
    def kept(self) -> int:
        """The number of documents that are kept."""
        return self.documents - sum(self.reasons.values())


def sample_input(recipe: Recipe, splits: Iterable[Split]) -> InputSample:
    """Read the first documents of a few splits of each format, and apply the recipe's stages to them.

    Raises SourceError if all files that are opened of a format lack a column that the recipe names, and
    StageError if a stage fails.
    """
    tables, warnings = [RAW.empty_table()], list[str]()
    files: set[str] = set()
    for chosen in spread_by_format(splits).values():
        for split in with_columns(chosen, recipe.source, warnings):
            try:
                tables.append(read_first(split, recipe.source, _ROWS_PER_FORMAT // len(chosen)))
                files.add(split.uri)
            except SourceError as error:
                warnings.append(f"{error.where}: {error.what}")
    raw = pa.concat_tables(tables)
    documents = apply(raw, recipe.documents_stages, rejected=Rejected(signals=False, text=True))
    counts = Counter(str(reason) for reason in documents["reason"].to_pylist() if reason)
    reasons = dict(counts.most_common())
    warnings += _stage_warnings(recipe, reasons, len(documents))
    warnings += _annotation_warnings(recipe, documents)
    warnings += _kept_warnings(recipe, reasons, raw)
    return InputSample(
        files=len(files),
        documents=len(documents),
        reasons=reasons,
        verdicts=tuple(_verdicts(documents)),
        warnings=tuple(warnings),
        text_bytes=_num_bytes(raw),
        rejected_bytes=_num_bytes(documents.filter(pc.is_valid(documents["reason"]))),
    )


def _num_bytes(documents: pa.Table) -> int:
    """Return the bytes of the texts of documents, encoded as UTF-8."""
    return pc.sum(pc.binary_length(documents["text"])).as_py() or 0


def _stage_warnings(recipe: Recipe, reasons: Mapping[str, int], documents: int) -> Iterable[str]:
    for stage in recipe.documents_stages:
        if not isinstance(stage, Where):
            continue
        reason = f"{stage.kind}.{stage.unknown_rule}"
        if count := reasons.get(reason, 0):
            yield (
                f"`where: {stage.keep}` is null for {count} of {many(documents, 'document')}: rejected as "
                f"{reason}: set `unknown: keep`, or use coalesce(COLUMN, '')"
            )


def _annotation_warnings(recipe: Recipe, documents: pa.Table) -> Iterable[str]:
    for stage in recipe.documents_stages:
        if not isinstance(stage, Annotate) or not documents.num_rows:
            continue
        columns = documents.select([*stage.columns()]).columns
        if all(column.null_count == len(column) for column in columns):
            error = stage.no_match_error(documents)
            yield (
                f"{many(len(documents), 'document')} of the sample have no value from {error.where}: "
                f"{error.hint}"
            )


def _kept_warnings(recipe: Recipe, reasons: Mapping[str, int], raw: pa.Table) -> Iterable[str]:
    """Yield what to do if hardly any documents are kept, with a setting that would keep most of them."""
    kept = len(raw) - sum(reasons.values())
    few = little_kept(recipe.stages, reasons, rows=len(raw), kept=kept)
    if few is None:
        return
    stages = recipe.documents_stages
    looser = loosen(stages, few.rule, apply(raw, stages))
    field = str(few.setting).rpartition(".")[2]
    advice = [f"`--set {few.setting}={getattr(looser[1], field)}` now"] if looser else []
    after = "" if few.setting is None else " after a run"
    yield f"{few}; try {', or '.join([*advice, f'`{few.command(recipe.lake)}`{after}'])}"


def _verdicts(documents: pa.Table) -> Iterable[Verdict]:
    count = min(_VERDICTS, len(documents))
    indexes = pa.array([index * len(documents) // count for index in range(count)], pa.int64())
    for row in documents.select(["source", "row", "reason", "text"]).take(indexes).to_pylist():
        text = row["text"]
        yield Verdict(**{**row, "text": None if text is None else text[:_TEXT_CHARS]})
