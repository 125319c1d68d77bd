"""`Epochs`: how many samples each epoch of a dataset has, and where it begins."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Protocol

import numpy as np

from etl.errors import LoaderError
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.schedule import Schedule


class Epoch(NamedTuple):
    """The samples of an epoch over all ranks."""

    first_sample: int  # counted over all epochs
    num_samples: int
    lanes: int  # sample g is in lane g % lanes, which few ranks should share
    seq_len: int

    def check(self, sample: int, *, where: str) -> None:
        """Raise LoaderError unless the epoch has a sample."""
        if not 0 <= sample < self.num_samples:
            raise LoaderError(
                f"sample index {sample} is out of range: the dataset has {self.num_samples} samples",
                where=where,
            )


class Epochs(Protocol):
    """The epochs of a dataset; if the length of the windows changes, its passes."""

    @property
    def seq_lens(self) -> Schedule[int]:
        """The lengths of the windows."""

    def of(self, number: int) -> Epoch:
        """Return an epoch."""

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""

    def fingerprint(self, sample: int) -> str:
        """Return 16 hex digits over everything that decides the order before a sample, of all epochs."""


def fingerprint_of(parts: Sequence[object]) -> str:
    """Return 16 hex digits of the hash of values."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class SourceEpochs(Epochs, Protocol):
    """The epochs of a dataset that may be a source of a mixture."""

    def whole_epoch(self, seq_len: int) -> Epoch:
        """Return the first epoch, if it has all windows of one of the lengths."""

    def with_seq_lens(self, seq_lens: Schedule[int]) -> "SourceEpochs":
        """Return the epochs of the same table with the same lengths from other samples on."""


@dataclass(frozen=True)
class EpochRange:
    """Consecutive epochs with equally many samples, as numbers: enough to count in them without a table."""

    num_samples: int
    lanes: int
    seq_len: int
    order: str  # the fingerprint of the order
    _: KW_ONLY
    first_epoch: int = 0
    first_sample: int = 0

    def of(self, number: int) -> Epoch:
        """Return an epoch."""
        first_sample = self.first_sample + (number - self.first_epoch) * self.num_samples
        return Epoch(first_sample, self.num_samples, self.lanes, self.seq_len)

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""
        epochs, samples = np.divmod(numbers - self.first_sample, self.num_samples)
        return epochs + self.first_epoch, samples


@dataclass(frozen=True)
class EqualEpochs(EpochRange):
    """The epochs of a table whose windows all have one length."""

    whole: EpochPlan

    @staticmethod
    def of_plan(plan: EpochPlan, *, seq_len: int, table_digest: str) -> "EqualEpochs":
        """Return the epochs with the order of a plan; ``seq_len`` are the tokens of its windows."""
        order = plan.fingerprint(table_digest)
        return EqualEpochs(plan.num_samples, plan.lanes, seq_len, order, plan)

    @property
    def seq_lens(self) -> Schedule[int]:
        """The lengths of the windows."""
        return Schedule([(0, self.seq_len)])

    def plan(self, number: int) -> EpochPlan:  # noqa: ARG002 - a plan gives the order of every epoch
        """Return the order of an epoch's samples."""
        return self.whole

    def whole_epoch(self, seq_len: int) -> Epoch:  # noqa: ARG002 - there is one length
        """Return the first epoch."""
        return self.of(self.first_epoch)

    def with_seq_lens(self, seq_lens: Schedule[int]) -> "EqualEpochs":  # noqa: ARG002 - as above
        """Return the epochs of the same table with other lengths."""
        return self

    def fingerprint(self, sample: int = 0) -> str:  # noqa: ARG002 - the order never changes
        """Return 16 hex digits over everything that decides the order, for comparison with saved states."""
        return self.order


@dataclass(frozen=True)
class ChangedEpochs:
    """The epochs of a training that has changed its plan: each range ends where the next one begins."""

    ranges: tuple[EpochRange, ...]

    @property
    def seq_lens(self) -> Schedule[int]:
        """The lengths of the windows."""
        phases = [(each.first_sample, each.seq_len) for each in self.ranges]
        kept = [
            phase for nth, phase in enumerate(phases) if nth == 0 or phase[1] != phases[nth - 1][1]
        ]
        return Schedule(kept)

    def of(self, number: int) -> Epoch:
        """Return an epoch."""
        firsts = [each.first_epoch for each in self.ranges]
        return self.ranges[bisect_right(firsts, number) - 1].of(number)

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""
        epochs, samples = np.zeros_like(numbers), np.zeros_like(numbers)
        firsts = [each.first_sample for each in self.ranges]
        which = np.searchsorted(firsts, numbers, side="right") - 1
        for index in np.unique(which).tolist():
            chosen = which == index
            epochs[chosen], samples[chosen] = self.ranges[index].find(numbers[chosen])
        return epochs, samples

    def whole_epoch(self, seq_len: int) -> Epoch:  # noqa: ARG002 - as its ranges have it
        """Return the first epoch."""
        return self.of(0)

    def with_seq_lens(self, seq_lens: Schedule[int]) -> "ChangedEpochs":  # noqa: ARG002 - as above
        """Return the same epochs."""
        return self

    def fingerprint(self, sample: int) -> str:
        """Return 16 hex digits over everything that decides the order before a sample, of all epochs."""
        first, *later = self.ranges
        begun = [(each.first_epoch, each.order) for each in later if each.first_sample < sample]
        return fingerprint_of([first.order, *begun]) if begun else first.order
