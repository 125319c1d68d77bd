"""Windows whose length changes with the sample number: each pass reads a part of an epoch's stream.

All windows of a pass have one length. A pass begins where the one before it ended, in the same stream of
runs (see ``epoch.py``), and ends with the sample before the next change of length, or with the epoch. So each
token is still in one window of an epoch, except for fewer than ``seq_len`` tokens at its end. In its part of
the stream, a pass has lanes and blocks like an epoch.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np

from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.epochs import Epoch, fingerprint_of
from etl.loader.order.schedule import Schedule
from etl.loader.order.shuffle_settings import ResolvedShuffle


@dataclass(frozen=True)
class PartPlan(EpochPlan):
    """The samples of a pass. What its methods call the epoch is the number of the pass."""

    _: KW_ONLY
    stream_epoch: int  # the epoch whose stream is read
    first_token: int  # of that stream
    max_samples: int | None  # None: up to the end of the stream
    first_sample: int  # the samples of all passes before this one
    next_seq_len: int  # the length of windows after its next change

    @property
    def num_samples(self) -> int:
        """The number of windows of the pass over all ranks."""
        tokens = self.num_tokens - self.first_token - self.overlap
        available = max(tokens, 0) // self.seq_len
        return available if self.max_samples is None else min(available, self.max_samples)

    @property
    def dropped_tokens(self) -> int:
        """The number of tokens at the end of the epoch's stream that are in no window."""
        rest = self.num_tokens - self.first_token - self.num_samples * self.seq_len - self.overlap
        is_next_length = self.num_samples == self.max_samples
        return rest if rest < (self.next_seq_len if is_next_length else self.seq_len) else 0

    def stream_epoch_of(self, epoch: int) -> int:  # noqa: ARG002 - as in ``stream``
        """Return the epoch of which the pass reads a part."""
        return self.stream_epoch

    def stream(self, epoch: int) -> EpochStream:  # noqa: ARG002 - passes of an epoch share its stream
        """Return the row groups of the epoch in its order; the pass begins with token 0."""
        whole = super().stream(self.stream_epoch)
        return EpochStream(whole.groups, whole.group_tokens, whole.marks - self.first_token)


@dataclass(frozen=True, kw_only=True)
class _Phase:
    """The passes with windows of one length: the rest of an epoch, then whole epochs, the last in part."""

    seq_len: int
    first_sample: int
    num_samples: int | None  # None: endless
    first_pass: int
    epoch: int  # of the first pass
    first_token: int  # of the stream of that epoch
    first_size: int  # the windows of the rest of that epoch
    size: int  # the windows of a whole epoch

    def pass_start(self, number: int) -> int:
        """Return the first sample of a pass, counted from the start of the phase."""
        later = number - self.first_pass
        return 0 if later == 0 else self.first_size + (later - 1) * self.size


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
        *,
        table_digest: str,
    ) -> None:
        self.seq_lens = seq_lens
        self._table_digest = table_digest
        self._whole = {
            value: EpochPlan(group_tokens, value, seed, shuffle) for value in seq_lens.values
        }
        self._first = self._whole[seq_lens.at(0)]
        self._phases = list(self._plan_phases())
        self._newest = (0, self._plan(0))

    def with_seq_lens(self, seq_lens: Schedule[int]) -> "WindowSchedule":
        """Return the passes over the same table with other lengths."""
        first = self._first
        return WindowSchedule(
            first.group_tokens,
            seq_lens,
            first.seed,
            first.shuffle,
            table_digest=self._table_digest,
        )

    def whole_epoch(self, seq_len: int) -> Epoch:
        """Return the first epoch, if it has all windows of one of the lengths."""
        plan = self._whole[seq_len]
        return Epoch(0, plan.num_samples, plan.lanes, seq_len)

    def plan(self, number: int) -> PartPlan:
        """Return the order of a pass's samples."""
        if self._newest[0] != number:
            self._newest = (number, self._plan(number))
        return self._newest[1]

    def of(self, number: int) -> Epoch:
        """Return the samples of a pass."""
        plan = self.plan(number)
        return Epoch(plan.first_sample, plan.num_samples, plan.lanes, plan.seq_len)

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the passes of samples counted over all passes, (n,) int64, and the samples in these."""
        # In a phase, the passes after the first one all have ``size`` samples, so a division finds them.
        passes, samples = np.zeros_like(numbers), np.zeros_like(numbers)
        starts = [phase.first_sample for phase in self._phases]
        phases = np.searchsorted(starts, numbers, side="right") - 1
        for index in np.unique(phases).tolist():
            phase, chosen = self._phases[index], phases == index
            later, sample = np.divmod(
                numbers[chosen] - phase.first_sample - phase.first_size, phase.size
            )
            is_first = later < 0  # the rest of the epoch in which the length changed
            passes[chosen] = phase.first_pass + np.where(is_first, 0, later + 1)
            in_first = numbers[chosen] - phase.first_sample
            samples[chosen] = np.where(is_first, in_first, sample)
        return passes, samples

    def _plan_phases(self) -> Iterator[_Phase]:
        num_tokens, starts = self._first.num_tokens, self.seq_lens.starts
        epoch = token = number = 0
        for (start, seq_len), end in zip(self.seq_lens, [*starts[1:], None], strict=True):
            # The rest of the epoch may be too short for a window of the next length: it is then dropped.
            if num_tokens - token <= seq_len:
                epoch, token = epoch + 1, 0
            phase = _Phase(
                seq_len=seq_len,
                first_sample=start,
                num_samples=None if end is None else end - start,
                first_pass=number,
                epoch=epoch,
                first_token=token,
                first_size=(num_tokens - token - 1) // seq_len,
                size=self._whole[seq_len].num_samples,
            )
            yield phase
            if end is None:
                return
            # The phase ends after ``rest`` windows of its last pass: the next phase continues there.
            later = max(-(-(end - start - phase.first_size) // phase.size), 0)
            last = number + later
            rest = end - start - phase.pass_start(last)
            epoch, token = epoch + later, rest * seq_len + (token if later == 0 else 0)
            number = last + 1

    def _plan(self, number: int) -> PartPlan:
        index = bisect_right([phase.first_pass for phase in self._phases], number) - 1
        phase, later = self._phases[index], number - self._phases[index].first_pass
        before = phase.pass_start(number)
        is_last_phase = phase.num_samples is None
        return PartPlan(
            self._first.group_tokens,
            phase.seq_len,
            self._first.seed,
            self._first.shuffle,
            stream_epoch=phase.epoch + later,
            first_token=0 if later else phase.first_token,
            max_samples=None if phase.num_samples is None else phase.num_samples - before,
            first_sample=phase.first_sample + before,
            next_seq_len=self._phases[index + (0 if is_last_phase else 1)].seq_len,
        )

    def fingerprint(self, sample: int = 0) -> str:
        """Return 16 hex digits over everything that decides the order before a sample, of all passes.

        Up to the first change of length, it is that of a table whose windows all have the first length.
        """
        last = max(sample - 1, 0)
        numbers, _ = self.find(np.array([last]))
        plan = self.plan(int(numbers[0]))
        # The next change of length decides the order of the pass that it ends.
        end = plan.first_sample + plan.num_samples if plan.num_samples == plan.max_samples else last
        first = self._first.fingerprint(self._table_digest)
        later = [phase for phase in self.seq_lens if 0 < phase[0] <= end]
        return fingerprint_of([first, *later]) if later else first
