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
4. **Phases.** If the weights change with the sample number, each phase has its own shares. It may begin with
   any sample: each class then begins a new block, and goes on with its own count of each source. So a change
   shifts no sample of a source, and the order up to a sample depends only on the phases before it. A source
   that is added or removed later is one without samples in the other phases.
5. **Turns.** The classes take the samples of a source in turn: sample i of class c is sample
   i * classes + c of the source, counted over its epochs. If the order ends, the classes may have different
   numbers of samples of a source; the samples of longer classes follow each other without a gap. So the
   samples of a source are its first ones, each once.
6. **Repetition.** An exhausted source begins its next epoch, in the order of that epoch.

The position in every source follows from g, so the state does not need to store it.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
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
    firsts: tuple[int, ...] = (0,)  # (P,) the sample with which each phase begins
    stage: int = 0  # of the mixture: the orders of its stages differ
    num_samples: int | None = None  # None: endless
    # Of a class and a phase that begins with a sample: the samples of each source before it.
    known: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict, compare=False)

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
        """The samples of the mixture that exhaust the first of its sources, about, with the first weights."""
        # A class may be a sample ahead of its share. Later weights are ignored: they may change again.
        shares = self.shares[0]
        left = np.maximum(self.sizes // self.classes - 1, 1) * self.classes
        return int((left * BLOCK // np.maximum(shares, 1))[shares > 0].min())

    def adopt_counts(self, other: "MixtureOrder", *, at: int) -> None:
        """Take the counts that an order knows which is the same up to a sample."""
        self.known.update((key, counts) for key, counts in other.known.items() if key[2] <= at)

    def phase(self, sample: int) -> int:
        """Return the phase of a sample of the mixture."""
        return bisect_right(self.firsts, sample) - 1

    def _position(self, sample_class: int, sample: int) -> int:
        """Return the number of samples of a class before a sample of the mixture."""
        return max(sample - sample_class + self.classes - 1, 0) // self.classes

    def find_block(self, sample: int) -> tuple[int, int, int]:
        """Return the phase of a sample, and the number and the offset of its block in its class."""
        phase, (position, sample_class) = self.phase(sample), divmod(sample, self.classes)
        first = self._position(sample_class, self.firsts[phase])
        return phase, *divmod(position - first, BLOCK)

    def block(self, sample_class: int, phase: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a block of a class: the source of each sample, and its number among the source's samples.

        Both are (BLOCK,) int64; the number counts the samples of all classes from the first block.
        """
        # The samples of a source in a class are numbered from the start of the order: add up the earlier
        # phases, and the earlier blocks of this one, which all have the same shares.
        sources, nth = self._spread(sample_class, phase, number)
        before = self.counts_before(sample_class, phase) + number * self.shares[phase]
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

    def find_sample(self, source: int, number: int) -> int | None:
        """Return the sample of the mixture that is a sample of a source: the inverse of ``block``.

        None if the source has no weight any more when it would come.
        """
        sample_class, index = self._turn(source, number)
        # The phase, and in it the block, in which the class takes its sample of that index.
        phase, before = 0, 0
        for later in range(1, len(self.shares)):
            taken = int(self.counts_before(sample_class, later)[source])
            if taken <= index:
                phase, before = later, taken
        if not self.shares[phase, source]:
            return None
        block, nth = divmod(index - before, int(self.shares[phase, source]))
        sources, indices = self._spread(sample_class, phase, block)
        offset = int(np.flatnonzero((sources == source) & (indices == nth))[0])
        position = self._position(sample_class, self.firsts[phase]) + block * BLOCK + offset
        return position * self.classes + sample_class

    def _turn(self, source: int, number: int) -> tuple[int, int]:
        """Return the class that takes a sample of a source, and the index of the sample there."""
        index, sample_class = divmod(number, self.classes)
        if self._taken is None or index < self._taken[:, source].min():
            return sample_class, index
        # As in ``_in_turn``, only some classes have late samples, which take turns.
        taken = self._taken[:, source]
        index = int(taken.min())
        while (through := int(np.minimum(taken, index + 1).sum())) <= number:
            index += 1
        late = np.flatnonzero(taken > index)
        return int(late[number - (through - len(late))]), index

    @cached_property
    def _taken(self) -> np.ndarray | None:
        """The samples of each source in each class, (classes, K) int64; None if the order is endless."""
        return None if self.num_samples is None else self._all_counts(self.num_samples)

    def depends_on_end(self, sample: int) -> bool:
        """Return whether samples before one have numbers that depend on where the order ends."""
        if self._taken is None or self.num_samples is None:
            return False
        # Between two classes, the counts of a source differ by little. Far from the end of a source that is
        # still read, they need not be computed.
        num_phases, num_sources = self.shares.shape
        rest = self._expected(self.num_samples) - self._expected(sample)
        if (rest[self.shares.any(axis=0)] > 2 * (num_phases + 1) * (num_sources + 2)).all():
            return False
        return bool((self._all_counts(sample).max(axis=0) > self._taken.min(axis=0)).any())

    def _spread(self, sample_class: int, phase: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source of each sample of a block, and its index among the source's samples there."""
        sources, nth, moments = self._moments(sample_class, phase, number)
        order = np.argsort(moments, kind="stable")
        return sources[order], nth[order]

    def _moments(
        self, sample_class: int, phase: int, number: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the samples of a block by source: the source, the index among its samples, the time."""
        shares = self.shares[phase]
        sources = np.repeat(np.arange(len(shares)), shares)
        nth = np.arange(BLOCK) - np.repeat(np.cumsum(shares) - shares, shares)
        # A random time in the nth of ``share`` equal parts of the block: sorted by time, the samples of each
        # source are spread evenly, and no source comes first.
        moments = nth + uniform(
            BLOCK, self.seed, "mixture", self.stage, sample_class, phase, number
        )
        return sources, nth, moments / shares[sources]

    def counts_before(self, sample_class: int, phase: int) -> np.ndarray:
        """Return the number of samples of each source in a class before a phase, (K,) int64."""
        # Computed from phase to phase, once: weights that are set while training make many of them.
        known = phase
        while known and (sample_class, known, self.firsts[known]) not in self.known:
            known -= 1
        key = (sample_class, known, self.firsts[known])
        total = self.known[key] if known else np.zeros(self.shares.shape[1], np.int64)
        for before in range(known, phase):
            end = self._position(sample_class, self.firsts[before + 1])
            total = total + self._counts_within(sample_class, before, end)
            self.known[sample_class, before + 1, self.firsts[before + 1]] = total
        return total

    def _counts_within(self, sample_class: int, phase: int, position: int) -> np.ndarray:
        """Return the number of samples of each source from the start of a phase to a position of a class."""
        # Whole blocks have the shares of their phase. Only the block at the position is looked at.
        first = self._position(sample_class, self.firsts[phase])
        number, offset = divmod(position - first, BLOCK)
        total: np.ndarray = number * self.shares[phase]
        if offset:
            sources, _, moments = self._moments(sample_class, phase, number)
            # A quarter of the time of a sort. Equal times (about never) need the order of the sort.
            is_before = moments <= np.partition(moments, offset - 1)[offset - 1]
            if np.count_nonzero(is_before) > offset:
                is_before = np.argsort(moments, kind="stable")[:offset]
            total = total + np.bincount(sources[is_before], minlength=len(total))
        return total

    def counts(self, sample: int) -> np.ndarray:
        """Return the number of samples of each source before a sample of the mixture, (K,) int64."""
        total: np.ndarray = self._all_counts(sample).sum(axis=0)
        return total

    def numbers_end(self, sample: int) -> np.ndarray:
        """Return a number above the numbers of each source's samples before a sample, (K,) int64."""
        end: np.ndarray = self._all_counts(sample).max(axis=0) * self.classes
        return end

    def numbers_begin(self, sample: int) -> np.ndarray:
        """Return a number not above the numbers of each source's samples from a sample on, (K,) int64."""
        begin: np.ndarray = self._all_counts(sample).min(axis=0) * self.classes
        return begin

    def _expected(self, sample: int) -> np.ndarray:
        """Return about the number of samples of each source in a class before a sample, (K,) float64."""
        ends = np.minimum([*self.firsts[1:], sample], sample)
        lengths = np.maximum(ends - np.array(self.firsts), 0)
        return np.asarray(lengths @ self.shares / (self.classes * BLOCK))

    def _all_counts(self, sample: int) -> np.ndarray:
        """Return the same for each class, (classes, K) int64."""
        phase = self.phase(sample)
        return np.stack(
            [
                self.counts_before(each, phase)
                + self._counts_within(each, phase, self._position(each, sample))
                for each in range(self.classes)
            ]
        )
