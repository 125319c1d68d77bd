"""Train oblivious trees for yes-no questions by gradient boosting over histograms.

Logistic loss, Newton steps. Deterministic: the same rows and seed give the same trees on any machine.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

BINS = 255


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How trees are trained."""

    trees: int = 200
    depth: int = 6
    rate: float = 0.08
    l2: float = 10.0
    features_per_tree: float = 0.6
    rows_per_tree: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Trained:
    """Trees as arrays, as ``etl.kernels.html.trees`` reads them, and the sum before the first tree."""

    feature: NDArray[np.int32]  # (T, D)
    threshold: NDArray[np.float32]  # (T, D)
    leaves: NDArray[np.float32]  # (T, 2^D)
    start: float

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the log odds for rows of features (n, F)."""
        total = np.full(len(x), self.start)
        for feature, threshold, leaves in zip(
            self.feature, self.threshold, self.leaves, strict=True
        ):
            leaf = np.zeros(len(x), np.int64)
            for each, limit in zip(feature, threshold, strict=True):
                leaf = leaf << 1 | (x[:, each] > limit)
            total += leaves[leaf]
        return total


def fit(
    x: NDArray[np.float32], y: NDArray[np.float32], weight: NDArray[np.float32], how: Fit
) -> Trained:
    """Train trees on rows of features (n, F); ``y`` is between 0 and 1."""
    borders = [_borders(column) for column in x.T]
    bins = np.stack(
        [np.searchsorted(b, c).astype(np.uint8) for b, c in zip(borders, x.T, strict=True)]
    )
    mean = float(np.average(y, weights=weight))
    start = float(np.log(mean / (1 - mean)))
    total, random = np.full(len(y), start), np.random.RandomState(how.seed)
    features, thresholds, leaves = [], [], []
    for _ in range(how.trees):
        share = 1 / (1 + np.exp(-total))
        used = weight * (random.random_sample(len(y)) < how.rows_per_tree)
        gradient, hessian = used * (share - y), used * share * (1 - share)
        chosen = random.permutation(len(x.T))[: max(1, int(how.features_per_tree * len(x.T)))]
        leaf, questions = np.zeros(len(y), np.int32), []
        for level in range(how.depth):
            sums = _histograms(bins, chosen, leaf, gradient, hessian, 1 << level)
            feature, border = _best_question(sums, chosen, borders, how.l2)
            questions.append((feature, borders[feature][border]))
            leaf = leaf << 1 | (bins[feature] > border)
        num = 1 << how.depth
        g, h = np.bincount(leaf, gradient, num), np.bincount(leaf, hessian, num)
        values = (-how.rate * g / (h + how.l2)).astype(np.float32)
        total += values[leaf]
        features.append([each for each, _ in questions])
        thresholds.append([each for _, each in questions])
        leaves.append(values)
    return Trained(
        np.array(features, np.int32), np.array(thresholds, np.float32), np.array(leaves), start
    )


def _borders(column: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values that separate a feature's values into bins of about equal sizes."""
    values = np.unique(column)
    if len(values) > BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1), method="lower"))
    between = ((values[1:] + values[:-1]) / 2)[: BINS - 1]
    return between.astype(np.float32) if len(values) > 1 else values


@njit(cache=True)
def _histograms(
    bins: NDArray[np.uint8],
    chosen: NDArray[np.int64],
    leaf: NDArray[np.int32],
    gradient: NDArray[np.float64],
    hessian: NDArray[np.float64],
    num_leaves: int,
) -> NDArray[np.float64]:
    """Return the sums of gradients and Hessians by feature, leaf and bin."""
    sums = np.zeros((len(chosen), num_leaves, BINS + 1, 2))
    for k in range(len(chosen)):
        column = bins[chosen[k]]
        for row in range(len(leaf)):
            if hessian[row] > 0:
                sums[k, leaf[row], column[row], 0] += gradient[row]
                sums[k, leaf[row], column[row], 1] += hessian[row]
    return sums


def _best_question(
    sums: NDArray[np.float64],
    chosen: NDArray[np.int64],
    borders: list[NDArray[np.float32]],
    l2: float,
) -> tuple[int, int]:
    """Return the feature and border whose question lowers the loss most."""
    below = np.cumsum(sums, axis=2)
    above = below[:, :, -1:] - below
    gain = sum((part[..., 0] ** 2 / (part[..., 1] + l2)).sum(axis=1) for part in (below, above))
    for k, feature in enumerate(chosen):
        gain[k, len(borders[feature]) :] = -np.inf
    best = np.unravel_index(np.argmax(gain), gain.shape)
    return int(chosen[best[0]]), int(best[1])
