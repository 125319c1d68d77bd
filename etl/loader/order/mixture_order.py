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
4. **Phases.** If the weights change with the sample number, each phase has its own shares. It begins with a
   new block in every class, so a change comes at a multiple of ``classes`` samples, the one nearest to the
   sample that was asked for.
5. **Repetition.** An exhausted source begins its next epoch, in the order of that epoch. Each of its epochs
   omits up to classes - 1 samples, different ones each time.

The position in every source follows from g, so the state does not need to store it.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from etl.loader.order.shuffle import uniform

BLOCK = 4096
_MIN_CLASS_SAMPLES = 64  # in an epoch of a source: fewer than 1/64 of them are omitted


def compute_shares(weights: np.ndarray) -> np.ndarray:
    """Return weights, (K,) float64 >= 0, as samples per block, (K,) int64 that add up to ``BLOCK``.

    Each source with a weight gets at least one sample: none may have less than 1/4,096 of the total.

    >>> compute_shares(np.array([3.0, 1.0])).tolist()
    [3072, 1024]
    """
    exact = weights / weights.sum() * BLOCK
    shares: np.ndarray = np.maximum(np.floor(exact), exact > 0).astype(np.int64)
    while (rest := BLOCK - int(shares.sum())) != 0:
        step = 1 if rest > 0 else -1
        candidates = np.where(
            (shares > 1) | ((step > 0) & (exact > 0)), step * (exact - shares), -np.inf
        )
        shares[int(np.argmax(candidates))] += step
    return shares


@dataclass(frozen=True)
class MixtureOrder:
    """The endless sequence of samples of a mixture, a pure function of these fields; K sources, P phases."""

    shares: np.ndarray  # (P, K) int64, samples of each source in a block of each phase
    sizes: np.ndarray  # (K,) int64, samples of an epoch of each source
    classes: int
    seed: int
    firsts: tuple[int, ...] = (0,)  # (P,) the samples of a class before each phase

    @staticmethod
    def classes_for(lanes: int, sizes: np.ndarray) -> int:
        """Return one class per lane, or fewer if a source is small."""
        return max(min(lanes, int(sizes.min()) // _MIN_CLASS_SAMPLES), 1)

    @property
    def class_samples(self) -> np.ndarray:
        """The samples of a class in an epoch of each source, (K,) int64."""
        return self.sizes // self.classes

    @property
    def samples_until_exhausted(self) -> int:
        """The samples of the mixture that exhaust the first of its sources, about; no source repeats."""
        # A class may be a sample ahead of its share.
        left = np.maximum(self.class_samples - 1, 1) * self.classes
        for first, end, shares in zip(
            self.firsts, [*self.firsts[1:], None], self.shares, strict=True
        ):
            is_used = shares > 0
            possible = int((np.maximum(left, 0) * BLOCK // np.maximum(shares, 1))[is_used].min())
            if end is None or possible <= (end - first) * self.classes:
                break
            left = left - (end - first) * self.classes * shares // BLOCK
        return first * self.classes + possible

    def phase(self, sample: int) -> int:
        """Return the phase of a sample of the mixture."""
        return bisect_right(self.firsts, sample // self.classes) - 1

    def find_block(self, position: int) -> tuple[int, int, int]:
        """Return the phase, the number and the offset in its block of a class's sample."""
        phase = bisect_right(self.firsts, position) - 1
        return phase, *divmod(position - self.firsts[phase], BLOCK)

    def block(self, sample_class: int, phase: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a block of a class: the source of each sample, and its index among that source's samples.

        Both are (BLOCK,) int64; the index counts the samples of the class from its first block.
        """
        shares = self.shares[phase]
        sources, nth = self._spread(sample_class, phase, number)
        before = self._class_counts(sample_class, self.firsts[phase]) + number * shares
        return sources, before[sources] + nth

    def _spread(self, sample_class: int, phase: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source of each sample of a block, and its index among the source's samples there."""
        shares = self.shares[phase]
        sources = np.repeat(np.arange(len(shares)), shares)
        nth = np.arange(BLOCK) - np.repeat(np.cumsum(shares) - shares, shares)
        # A random time in the nth of ``share`` equal parts of the block.
        moments = nth + uniform(BLOCK, self.seed, "mixture", sample_class, phase, number)
        order = np.argsort(moments / shares[sources], kind="stable")
        return sources[order], nth[order]

    def _class_counts(self, sample_class: int, position: int) -> np.ndarray:
        """Return the number of samples of each source before a position of a class, (K,) int64."""
        total = np.zeros(self.shares.shape[1], np.int64)
        ends = [*self.firsts[1:], position]
        for phase, (first, end) in enumerate(zip(self.firsts, ends, strict=True)):
            number, offset = divmod(max(min(end, position) - first, 0), BLOCK)
            total += number * self.shares[phase]
            if offset:
                sources, _ = self._spread(sample_class, phase, number)
                total += np.bincount(sources[:offset], minlength=len(total))
        return total

    def counts(self, sample: int) -> np.ndarray:
        """Return the number of samples of each source before a sample of the mixture, (K,) int64."""
        total = np.zeros(self.shares.shape[1], np.int64)
        for sample_class in range(self.classes):
            position = max(sample - sample_class + self.classes - 1, 0) // self.classes
            total += self._class_counts(sample_class, position)
        return total
