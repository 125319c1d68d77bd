"""`Epochs`: how many samples each epoch of a dataset has, and where it begins."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class EqualEpochs:
    """The epochs of a table whose windows all have one length: each has as many samples."""

    whole: EpochPlan
    seq_lens: Schedule[int]
    table_digest: str

    def of(self, number: int) -> Epoch:
        """Return an epoch."""
        plan = self.whole
        first_sample = number * plan.num_samples
        return Epoch(first_sample, plan.num_samples, plan.lanes, self.seq_lens.at(0))

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""
        return np.divmod(numbers, self.whole.num_samples)

    def plan(self, number: int) -> EpochPlan:  # noqa: ARG002 - a plan gives the order of every epoch
        """Return the order of an epoch's samples."""
        return self.whole

    def whole_epoch(self, seq_len: int) -> EpochPlan:  # noqa: ARG002 - there is one length
        """Return the order of the samples of an epoch that has all windows of one of the lengths."""
        return self.whole

    def with_seq_lens(self, seq_lens: Schedule[int]) -> "EqualEpochs":  # noqa: ARG002 - as above
        """Return the epochs of the same table with other lengths."""
        return self

    @property
    def table_fingerprint(self) -> str:
        """The same as ``fingerprint``."""
        return self.fingerprint()

    def fingerprint(self, sample: int = 0) -> str:  # noqa: ARG002 - the order never changes
        """Return 16 hex digits over everything that decides the order, for comparison with saved states."""
        return self.whole.fingerprint(self.table_digest)
