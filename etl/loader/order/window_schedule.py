"""Windows whose length changes with the sample number: each pass reads a part of an epoch's stream.

All windows of a pass have one length. A pass begins where the one before it ended, in the same stream of
runs (see ``epoch.py``), and ends with the sample before the next change of length, or with the epoch. So each
token is still in one window of an epoch, except for fewer than ``seq_len`` tokens at its end. In its part of
the stream, a pass has lanes and blocks like an epoch.
"""

import hashlib
import json
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.schedule import Schedule
from etl.loader.order.shuffle import ResolvedShuffle


@dataclass(frozen=True)
class PartPlan(EpochPlan):
    """The samples of a pass. What its methods call the epoch is the number of the pass."""

    _: KW_ONLY
    stream_epoch: int  # the epoch whose stream is read
    first_token: int  # of that stream
    max_samples: int | None  # None: up to the end of the stream
    first_sample: int  # the samples of all passes before this one
    next_seq_len: int  # that of the next pass

    @property
    def num_samples(self) -> int:
        """The number of windows of the pass over all ranks."""
        tokens = self.num_tokens - self.first_token - self.overlap
        available = max(tokens, 0) // self.seq_len
        return available if self.max_samples is None else min(available, self.max_samples)

    @property
    def end_sample(self) -> int:
        """The first sample after the pass."""
        return self.first_sample + self.num_samples

    @property
    def dropped_tokens(self) -> int:
        """The number of tokens at the end of the epoch's stream that are in no window."""
        rest = self.num_tokens - self.first_token - self.num_samples * self.seq_len - self.overlap
        return rest if rest < self.next_seq_len else 0

    def stream(self, epoch: int) -> EpochStream:  # noqa: ARG002 - passes of an epoch share its stream
        """Return the row groups of the epoch in its order; token 0 is the first one of the pass."""
        whole = super().stream(self.stream_epoch)
        return EpochStream(whole.groups, whole.group_tokens, whole.marks - self.first_token)


class WindowSchedule:
    """The passes over a table with windows of changing length, a pure function of the arguments.

    Raises LoaderError if the table is too small for one window of any length.
    """

    def __init__(
        self,
        group_tokens: np.ndarray,
        seq_lens: Schedule[int],
        seed: int,
        shuffle: ResolvedShuffle | None,
    ) -> None:
        plans = [EpochPlan(group_tokens, value, seed, shuffle) for value in seq_lens.values]
        self._seq_lens = seq_lens
        self._whole = plans[0]
        self._newest = (0, self._plan(0))

    def plan(self, number: int) -> PartPlan:
        """Return the samples of a pass."""
        if self._newest[0] != number:
            self._newest = (number, self._plan(number))
        return self._newest[1]

    def firsts(self, last: int) -> list[int]:
        """Return the first sample of each pass up to the one that has the sample ``last``."""
        firsts = [0]
        while (end := self.plan(len(firsts) - 1).end_sample) <= last:
            firsts.append(end)
        return firsts

    def _plan(self, number: int) -> PartPlan:
        num_tokens, starts = self._whole.num_tokens, self._seq_lens.starts
        epoch = token = sample = 0
        for _ in range(number + 1):
            seq_len = self._seq_lens.at(sample)
            if num_tokens - token <= seq_len:
                epoch, token = epoch + 1, 0
            change = min((start for start in starts if start > sample), default=None)
            plan = PartPlan(
                self._whole.group_tokens,
                seq_len,
                self._whole.seed,
                self._whole.shuffle,
                stream_epoch=epoch,
                first_token=token,
                max_samples=None if change is None else change - sample,
                first_sample=sample,
                next_seq_len=seq_len,
            )
            sample += plan.num_samples
            plan = replace(plan, next_seq_len=self._seq_lens.at(sample))
            token += plan.num_samples * seq_len
        return plan

    def fingerprint(self, table_digest: str) -> str:
        """Return 16 hex digits over everything that decides the order, for comparison with saved states."""
        parts = [self._whole.fingerprint(table_digest), *self._seq_lens.phases]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
