"""The order of a mixture: which sample of which source each of its samples is.

Samples are numbered over all ranks. The source of sample g follows by arithmetic only:

1. **Shares.** Weights are rounded to whole numbers of ``BLOCK`` samples by largest remainder: each source is
   within half a sample in 4,096 of its weight, and its share is exact at the end of every block.
2. **Classes.** Sample g has class g % classes, and takes the samples of that class from each source. Steps
   are divided among ranks class by class, as those of a single source are lane by lane (see ``epoch.py``), so
   a rank reads few lanes of each source.
3. **Blocks.** In a class, each block of ``BLOCK`` samples contains the share of every source, evenly spread:
   a block is divided into as many equal parts as the source has samples, and one comes at a random time in
   each part. No source runs ahead, and all classes are at nearly the same sample of it, as its reader needs.
4. **Repetition.** An exhausted source begins its next epoch, in the order of that epoch. Each of its epochs
   omits up to classes - 1 samples, different ones each time.

The position in every source follows from g, so the state does not need to store it.
"""

from dataclasses import dataclass

import numpy as np

from etl.loader.order.shuffle import uniform

BLOCK = 4096
_MIN_CLASS_SAMPLES = 64  # in an epoch of a source: fewer than 1/64 of them are omitted


def compute_shares(weights: np.ndarray) -> np.ndarray:
    """Return weights, (K,) float64 > 0, as samples per block, (K,) int64 that add up to ``BLOCK``.

    Each source gets at least one sample: none may have less than 1/4,096 of the weight.

    >>> compute_shares(np.array([3.0, 1.0])).tolist()
    [3072, 1024]
    """
    exact = weights / weights.sum() * BLOCK
    shares: np.ndarray = np.maximum(np.floor(exact), 1).astype(np.int64)
    while (rest := BLOCK - int(shares.sum())) != 0:
        step = 1 if rest > 0 else -1
        candidates = np.where((shares > 1) | (step > 0), step * (exact - shares), -np.inf)
        shares[int(np.argmax(candidates))] += step
    return shares


@dataclass(frozen=True)
class MixtureOrder:
    """The endless sequence of samples of a mixture of K sources, a pure function of these fields."""

    shares: np.ndarray  # (K,) int64, samples of each source in a block
    sizes: np.ndarray  # (K,) int64, samples of an epoch of each source
    classes: int
    seed: int

    @staticmethod
    def classes_for(lanes: int, sizes: np.ndarray) -> int:
        """Return one class per lane, or fewer if a source is small."""
        return max(min(lanes, int(sizes.min()) // _MIN_CLASS_SAMPLES), 1)

    @property
    def class_samples(self) -> np.ndarray:
        """The samples of a class in an epoch of each source, (K,) int64."""
        return self.sizes // self.classes

    def block(self, sample_class: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a block of a class: the source of each sample, and its index among that source's samples.

        Both are (BLOCK,) int64; the index counts from 0 in each block.
        """
        sources = np.repeat(np.arange(len(self.shares)), self.shares)
        nth = np.arange(BLOCK) - np.repeat(np.cumsum(self.shares) - self.shares, self.shares)
        # A random time in the nth of ``share`` equal parts of the block.
        moments = nth + uniform(BLOCK, self.seed, "mixture", sample_class, number)
        times = moments / self.shares[sources]
        order = np.argsort(times, kind="stable")
        return sources[order], nth[order]

    def counts(self, sample: int) -> np.ndarray:
        """Return the number of samples of each source before a sample of the mixture, (K,) int64."""
        total = np.zeros(len(self.shares), np.int64)
        for sample_class in range(self.classes):
            position = max(sample - sample_class + self.classes - 1, 0) // self.classes
            number, offset = divmod(position, BLOCK)
            total += number * self.shares
            sources, _ = self.block(sample_class, number)
            total += np.bincount(sources[:offset], minlength=len(total))
        return total
