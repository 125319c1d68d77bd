"""The funnel of a lake: documents and tokens before and after each stage, by rule."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from etl.audit.page.page_sample import PageSample
from etl.audit.report_records import LakeReport
from etl.audit.shown_documents import Documents
from etl.lake.stage_costs import READ, stage_of
from etl.recipe.overrides import stage_name


@dataclass(frozen=True, kw_only=True)
class FunnelLoss:
    """The documents that a rule removes; ``tokens`` is an estimate, None without a basis for it."""

    rule: str
    documents: int
    tokens: int | None


@dataclass(frozen=True, kw_only=True)
class FunnelStep:
    """A stage with the documents that remain after it."""

    name: str
    documents: int  # after the stage
    tokens: int | None = None  # after the stage, an estimate; None without tokens
    losses: list[FunnelLoss] = field(default_factory=list)

    @property
    def removed(self) -> int:
        """The documents that the stage removes."""
        return sum(loss.documents for loss in self.losses)

    @property
    def removed_tokens(self) -> int | None:
        """The estimated tokens of these documents; None if a rule's tokens are unknown."""
        tokens = [loss.tokens for loss in self.losses]
        return sum(n for n in tokens if n is not None) if None not in tokens else None


def funnel(
    documents: Documents, report: LakeReport, sample: PageSample, saved_tokens: int | None
) -> list[FunnelStep]:
    """Return the steps of the filters in order, then the step of deduplication if the lake has duplicates.

    ``saved_tokens`` are the tokens of documents that were left out as duplicates.
    """
    tokens = _tokens_per_document(report, sample)
    stages = documents.record.canonical["stages"] if documents.record is not None else []
    by_stage: dict[int, list[FunnelLoss]] = {0: []}
    for rule, count in report.rejected.items():
        mean = tokens.get(rule)
        loss = FunnelLoss(
            rule=rule, documents=count, tokens=None if mean is None else round(mean * count)
        )
        by_stage.setdefault(stage_of(rule, stages), []).append(loss)
    return _with_tokens([*_steps(report, stages, by_stage, saved_tokens)], report.tokens)


def _with_tokens(steps: Sequence[FunnelStep], tokens: int) -> list[FunnelStep]:
    """Add the tokens left after each step: the tokens of the lake, and all that later steps remove."""
    result = []
    for step in reversed(steps):
        result.append(replace(step, tokens=tokens or None))
        tokens += step.removed_tokens or 0
    return result[::-1]


def _steps(
    report: LakeReport,
    stages: list[Mapping[str, object]],
    by_stage: Mapping[int, list[FunnelLoss]],
    saved_tokens: int | None,
) -> Iterator[FunnelStep]:
    remaining = report.rows - sum(loss.documents for loss in by_stage[0])
    yield FunnelStep(name=READ, documents=remaining, losses=by_stage[0])
    filters = [(k, s) for k, s in enumerate(stages, 1) if k in by_stage]
    for number, stage in filters:
        losses = by_stage[number]
        remaining -= sum(loss.documents for loss in losses)
        yield FunnelStep(
            name=f"{number} {stage['kind']} {stage_name(stage)}".rstrip(),
            documents=remaining,
            losses=losses,
        )
    if report.duplicates:
        total = sum(report.duplicates.values())
        shares = {kind: count / total for kind, count in report.duplicates.items()}
        losses = [
            FunnelLoss(
                rule=kind,
                documents=count,
                tokens=None if saved_tokens is None else round(saved_tokens * shares[kind]),
            )
            for kind, count in report.duplicates.items()
        ]
        yield FunnelStep(name="deduplication", documents=remaining - total, losses=losses)


def _tokens_per_document(report: LakeReport, sample: PageSample) -> dict[str, float]:
    """Estimate the mean number of tokens of the documents that each rule rejects, by their size."""
    if sample.size is None or not report.tokens or not report.tokenized:
        return {}
    means = sample.frame.group_by("rule").agg(pl.col(sample.size).mean().alias("mean"))
    sizes = dict(means.iter_rows())
    kept = sizes.pop(None, None)
    ratio = report.tokens / report.tokenized / kept if kept else 0.0
    return {rule: size * ratio for rule, size in sizes.items() if size is not None}
