"""The order of a mixture: which sample of which source each of its samples is.

Samples are numbered over all ranks. The source of sample g follows by arithmetic only:

1. **Shares.** Weights are rounded to whole numbers of ``BLOCK`` samples by largest remainder: each source is
   within half a sample in 4,096 of its weight, and its share is exact at the end of every block.
2. **Classes.** Sample g has class g % classes, and takes the samples of that class from each source. Steps
   are divided among ranks class by class, as steps of a single source lane by lane (see ``epoch.py``), so a
   rank reads few lanes of each source.
3. **Blocks.** In a class, each block of ``BLOCK`` samples contains the share of every source, evenly spread:
   a block is divided into as many equal parts as the source has samples, and one comes at a random time in
   each part. No source runs ahead, and all classes are at nearly the same sample of it, as its reader needs.
4. **Phases.** If the weights change with the sample number, each phase has its own shares. It begins with a
   new block in every class, so a change comes at a multiple of ``classes`` samples, the one nearest to the
   sample that was asked for.
5. **Turns.** The classes take the samples of a source in turn: sample i of class c is sample
   i * classes + c of the source, counted over its epochs. If the order ends, the classes may have different
   numbers of samples of a source; the samples of longer classes follow each other without a gap. So the
   samples of a source are its first ones, each once.
6. **Repetition.** An exhausted source begins its next epoch, in the order of that epoch.

The position in every source follows from g, so the state does not need to store it.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from etl.loader.order.shuffle_settings import uniform

BLOCK = 4096
_MIN_CLASS_SAMPLES = 64  # in an epoch of a source: fewer than 1/64 of them are omitted


def compute_shares(weights: np.ndarray) -> np.ndarray:
    """Return weights, (K,) float64 >= 0, as samples per block, (K,) int64 that add up to ``BLOCK``.

    Each source with a weight gets at least one sample: none may have less than 1/4,096 of the total.

    >>> compute_shares(np.array([3.0, 1.0])).tolist()
    [3072, 1024]
    """
    exact = weights / weights.sum() * BLOCK
    # Round down, but to 1 for a source with a weight. Then add the missing samples where rounding took most;
    # if the ones made the sum too large, remove samples where rounding gave most.
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
    """The sequence of samples of a mixture, a pure function of these fields; K sources, P phases."""

    shares: np.ndarray  # (P, K) int64, samples of each source in a block of each phase
    sizes: np.ndarray  # (K,) int64, samples of an epoch of each source
    classes: int
    seed: int
    firsts: tuple[int, ...] = (0,)  # (P,) the samples of a class before each phase
    stage: int = 0  # of the mixture: the orders of its stages differ
    num_samples: int | None = None  # None: endless

    @staticmethod
    def classes_for(lanes: int, sizes: np.ndarray) -> int:
        """Return one class per lane, or fewer if a source is small: then a divisor of the lanes, if possible.

        >>> MixtureOrder.classes_for(15_360, np.array([10**7, 100_000]))
        1536
        """
        most = max(min(lanes, int(sizes.min()) // _MIN_CLASS_SAMPLES), 1)
        return next((n for n in range(most, most // 2, -1) if lanes % n == 0), most)

    @property
    def samples_until_exhausted(self) -> int:
        """The samples of the mixture that exhaust the first of its sources, about; no source repeats."""
        # A class may be a sample ahead of its share. Subtract what each phase takes, until a source is
        # exhausted.
        left = np.maximum(self.sizes // self.classes - 1, 1) * self.classes
        for first, end, shares in zip(
            self.firsts, [*self.firsts[1:], None], self.shares, strict=True
        ):
            is_used = shares > 0
            possible = int((np.maximum(left, 0) * BLOCK // np.maximum(shares, 1))[is_used].min())
            if end is None or possible <= (end - first) * self.classes:
                break  # before the weights change again
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
        """Return a block of a class: the source of each sample, and its number among the source's samples.

        Both are (BLOCK,) int64; the number counts the samples of all classes from the first block.
        """
        # The samples of a source in a class are numbered from the start of the order: add up the earlier
        # phases, and the earlier blocks of this one, which all have the same shares.
        shares = self.shares[phase]
        sources, nth = self._spread(sample_class, phase, number)
        before = self._class_counts(sample_class, self.firsts[phase]) + number * shares
        return sources, self._in_turn(sample_class, sources, before[sources] + nth)

    def _in_turn(self, sample_class: int, sources: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Return the numbers of samples of sources, (n,) int64, from their indices in a class."""
        numbers: np.ndarray = indices * self.classes + sample_class
        if self._taken is None:
            return numbers
        # The classes take turns while all have samples. If three classes take 2, 1 and 2 samples, (class,
        # index) are (0, 0), (1, 0), (2, 0), (0, 1), (2, 1): at the end, class 1 is left out.
        is_late = indices >= self._taken.min(axis=0)[sources]  # not all classes have so many
        is_late &= indices < self._taken[sample_class, sources]
        for at in np.flatnonzero(is_late).tolist():
            # Before a late sample are all samples of smaller indices, and the same index of earlier classes.
            taken, index = self._taken[:, sources[at]], indices[at]
            earlier = np.count_nonzero(taken[:sample_class] > index)
            numbers[at] = np.minimum(taken, index).sum() + earlier
        return numbers

    @cached_property
    def _taken(self) -> np.ndarray | None:
        """The samples of each source in each class, (classes, K) int64; None if the order is endless."""
        return None if self.num_samples is None else self._all_counts(self.num_samples)

    def _spread(self, sample_class: int, phase: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source of each sample of a block, and its index among the source's samples there."""
        shares = self.shares[phase]
        sources = np.repeat(np.arange(len(shares)), shares)
        nth = np.arange(BLOCK) - np.repeat(np.cumsum(shares) - shares, shares)
        # A random time in the nth of ``share`` equal parts of the block: sorted by time, the samples of each
        # source are spread evenly, and no source comes first.
        moments = nth + uniform(
            BLOCK, self.seed, "mixture", self.stage, sample_class, phase, number
        )
        order = np.argsort(moments / shares[sources], kind="stable")
        return sources[order], nth[order]

    def _class_counts(self, sample_class: int, position: int) -> np.ndarray:
        """Return the number of samples of each source before a position of a class, (K,) int64."""
        # Whole blocks have the shares of their phase. Only the block at the position is looked at.
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
        total: np.ndarray = self._all_counts(sample).sum(axis=0)
        return total

    def _all_counts(self, sample: int) -> np.ndarray:
        """Return the same for each class, (classes, K) int64."""
        # Class c has the samples c, c + classes, ...: so many of them are before this sample.
        positions = [
            max(sample - sample_class + self.classes - 1, 0) // self.classes
            for sample_class in range(self.classes)
        ]
        return np.stack([self._class_counts(*each) for each in enumerate(positions)])
