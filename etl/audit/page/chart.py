"""The geometry of a histogram: what the template draws as SVG, in units of its view box."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from etl.audit.page.axis import Floats
from etl.audit.page.distributions import ALONE, KEPT, OTHER, Distribution

WIDTH: Final = 360
HEIGHT: Final = 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 8.0, 352.0, 16.0, 126.0


@dataclass(frozen=True)
class Mark:
    """A tick or a limit: its x and its label."""

    x: float
    label: str
    anchor: str  # of the label: start, middle or end


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Stacked bars as one path for each outcome, with the ticks of the axis and the limits."""

    bars: list[tuple[str, str]]  # outcome and path
    ticks: list[Mark]
    limits: list[Mark]
    bottom: float = _BOTTOM
    top: float = _TOP
    width: int = WIDTH
    height: int = HEIGHT


def chart(signal: Distribution) -> Chart:
    """Return the histogram of a signal."""
    axis = signal.axis
    total = sum(signal.counts.values(), np.zeros(axis.bins))
    scale = (_BOTTOM - _TOP) / max(float(total.max()), 1e-9)
    bars, base = [], np.zeros(axis.bins)
    for outcome in (KEPT, ALONE, OTHER):
        if outcome in signal.counts and signal.counts[outcome].any():
            bars.append((outcome, _path(base * scale, signal.counts[outcome] * scale)))
            base = base + signal.counts[outcome]
    values = {value for limit in signal.limits for _, value in limit.values}
    limits = [_mark(axis.position(v), v) for v in sorted(values) if axis.includes(v)]
    return Chart(bars=bars, ticks=[_mark(axis.position(v), v) for v in axis.ticks()], limits=limits)


def number(value: float) -> str:
    """Return a value with at most four digits, and thousands separators.

    >>> number(0.12345), number(100_000), number(12.0)
    ('0.1235', '100,000', '12')
    """
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.1e}"
    shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{float(f'{value:.4g}'):,}"
    return shown.removesuffix(".0")


def _path(base: Floats, heights: Floats) -> str:
    """Return the bars of an outcome as one path; bars without height are left out."""
    step = (_RIGHT - _LEFT) / len(heights)
    parts = [
        f"M{_LEFT + k * step:.1f} {_BOTTOM - low:.1f}v{-height:.1f}h{step - 0.8:.1f}v{height:.1f}z"
        for k, (low, height) in enumerate(zip(base.tolist(), heights.tolist(), strict=True))
        if height > 0
    ]
    return "".join(parts)


def _mark(position: float, value: float) -> Mark:
    anchor = "start" if position < 0.1 else "end" if position > 0.9 else "middle"
    return Mark(round(_LEFT + position * (_RIGHT - _LEFT), 1), number(value), anchor)
