"""The order of a mixture: which sample of which source is sample g. Arithmetic only, no reading.

1. **Shares.** Weights become whole numbers of ``BLOCK`` samples, by largest remainder: each source is
   within half a sample in 4,096 of its weight, at every block's end exactly.
2. **Classes.** Sample g is of class g % classes, and takes the samples of that class from each source. So
   a rank reads of each source the lanes that it would read of it alone (see ``plan.py``).
3. **Blocks.** In a class, each block of ``BLOCK`` samples has every source's share, evenly spread: the
   samples of a source come at random times, one in each of as many equal parts. So no source runs ahead,
   and all classes stand at nearly the same place of it, which its reader needs.
4. **Sources go round.** A source that is used up begins its next epoch, with the order of that epoch. Up
   to classes - 1 samples of each of its epochs are left out, other ones in each.

Where all sources stand at sample g follows from g: there is nothing else to save.
"""

from dataclasses import dataclass

import numpy as np

from etl.loader.plan import uniform

BLOCK = 4096
_MIN_ROUNDS = 64  # samples of a class in an epoch of a source: less than 1/64 of them are left out


def shares_of(weights: np.ndarray) -> np.ndarray:
    """Weights, (K,) float64 > 0, as samples of a block, (K,) int64 that add up to ``BLOCK``.

    A source of little weight gets one sample at least.

    >>> shares_of(np.array([3.0, 1.0])).tolist()
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
class Mixing:
    """The samples of a mixture without end, as a pure function of what is given here; K sources."""

    shares: np.ndarray  # (K,) int64, samples of each source in a block
    sizes: np.ndarray  # (K,) int64, samples of an epoch of each source
    classes: int
    seed: int

    @staticmethod
    def classes_for(lanes: int, sizes: np.ndarray) -> int:
        """As many classes as lanes, or fewer where a source is small."""
        return max(min(lanes, int(sizes.min()) // _MIN_ROUNDS), 1)

    @property
    def rounds(self) -> np.ndarray:
        """Samples of a class in an epoch of each source, (K,) int64."""
        return self.sizes // self.classes

    def block(self, group: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """A block of a class, (BLOCK,) int64 twice: the source of each sample, and how many samples of that
        source come before it in the block.
        """
        sources = np.repeat(np.arange(len(self.shares)), self.shares)
        nth = np.arange(BLOCK) - np.repeat(np.cumsum(self.shares) - self.shares, self.shares)
        # A random time within the nth of ``share`` equal parts of the block.
        times = (nth + uniform(BLOCK, self.seed, "mixture", group, number)) / self.shares[sources]
        order = np.argsort(times, kind="stable")
        return sources[order], nth[order]

    def counts(self, sample: int) -> np.ndarray:
        """How many samples of each source come before a sample of the mixture, (K,) int64."""
        total = np.zeros(len(self.shares), np.int64)
        for group in range(self.classes):
            position = max(sample - group + self.classes - 1, 0) // self.classes
            number, place = divmod(position, BLOCK)
            total += number * self.shares
            sources, _ = self.block(group, number)
            total += np.bincount(sources[:place], minlength=len(total))
        return total
