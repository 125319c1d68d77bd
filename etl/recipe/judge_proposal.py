"""Judge proposed stages on a sample of documents, and loosen limits that would reject most of it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import yaml
from pydantic import TypeAdapter

from etl.recipe.stage_list import StageList
from etl.stages.apply import apply
from etl.stages.base import Filter, Stage
from etl.stages.looser_limits import loosen

_MIN_KEPT: Final = 0.5
"""The share of texts that a proposal keeps. Chosen here: C4's strictest rule removes 30 % of a crawl, and
FineWeb omits it for that (Penedo et al. 2024, arXiv 2406.17557): a loss of half is worth a comment."""
_MIN_TEXTS: Final = 20  # that are judged: of fewer, each one would decide
_MAX_LOOSENED: Final = (
    3  # limits of a filter; if it needs more, it is for other texts and is left out
)

_STAGES: Final[TypeAdapter[tuple[Stage, ...]]] = TypeAdapter(StageList)


@dataclass(frozen=True)
class ProposedStage:
    """A stage of a proposal, with a comment on it; if it is left out, its line is a comment, too."""

    about: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_left_out: bool = False

    @property
    def line(self) -> str:
        """The line of the recipe."""
        text = f"{self.kind}: {yaml_value(self.settings)}" if self.settings else self.kind
        return f"# - {text}" if self.is_left_out else f"- {text}"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Proposed stages, how many of the distinct texts they keep, and what was changed and why."""

    stages: tuple[ProposedStage, ...]
    judged: int
    kept: int
    changes: tuple[str, ...]


def judge(stages: Sequence[ProposedStage], documents: pa.Table) -> Judged:
    """Apply stages to documents of schema RAW, and loosen the rules that reject most, until half are kept.

    A filter is left out if it would need more than three other limits, or rejects by a rule without a number.
    """
    current = [*stages]
    changes: dict[int, dict[str, str]] = {}
    texts = _distinct(documents)
    while True:
        models = _models(current)
        judged = apply(texts, [*models.values()])
        counts = Counter(filter(None, judged["reason"].to_pylist()))
        kept = len(judged) - counts.total()
        is_enough = len(judged) < _MIN_TEXTS or kept >= _MIN_KEPT * len(judged)
        found = None if is_enough else _change_worst(current, models, counts, judged)
        if found is None:
            return _with_comments(current, changes, kept, len(judged))
        index, rule, changed = found
        own = {} if changed.is_left_out else changes.get(index, {})
        why = f"`{rule}` rejects {counts[rule]:,} of {len(judged):,} sampled texts"
        changes[index] = own | {rule: f"{why}: {_difference(current[index], changed)}"}
        current[index] = changed


def _change_worst(
    stages: Sequence[ProposedStage],
    models: Mapping[int, Stage],
    counts: Counter[str],
    judged: pa.Table,
) -> tuple[int, str, ProposedStage] | None:
    """Return the index of a stage, its rule that rejects most, and the stage with a looser limit.

    A filter without such a limit is left out. Transforms without one stay, as the texts need them.
    """
    for rule, _ in counts.most_common():
        index = next(i for i, model in models.items() if model.kind == rule.partition(".")[0])
        found = loosen([*models.values()], rule, judged)
        if found is not None:
            settings = found[1].model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
            limits = [name for name in settings if name.startswith(("min_", "max_"))]
            is_left_out = len(limits) > _MAX_LOOSENED
            changed = replace(stages[index], settings=settings, is_left_out=is_left_out)
            return index, rule, changed
        if isinstance(models[index], Filter):
            return index, rule, replace(stages[index], is_left_out=True)
    return None


def _with_comments(
    stages: Sequence[ProposedStage],
    changes: Mapping[int, Mapping[str, str]],
    kept: int,
    judged: int,
) -> Judged:
    commented = []
    for index, stage in enumerate(stages):
        sentences = [stage.about.removesuffix("."), *changes.get(index, {}).values()]
        commented.append(replace(stage, about=". ".join(sentences) + "."))
    texts = [text for own in changes.values() for text in own.values()]
    return Judged(stages=tuple(commented), judged=judged, kept=kept, changes=tuple(texts))


def _distinct(documents: pa.Table) -> pa.Table:
    """Return the documents with a text, one of equal ones: deduplication would not keep the others."""
    first: dict[str, int] = {}
    for index, text in enumerate(documents["text"].to_pylist()):
        if text is not None:
            first.setdefault(text, index)
    return documents.take(pa.array(first.values(), pa.int64()))


def _models(stages: Sequence[ProposedStage]) -> dict[int, Stage]:
    """Return the filters and transforms by their index."""
    indexes = [i for i, stage in enumerate(stages) if not stage.is_left_out]
    written = [{stages[i].kind: dict(stages[i].settings)} for i in indexes]
    models = zip(indexes, _STAGES.validate_python(written), strict=True)
    return {index: model for index, model in models if model.phase == "documents"}


def _difference(before: ProposedStage, after: ProposedStage) -> str:
    """Return what differs between two proposals of a stage."""
    if after.is_left_out:
        return f"{after.kind} does not suit these texts and is left out"
    return f"the proposal has {', '.join(_changed_limits(before.settings, after.settings))}"


def _changed_limits(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name, value in after.items():
        if name.startswith(("min_", "max_")) and before.get(name) != value:
            yield f"{name}: {value}"


def yaml_value(value: Any) -> str:
    """Return a value as YAML on one line, with dollar signs that are not variables.

    >>> yaml_value("no"), yaml_value(("a b", "${x}"))
    ("'no'", "[a b, '$${x}']")
    """
    shown = [*value] if isinstance(value, tuple) else value
    text = yaml.safe_dump(
        [shown], default_flow_style=True, width=1 << 30, allow_unicode=True, sort_keys=False
    )
    return text.strip()[1:-1].replace("${", "$${")
