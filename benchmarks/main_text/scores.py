"""Scores of extracted texts: as the article-extraction-benchmark and trafilatura's evaluation count."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from main_text.pages import Page
from main_text.truth import grams

Counts = NDArray[np.float64]


def counts(page: Page, text: str) -> Counts:
    """Return true positives, false positives and false negatives: shares of runs of words, or segments."""
    if page.text is None:
        hits = sum(segment in text for segment in page.required)
        false = sum(segment in text for segment in page.forbidden)
        return np.array([hits, false, len(page.required) - hits], float)
    truth, found = grams(page.text), grams(text)
    found -= grams(page.optional) - truth
    common = (truth & found).total()
    precision = common / found.total() if found else float(not truth)
    recall = common / truth.total() if truth else 1.0
    return np.array([precision, 0.0, recall], float)


def f1(rows: Counts, *, by_text: bool) -> float:
    """Return F1 of pages: of the mean precision and recall of texts, of the sums of segments."""
    if not len(rows):
        return float("nan")
    if by_text:
        precision, recall = rows[:, 0].mean(), rows[:, 2].mean()
        return float(2 * precision * recall / max(precision + recall, 1e-9))
    hits, false, missed = rows.sum(axis=0)
    return float(2 * hits / max(2 * hits + false + missed, 1))


def score(pages: Sequence[Page], texts: Sequence[str]) -> float:
    """Return the F1 of extracted texts; the pages are all of one kind of truth."""
    rows = np.array([counts(page, text) for page, text in zip(pages, texts, strict=True)])
    return f1(rows, by_text=pages[0].text is not None) if pages else float("nan")


def bootstrap(
    own: Counts, other: Counts, measure: Callable[[Counts], float], rounds: int = 2000
) -> tuple[float, float, float]:
    """Return the difference of two extractors on the same pages, and its 95 % interval, resampling pages."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(own), (rounds, len(own)))
    drawn = [measure(own[pick]) - measure(other[pick]) for pick in picks]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return measure(own) - measure(other), float(low), float(high)
