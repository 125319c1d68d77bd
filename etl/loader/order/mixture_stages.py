"""The stages of a mixture: in each, all windows have one length.

A stage begins with the sample where the length changes. It has a separate order (see ``mixture_order.py``),
which begins with new blocks and has as many classes as the sources have lanes for windows of its length. It
takes consecutive samples of each source, so the sample with which the length of a source changes follows from
the counts of the stages before, and no window of a source is lost between them.

A pass ends after a given number of samples, or with the stage.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from etl.loader.order.epochs import Epoch, EqualEpochs, SourceEpochs, fingerprint_of
from etl.loader.order.mixture_order import MixtureOrder, compute_shares
from etl.loader.order.schedule import Schedule

_FORMAT = 4  # increase it when the order changes: older states are then refused


class WindowsOf(NamedTuple):
    """The windows of one length of K sources."""

    seq_len: int
    sizes: np.ndarray  # (K,) int64, of an epoch of each source
    lanes: np.ndarray  # (K,) int64, of each source


@dataclass(frozen=True)
class MixtureStage:
    """A stage of a mixture of K sources."""

    seq_len: int
    order: MixtureOrder
    first_sample: int  # of the mixture
    first_pass: int
    pass_samples: int  # of a complete pass
    taken: np.ndarray  # (K,) int64, the samples of each source before the stage

    @property
    def num_passes(self) -> int:
        """The number of passes, of which the last one may be shorter; only if the stage ends."""
        assert self.order.num_samples is not None
        return -(-self.order.num_samples // self.pass_samples)

    def pass_start(self, number: int) -> int:
        """Return the first sample of a pass, counted from the start of the stage."""
        return (number - self.first_pass) * self.pass_samples

    def samples_of(self, number: int) -> int:
        """Return the number of samples of a pass."""
        if self.order.num_samples is None:
            return self.pass_samples
        return min(self.pass_samples, self.order.num_samples - self.pass_start(number))


class MixtureStages:
    """The stages of a mixture of K sources, a pure function of the arguments.

    ``weights`` are (K,) float64, ``sources`` the epochs of each source by name. By default a pass has as many
    samples as exhaust the first source. Classes and passes of a stage depend only on the sources that have a
    weight when it begins, so that the order up to a sample depends only on what is before it.
    """

    def __init__(
        self,
        windows: Schedule[WindowsOf],
        weights: Schedule[np.ndarray],
        *,
        seed: int,
        num_samples: int | None,
        sources: Mapping[str, SourceEpochs],
    ) -> None:
        self._windows, self._num_samples = windows, num_samples
        self._seed, self._sources = seed, sources
        self.seq_lens = Schedule([(start, lengths.seq_len) for start, lengths in windows])
        self.shares = Schedule([(start, compute_shares(value)) for start, value in weights])
        """The samples of each source in a block, from each sample on at which they change."""
        self._stages: list[MixtureStage] = []
        # Each stage continues in the sources where the one before it ended: how far that is follows from the
        # counts of its order, so the stages are computed one after the other.
        taken = np.zeros(len(weights.values[0]), np.int64)
        first_pass = 0
        for number, (start, lengths) in enumerate(windows):
            end = windows.starts[number + 1] if number + 1 < len(windows.starts) else None
            phases = self.shares.between(start, end)
            is_used = phases.values[0] > 0
            order = MixtureOrder(
                np.stack(phases.values),
                lengths.sizes,
                MixtureOrder.classes_for(int(lengths.lanes[is_used].max()), lengths.sizes[is_used]),
                seed,
                tuple(phases.starts),
                stage=number,
                num_samples=None if end is None else end - start,
            )
            stage = MixtureStage(
                seq_len=lengths.seq_len,
                order=order,
                first_sample=start,
                first_pass=first_pass,
                pass_samples=max(order.samples_until_exhausted, 1)
                if num_samples is None
                else num_samples,
                taken=taken,
            )
            self._stages.append(stage)
            if end is not None:
                taken = taken + order.counts(end - start)
                first_pass += stage.num_passes
        self.source_epochs: list[SourceEpochs] = [
            epochs.with_seq_lens(self._seq_lens_of(source))
            for source, epochs in enumerate(sources.values())
        ]
        """The epochs of the sources, which change their length where the mixture does."""

    def with_weights(self, weights: np.ndarray, *, at: int) -> "MixtureStages":
        """Return the stages with other weights, (K,) float64, from a sample of the last stage on."""
        changed = MixtureStages(
            self._windows,
            self.shares.then(at, weights),
            seed=self._seed,
            num_samples=self._num_samples,
            sources=self._sources,
        )
        last = self._stages[-1]
        changed._stages[-1].order.adopt_counts(last.order, at=at - last.first_sample)
        return changed

    def of_pass(self, number: int) -> MixtureStage:
        """Return the stage of a pass."""
        return self._stages[bisect_right(self._stages, number, key=attrgetter("first_pass")) - 1]

    def of_sample(self, number: int) -> MixtureStage:
        """Return the stage of a sample of the mixture."""
        return self._stages[bisect_right(self._stages, number, key=attrgetter("first_sample")) - 1]

    def of(self, number: int) -> Epoch:
        """Return the samples of a pass."""
        stage = self.of_pass(number)
        first_sample = stage.first_sample + stage.pass_start(number)
        return Epoch(first_sample, stage.samples_of(number), stage.order.classes, stage.seq_len)

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the passes of samples of the mixture, (n,) int64, and the samples in these."""
        firsts, passes, sizes = np.array(
            [(each.first_sample, each.first_pass, each.pass_samples) for each in self._stages]
        ).T
        at = np.searchsorted(firsts, numbers, side="right") - 1
        later, samples = np.divmod(numbers - firsts[at], sizes[at])
        return passes[at] + later, samples

    def find_sample(self, source: int, number: int) -> int | None:
        """Return the sample of the mixture that is a sample of a source; both count all epochs.

        None if the source has no weight any more when it would come.
        """
        at = bisect_right([int(stage.taken[source]) for stage in self._stages], number) - 1
        stage = self._stages[at]
        sample = stage.order.find_sample(source, number - int(stage.taken[source]))
        return None if sample is None else stage.first_sample + sample

    def numbers_end(self, sample: int) -> np.ndarray:
        """Return a number above the numbers of each source's samples before a sample, (K,) int64."""
        stage = self.of_sample(sample)
        end: np.ndarray = stage.taken + stage.order.numbers_end(sample - stage.first_sample)
        return end

    def numbers_begin(self, sample: int) -> np.ndarray:
        """Return a number not above the numbers of each source's samples from a sample on, (K,) int64."""
        stage = self.of_sample(sample)
        begin: np.ndarray = stage.taken + stage.order.numbers_begin(sample - stage.first_sample)
        return begin

    def _seq_lens_of(self, source: int) -> Schedule[int]:
        """Return the lengths of the windows of a source, by the number of the source's samples."""
        starts = {int(stage.taken[source]): stage.seq_len for stage in self._stages}
        return Schedule(list(starts.items()))

    def fingerprint(self, sample: int) -> str:
        """Return 16 hex digits over everything that decides the order before a sample of the mixture."""
        last = self.of_sample(sample)
        labels = self._labels(sample)
        parts: list[object] = [_FORMAT, self._seed]
        for stage in self._stages[: self._stages.index(last) + 1]:
            order, end = stage.order, sample - stage.first_sample
            if stage is not last or order.depends_on_end(end):
                end = order.num_samples or 0
                parts.append(end)
            parts += [stage.first_sample, stage.seq_len, stage.pass_samples, order.classes]
            # Sources without a weight so far decide nothing: they may be added later.
            parts += [
                [first, [(label, int(n)) for label, n in zip(labels, row, strict=True) if n]]
                for first, row in zip(order.firsts, order.shares, strict=True)
                if first < max(end, 1)
            ]
        return fingerprint_of(parts)

    def _labels(self, sample: int) -> list[str]:
        """Return what identifies each source, and its order as far as samples before one need it."""
        ends = [0] * len(self.source_epochs)
        # A plan that changes is compared up to the last sample that the mixture takes of it.
        if any(not isinstance(epochs, EqualEpochs) for epochs in self.source_epochs):
            ends = self.numbers_end(sample).tolist()
        return [
            f"{name} {epochs.fingerprint(end)}"
            for name, epochs, end in zip(self._sources, self.source_epochs, ends, strict=True)
        ]
