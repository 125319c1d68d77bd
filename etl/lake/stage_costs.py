"""The costs of each stage: seconds of worker time, documents processed and rejected."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from etl import schemas
from etl.lake.work_units import WorkResult
from etl.recipe.overrides import stage_name

READ: Final = "read"
WRITE: Final = "write"
TOKENIZE: Final = "tokenize"  # also tokenize.read and tokenize.write


@dataclass(frozen=True)
class StageCost:
    """The costs of one part of the work: a stage (``3 python``), a group of signals, read, write, tokenize.

    ``seconds`` is the total wall time of all workers. ``text_bytes`` is the text that the part would process
    on its own: the whole input or, for tokenize, the tokenized documents.
    """

    name: str
    documents: int  # documents that are still kept when they reach this part
    rejected: int
    seconds: float
    text_bytes: int

    @property
    def megabytes_per_second(self) -> float | None:
        """Megabytes of text per second of one worker, or None if no time was measured."""
        return self.text_bytes / 1e6 / self.seconds if self.seconds else None


def stage_costs(
    stages: Sequence[Mapping[str, Any]],
    documents: Iterable[schemas.Counts],
    tokens: Iterable[schemas.Counts] = (),
) -> list[StageCost]:
    """Return the costs of each part of the work in order; empty if no seconds were measured.

    ``stages`` are the stages of a recipe, as data. ``documents`` and ``tokens`` are the counts of the
    commits to these tables.
    """
    first, second = total_counts(documents), total_counts(tokens)
    costs = list(_first_pass(stages, first)) if first.costs else []
    seconds = Counter(first.costs)
    seconds.update(second.costs)
    tokenized = second if second.rows else first  # once for each tokenizer
    for name in (f"{TOKENIZE}.read", TOKENIZE, f"{TOKENIZE}.write"):
        if name in seconds:
            costs.append(StageCost(name, tokenized.kept, 0, seconds[name], tokenized.text_bytes))
    return costs


def _first_pass(stages: Sequence[Mapping[str, Any]], counts: schemas.Counts) -> Iterator[StageCost]:
    seconds, size = Counter(counts.costs), counts.text_bytes
    rejected: Counter[int] = Counter()
    for reason, count in counts.rejected.items():
        rejected[stage_of(reason, stages)] += count
    yield StageCost(READ, counts.rows, rejected[0], seconds[READ], size)
    for name in sorted(name for name in seconds if name.startswith("signals.")):
        yield StageCost(name, counts.rows, 0, seconds[name], size)
    remaining = counts.rows - rejected[0]
    for number, stage in enumerate(stages, 1):
        name = f"{number} {stage['kind']}"
        if name in seconds or rejected[number]:  # the stage has seen documents in this pass
            yield StageCost(name, remaining, rejected[number], seconds[name], size)
            remaining -= rejected[number]
    yield StageCost(WRITE, counts.rows, 0, seconds[WRITE], size)


def total_counts(counts: Iterable[schemas.Counts | WorkResult]) -> schemas.Counts:
    """Return the sums of counts, or of the counts of results."""
    counts = list(counts)
    rejected: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for each in counts:
        rejected.update(each.rejected)
        for name, value in each.costs.items():
            seconds[name] = seconds.get(name, 0.0) + value
    return schemas.Counts(
        rows=sum(each.rows for each in counts),
        kept=sum(each.kept for each in counts),
        rejected=dict(sorted(rejected.items())),
        duplicates=sum(each.duplicates for each in counts),
        tokens=sum(each.tokens for each in counts),
        special_texts=sum(each.special_texts for each in counts),
        text_bytes=sum(each.text_bytes for each in counts),
        costs={name: round(seconds[name], 3) for name in sorted(seconds)},
    )


def stage_of(reason: str, stages: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the stage, from 1, that gave a reason; 0 if it is not from a stage.

    >>> stage_of("where.forum", [{"kind": "where", "name": "long"}, {"kind": "where", "name": "forum"}])
    2
    """
    kind, _, rule = reason.partition(".")
    names = {
        number: stage_name(stage) for number, stage in enumerate(stages, 1) if stage["kind"] == kind
    }
    matches = [number for number, name in names.items() if rule.startswith(name)]
    matches.sort(key=lambda number: -len(names[number]))
    return next(iter([*matches, *names]), 0)
