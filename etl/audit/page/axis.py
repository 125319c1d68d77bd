"""An axis for a signal: linear or logarithmic, with bins for a histogram and round ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BINS: Final = 40
_TICKS: Final = 4
_SKEWED: Final = 8  # 99.9th percentile per median from which an axis is logarithmic; chosen here
_REACH: Final = 3.0  # limits farther away than this many spans of the values are not drawn


@dataclass(frozen=True)
class Axis:
    """The range of the values of a signal; values outside count in the first or last bin."""

    low: float
    high: float
    is_log: bool  # of 1 + value
    bins: int = BINS

    @classmethod
    def over(cls, values: Floats, limits: Sequence[float]) -> Self:
        """Return an axis for values, without their extremes, and for limits that are not far away."""
        low, median, high = np.quantile(values, [0.001, 0.5, 0.999]).tolist()
        is_log = low >= 0 and high > max(_SKEWED * median, _SKEWED)
        span = max(high - low, abs(high) / 10, 1e-9)
        near = [
            v for v in limits if (is_log and v >= 0) or -_REACH * span < v - low < _REACH * span
        ]
        low, high = min(low, *near, low), max(high, *near, high)
        if low >= 0 and low < (high - low) / 2:
            low = 0.0
        if high <= low:
            high = low + max(abs(low) / 10, 1.0)
        if not is_log and high - low >= BINS and not np.any(values % 1):
            return cls._of_integers(math.floor(low), math.ceil(high))
        return cls(low, high, is_log)

    @classmethod
    def _of_integers(cls, low: int, high: int) -> Self:
        """Return an axis whose bins have the same number of integers each."""
        width = math.ceil((high - low) / BINS)
        bins = math.ceil((high - low) / width)
        return cls(low, low + bins * width, is_log=False, bins=bins)

    @cached_property
    def edges(self) -> Floats:
        """The edges of the bins, one more than bins."""
        low, high = self._scale(np.array([self.low, self.high]))
        edges = np.linspace(low, high, self.bins + 1)
        return np.expm1(edges) if self.is_log else edges

    def position(self, value: float) -> float:
        """Return where a value is on the axis, from 0 to 1."""
        low, at, high = self._scale(np.array([self.low, value, self.high])).tolist()
        return float(min(max((at - low) / (high - low), 0.0), 1.0))

    def includes(self, value: float) -> bool:
        """Return whether a value is on the axis."""
        return self.low <= value <= self.high

    def bins_of(self, values: Floats) -> npt.NDArray[np.int64]:
        """Return the bin of each value."""
        inside = np.clip(values, self.low, self.high)
        found = np.searchsorted(self.edges, inside, side="right") - 1
        return np.clip(found, 0, self.bins - 1).astype(np.int64)

    def ticks(self) -> list[float]:
        """Return about four round values on the axis.

        >>> Axis(0, 1, is_log=False).ticks(), Axis(0, 5000, is_log=True).ticks()
        ([0.0, 0.5, 1.0], [0, 10, 100, 1000])
        """
        if self.is_log:
            powers = [10**k for k in range(1, math.floor(math.log10(self.high)) + 1)]
            shown = powers[:: max(1, math.ceil(len(powers) / _TICKS))]
            return [0, *shown] if self.low == 0 else [*shown]
        rough = (self.high - self.low) / _TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = (round(number * step, 12) for number in range(first, last + 1))
        return [value for value in values if self.includes(value)]

    def _scale(self, values: Floats) -> Floats:
        return np.log1p(np.maximum(values, 0)) if self.is_log else values
