"""The stages of a mixture: in each, all windows have one length.

A stage begins with the sample where the length changes. It has a separate order (see ``mixture_order.py``),
which begins with new blocks and has as many classes as the sources have lanes for windows of its length. It
takes consecutive samples of each source, so the sample with which the length of a source changes follows from
the counts of the stages before, and no window of a source is lost between them.

A pass ends after a given number of samples, or with the stage.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from etl.loader.order.epochs import Epoch
from etl.loader.order.mixture_order import MixtureOrder, compute_shares
from etl.loader.order.schedule import Schedule


class WindowsOf(NamedTuple):
    """The windows of one length of K sources."""

    seq_len: int
    sizes: np.ndarray  # (K,) int64, of an epoch of each source
    lanes: int  # of the source with the most


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

    ``weights`` are (K,) float64. By default a pass has as many samples as exhaust the first source.
    """

    def __init__(
        self,
        windows: Schedule[WindowsOf],
        weights: Schedule[np.ndarray],
        *,
        seed: int,
        num_samples: int | None,
    ) -> None:
        self.seq_lens = Schedule([(start, lengths.seq_len) for start, lengths in windows])
        self._stages: list[MixtureStage] = []
        # Each stage continues in the sources where the one before it ended: how far that is follows from the
        # counts of its order, so the stages are computed one after the other.
        taken = np.zeros(len(weights.values[0]), np.int64)
        first_pass = 0
        for number, (start, lengths) in enumerate(windows):
            end = windows.starts[number + 1] if number + 1 < len(windows.starts) else None
            classes = MixtureOrder.classes_for(lengths.lanes, lengths.sizes)
            phases = weights.between(start, end)
            order = MixtureOrder(
                np.stack([compute_shares(value) for value in phases.values]),
                lengths.sizes,
                classes,
                seed,
                # A change of weights, at the nearest multiple of the classes.
                tuple((first + classes // 2) // classes for first in phases.starts),
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

    def of_pass(self, number: int) -> MixtureStage:
        """Return the stage of a pass."""
        firsts = [stage.first_pass for stage in self._stages]
        return self._stages[bisect_right(firsts, number) - 1]

    def of_sample(self, number: int) -> MixtureStage:
        """Return the stage of a sample of the mixture."""
        firsts = [stage.first_sample for stage in self._stages]
        return self._stages[bisect_right(firsts, number) - 1]

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

    def seq_lens_of(self, source: int) -> Schedule[int]:
        """Return the lengths of the windows of a source, by the number of the source's samples."""
        starts = {int(stage.taken[source]): stage.seq_len for stage in self._stages}
        return Schedule(list(starts.items()))

    def parameters(self) -> Sequence[object]:
        """Return everything that decides the order besides the sources and the seed, for JSON."""
        return [
            [
                stage.first_sample,
                stage.pass_samples,
                stage.order.classes,
                stage.order.firsts,
                stage.order.shares.tolist(),
            ]
            for stage in self._stages
        ]
