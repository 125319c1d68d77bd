"""The distribution of each signal over the sample, its limits, and what other limits would keep."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from etl.audit.page.axis import Axis, Floats
from etl.audit.page.page_sample import PageSample
from etl.audit.rule_limits import Comparison, Limit
from etl.audit.shown_documents import Documents
from etl.audit.tune.rejudge import StoredFilter
from etl.stages.signals import SIGNALS

Bools = npt.NDArray[np.bool_]

KEPT: Final = "kept"
ALONE: Final = "rejected by a limit of this signal alone"
OTHER: Final = "rejected"

_FACTORS: Final = (0.5, 0.8, 1.0, 1.25, 2.0)  # other limits, as multiples of the present one
_MAX_LANGUAGES: Final = 5


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another value of a limit, None for no limit, and the documents that the filters would then keep."""

    value: float | None
    kept: float
    is_present: bool


@dataclass(frozen=True, kw_only=True)
class ShownLimit:
    """A limit of a signal; ``values`` has a label for each: the language, or an empty text.

    ``kept`` are the documents that the filters would keep with the limit at each edge of the bins. It is
    empty, as are ``alternatives``, if the limit is only a part of its rule or differs by language.
    """

    rule: str
    comparison: Comparison
    values: list[tuple[str, float]]
    alternatives: list[Alternative]
    kept: list[float]

    @property
    def can_keep_more(self) -> bool:
        """Whether another limit would keep more documents: whether this one rejects any alone."""
        now = next((each.kept for each in self.alternatives if each.is_present), math.inf)
        return max(self.kept, default=0.0) > now + 0.5  # estimates, of whole documents


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A signal over the documents of the sample, weighted: how many there are in each bin, by outcome."""

    name: str
    unit: str
    axis: Axis
    counts: Mapping[str, Floats]  # of KEPT, ALONE and OTHER
    median: float
    high: float  # the 95th percentile
    missing: float  # documents without a value
    limits: list[ShownLimit]


def distributions(documents: Documents, sample: PageSample) -> list[Distribution]:
    """Return the distributions of all signals with values, those with limits first."""
    outcomes = _Outcomes(sample.frame, documents.filters, documents.limits)
    units = _units(documents.filters)
    names = ["lang_score", *(name for name in sample.signals if name != "lang_score")]
    shown = [
        _distribution(name, units.get(name, ""), sample.frame, outcomes)
        for name in names
        if name in sample.frame.columns and sample.frame[name].is_finite().any()
    ]
    return sorted(shown, key=lambda each: not each.limits)


class _Outcomes:
    """Which rules of a recipe hold for each sampled row, whether or not it reached them."""

    def __init__(
        self, frame: pl.DataFrame, filters: Sequence[StoredFilter], limits: Sequence[Limit]
    ) -> None:
        self.frame = frame
        self.limits = limits
        self.weight: Floats = frame["weight"].to_numpy()
        self.is_kept: Bools = frame["reason"].is_null().to_numpy()
        self._holds = {
            (judge.position, label): self._rule_holds(judge, rule)
            for judge in filters
            if not judge.is_opaque
            for label, rule in zip(judge.labels, judge.rules.values(), strict=True)
            if judge.reads
        }
        rules = {None, *(rule for _, rule in self._holds)}
        known = np.array([rule in rules for rule in frame["rule"].to_list()], np.bool_)
        # A rejected document may fail stages whose verdicts are not stored: it counts as failing them.
        self._count: npt.NDArray[np.int64] = sum(
            (each.astype(np.int64) for each in self._holds.values()), (~known).astype(np.int64)
        )

    def fails_only(self, limits: Sequence[Limit]) -> Bools:
        """Return for each row whether it is rejected, and only rules with these limits hold."""
        rules = {(limit.stage, limit.rule) for limit in limits} & self._holds.keys()
        own = sum(
            (self._holds[rule].astype(np.int64) for rule in rules), np.zeros_like(self._count)
        )
        result: Bools = (self._count == own) & (own > 0) & ~self.is_kept
        return result

    def can_vary(self, limit: Limit) -> bool:
        """Return whether a rule is this one comparison, with the same number for all languages."""
        languages = self.frame["lang"].unique().to_list()
        of_rule = self._holds.get((limit.stage, limit.rule))  # None: the rule reads the text, too
        if of_rule is None or len({*limit.values(languages).values()}) > 1:
            return False
        return bool(np.array_equal(limit.holds(self.frame).to_numpy(), of_rule))

    def _rule_holds(self, judge: StoredFilter, rule: pl.Expr) -> Bools:
        names = [pl.col(judge.columns[name]).alias(name) for name in sorted(judge.reads)]
        rows = self.frame.select("reason", *names)
        return rows.select("reason", holds=rule.fill_null(False))["holds"].to_numpy()


def _distribution(name: str, unit: str, frame: pl.DataFrame, outcomes: _Outcomes) -> Distribution:
    limits = [limit for limit in outcomes.limits if limit.column == name]
    languages = _languages(frame)
    numbers = {
        value for limit in limits for value in limit.values(languages).values() if value is not None
    }
    column = frame[name]
    is_finite: Bools = column.is_finite().fill_null(False).to_numpy()
    values: Floats = column.to_numpy()[is_finite]
    axis = Axis.over(values, sorted(numbers))
    bins = axis.bins_of(values)
    alone = outcomes.fails_only(limits)[is_finite]
    kept = outcomes.is_kept[is_finite]
    weight = outcomes.weight[is_finite]
    parts = {KEPT: kept, ALONE: alone & ~kept, OTHER: ~kept & ~alone}
    counts: dict[str, Floats] = {
        part: np.bincount(bins[mask], weight[mask], minlength=axis.bins).astype(np.float64)
        for part, mask in parts.items()
    }
    median, high = np.quantile(values, [0.5, 0.95]).tolist()
    return Distribution(
        name=name,
        unit=unit,
        axis=axis,
        counts=counts,
        median=median,
        high=high,
        missing=float(outcomes.weight[~is_finite].sum()),
        limits=[_shown_limit(limit, axis, outcomes, languages) for limit in limits],
    )


def _shown_limit(
    limit: Limit, axis: Axis, outcomes: _Outcomes, languages: Sequence[str | None]
) -> ShownLimit:
    values = limit.values(languages)
    can_vary = outcomes.can_vary(limit)
    if len({*values.values()}) == 1:
        labelled = [("", value) for value in [*values.values()][:1] if value is not None]
    else:
        labelled = [(lang or "others", v) for lang, v in values.items() if v is not None]
    return ShownLimit(
        rule=limit.rule,
        comparison=limit.comparison,
        values=labelled,
        alternatives=_alternatives(limit, labelled[0][1], outcomes) if can_vary else [],
        kept=_kept_at(limit, axis.edges, outcomes).tolist() if can_vary else [],
    )


def _alternatives(limit: Limit, present: float, outcomes: _Outcomes) -> list[Alternative]:
    """Return what other values of a limit would keep, and what would be kept without it."""
    values: Floats = outcomes.frame[limit.column].drop_nulls().to_numpy()
    low, high = np.nanmin(values), np.nanmax(values)
    others = {float(f"{present * factor:.3g}") for factor in _FACTORS}
    tried = sorted({value for value in others if low <= value <= high} | {present})
    never = -np.inf if limit.comparison in ("<", "<=") else np.inf
    kept = _kept_at(limit, np.array([*tried, never]), outcomes).tolist()
    return [
        Alternative(value=value, kept=count, is_present=value == present)
        for value, count in zip([*tried, None], kept, strict=True)
    ]


def _kept_at(limit: Limit, values: Floats, outcomes: _Outcomes) -> Floats:
    """Return how many documents would be kept with a limit at each of some values."""
    passes_others = outcomes.is_kept | outcomes.fails_only([limit])
    column: Floats = outcomes.frame[limit.column].to_numpy()[passes_others]
    weight = outcomes.weight[passes_others]
    is_null = np.isnan(column)
    order = np.argsort(column[~is_null])
    sums = np.concatenate([[0.0], np.cumsum(weight[~is_null][order])])
    # A limit with `<` or `>=` splits before equal values, one with `<=` or `>` after them.
    side: Literal["left", "right"] = "left" if limit.comparison in ("<", ">=") else "right"
    below = sums[np.searchsorted(column[~is_null][order], values, side=side)]
    kept = sums[-1] - below if limit.comparison in ("<", "<=") else below
    result: Floats = kept + weight[is_null].sum()
    return result


def _languages(frame: pl.DataFrame) -> list[str | None]:
    counts = frame.drop_nulls("lang").group_by("lang").agg(pl.col("weight").sum())
    top = counts.sort("weight", "lang", descending=[True, False]).head(_MAX_LANGUAGES)
    return [*top["lang"].to_list(), None]


def _units(filters: Sequence[StoredFilter]) -> dict[str, str]:
    units = {"lang_score": "probability"}
    for judge in filters:
        own = judge.stage.columns()
        for signal, column in judge.columns.items():
            if signal in SIGNALS or signal in own:
                units[column] = SIGNALS[signal].unit if signal in SIGNALS else own[signal]
    return units
