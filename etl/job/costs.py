"""What each stage of a recipe costs and does: seconds of the workers' time, documents in and rejected."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import schemas
from etl.recipe_file import stage_name
from etl.stages import STAGES, Filter, Stage, Transform

READ: Final = "read"
WRITE: Final = "write"
TOKENIZE: Final = "tokenize"  # and beside it tokenize.read, tokenize.write

Item = TypeVar("Item")


@dataclass(frozen=True)
class StageCost:
    """One part of the work: a stage (``3 python``), a group of signals, reading, writing, tokenizing.

    ``seconds`` are wall time of workers, added up; ``text_bytes`` is what would go through it if it stood
    alone: the text of the whole input, or, for tokenizing, that of what is tokenized.
    """

    name: str
    documents: int  # those that are still kept when they come to it
    rejected: int
    seconds: float
    text_bytes: int

    @property
    def megabytes_per_second(self) -> float | None:
        """Text per second of one worker; None if it took no time."""
        return self.text_bytes / 1e6 / self.seconds if self.seconds else None


def stage_costs(
    stages: Sequence[Mapping[str, Any]],
    documents: Iterable[schemas.Counts],
    tokens: Iterable[schemas.Counts] = (),
) -> list[StageCost]:
    """The parts of the work in their order; nothing if no seconds were counted.

    ``stages`` are a recipe's, as data; ``documents`` and ``tokens`` the counts of these tables' commits.
    """
    first, second = _total(documents), _total(tokens)
    found = list(_first_pass(stages, first)) if first.costs else []
    seconds = Counter(first.costs)
    seconds.update(second.costs)
    is_fused = TOKENIZE in first.costs  # else a pass of its own, over what is no duplicate
    rows, size = (first.kept, first.text_bytes) if is_fused else (second.kept, second.text_bytes)
    for name in (f"{TOKENIZE}.read", TOKENIZE, f"{TOKENIZE}.write"):
        if name in seconds:
            found.append(StageCost(name, rows, 0, seconds[name], size))
    return found


def _first_pass(stages: Sequence[Mapping[str, Any]], counts: schemas.Counts) -> Iterator[StageCost]:
    seconds, size = Counter(counts.costs), counts.text_bytes
    rejected: Counter[int] = Counter()
    for reason, count in counts.rejected.items():
        rejected[_place(reason, stages)] += count
    yield StageCost(READ, counts.rows, rejected[0], seconds[READ], size)
    for name in sorted(name for name in seconds if name.startswith("signals.")):
        yield StageCost(name, counts.rows, 0, seconds[name], size)
    left = counts.rows - rejected[0]
    for place, stage in enumerate(stages, 1):
        if issubclass(STAGES.get(stage["kind"], Stage), Filter | Transform):
            name = f"{place} {stage['kind']}"
            yield StageCost(name, left, rejected[place], seconds[name], size)
            left -= rejected[place]
    yield StageCost(WRITE, counts.rows, 0, seconds[WRITE], size)


@contextmanager
def clock(costs: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a block to one of the costs."""
    start = time.perf_counter()
    try:
        yield
    finally:
        costs[name] = costs.get(name, 0.0) + time.perf_counter() - start


def clocked(items: Iterable[Item], costs: dict[str, float], name: str) -> Iterator[Item]:
    """The same items; the seconds that each takes to come are added to one of the costs."""
    iterator = iter(items)
    while True:
        try:
            with clock(costs, name):
                item = next(iterator)
        except StopIteration:
            return
        yield item


def _total(counts: Iterable[schemas.Counts]) -> schemas.Counts:
    rejected: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for each in counts:
        rejected.update(each.rejected)
        costs.update(each.costs)
        sums.update(rows=each.rows, kept=each.kept, text_bytes=each.text_bytes)
    return schemas.Counts(**sums, rejected=dict(rejected), costs=dict(costs))


def _place(reason: str, stages: Sequence[Mapping[str, Any]]) -> int:
    """Which stage gave a reason, from 1: the only one of its kind, or the one whose name it says; 0: none.

    >>> _place("where.forum", [{"kind": "where", "name": "long"}, {"kind": "where", "name": "forum"}])
    2
    """
    kind, _, rule = reason.partition(".")
    of_kind = {
        place: stage_name(stage) for place, stage in enumerate(stages, 1) if stage["kind"] == kind
    }
    named = [place for place, name in of_kind.items() if rule.startswith(name)]
    named.sort(key=lambda place: -len(of_kind[place]))
    return next(iter([*named, *of_kind]), 0)
