"""Read a few documents of each format before a run: check the columns, and apply the stages."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from etl.errors import SourceError
from etl.job.check_columns import spread_by_format, with_columns
from etl.plural import many
from etl.recipe.recipe import Recipe
from etl.schemas import RAW
from etl.sources import Split
from etl.sources.read_split import read_first
from etl.stages.apply import apply
from etl.stages.base import Rejected
from etl.stages.filters.where import Where

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

    ``reasons`` counts the rejected ones. ``verdicts`` are ten of them at equal distances. ``warnings`` are
    sentences about files that cannot be read, missing keys, and conditions that are null.
    """

    files: int
    documents: int
    reasons: Mapping[str, int]
    verdicts: tuple[Verdict, ...]
    warnings: tuple[str, ...]

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
    return InputSample(
        files=len(files),
        documents=len(documents),
        reasons=reasons,
        verdicts=tuple(_verdicts(documents)),
        warnings=tuple(warnings),
    )


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
    if documents and sum(reasons.values()) == documents:
        yield f"no document is kept of {many(documents, 'document')} in the sample"


def _verdicts(documents: pa.Table) -> Iterable[Verdict]:
    count = min(_VERDICTS, len(documents))
    indexes = pa.array([index * len(documents) // count for index in range(count)], pa.int64())
    for row in documents.select(["source", "row", "reason", "text"]).take(indexes).to_pylist():
        text = row["text"]
        yield Verdict(**{**row, "text": None if text is None else text[:_TEXT_CHARS]})
