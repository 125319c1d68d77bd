"""How evenly batches mix the sources of a table: the variance of shares, compared with independent draws.

The share of source s in a batch of T tokens varies from batch to batch. If a batch consisted of independent
draws of d tokens each, the variance would be p_s (1 - p_s) d / T, where p_s is the share of s in all batches.
The ratio of the two, both summed over the sources, is 1 for independent draws, higher if a batch reads few
regions of a sorted table, and lower if it is more regular than chance. It is the design effect of cluster
sampling (Kish 1965, "Survey Sampling", section 5.4).
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """How evenly the batches of an epoch mix its sources; ratios of variances, 1 for independent draws."""

    document_ratio: float
    """The variance of shares, divided by that of independent documents."""
    window_ratio: float
    """The same, divided by that of independent windows that each have one source."""
    sources: int
    """The number of sources in all measured batches."""
    sources_per_batch: float
    """The mean number of sources in a batch."""
    batches: int
    """The number of measured batches."""
    batch_tokens: int
    """The mean number of tokens in a batch."""


def variance_ratio(
    batch: np.ndarray, source: np.ndarray, tokens: np.ndarray, *, draw_tokens: float
) -> float:
    """Return the variance of the shares of sources in batches, divided by that of independent draws.

    Entry i says that a batch has some tokens of a source; several entries of the same two are added. The
    arrays are (n,) integers of at least two equal batches; a draw has ``draw_tokens`` tokens of one source.
    Returns 1 if there is only one source.

    >>> lots = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([4, 0, 0, 4])
    >>> variance_ratio(*lots, draw_tokens=1)
    8.0
    """
    _, rows = np.unique(batch, return_inverse=True)
    _, columns = np.unique(source, return_inverse=True)
    num_batches, num_sources = int(rows.max()) + 1, int(columns.max()) + 1
    cells, cell = np.unique(rows * num_sources + columns, return_inverse=True)
    sizes = np.bincount(rows, tokens)
    shares = np.bincount(cell, tokens) / sizes[cells // num_sources]
    means = np.bincount(cells % num_sources, shares, num_sources) / num_batches
    squares = float((shares * shares).sum()) - num_batches * float((means * means).sum())
    expected = (1.0 - float((means * means).sum())) * draw_tokens / float(sizes.mean())
    return squares / (num_batches - 1) / expected if num_sources > 1 else 1.0
