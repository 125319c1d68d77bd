"""`Position`: where a dataset is in its samples, in this process and in its DataLoader workers.

A position is saved and restored as a state (``state.py``), and moves with its passes (``pass_starts.py``).
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any

from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import PositionedBatch
from etl.loader.one_pass import Pass
from etl.loader.order.epochs import Epochs
from etl.loader.pass_starts import Passes
from etl.loader.planned_passes import Planned, Resumed, Worker
from etl.loader.read_parts import UNKNOWN, Place, cut_parts
from etl.loader.skipped_steps import (
    Gaps,
    abandoned_error,
    gaps_after,
    gaps_of,
    gaps_to_state,
    left_pass_error,
    next_place,
    pass_gaps,
    plan_gap,
    read_ahead_error,
)
from etl.loader.state import (
    STATE_FORMAT,
    State,
    check_position,
    check_state,
    find_state,
    parts_of,
    resumed_of,
    whole_number,
)
from etl.loader.steps import Steps, place_after


class Position:
    """Where a dataset is in its epochs: begins each pass there, and saves and restores states.

    ``identity`` is what states have besides the position and the fingerprint of the order up to there,
    ``where`` the location that errors name.
    """

    def __init__(self, identity: State, epochs: Epochs, *, where: str, repeats: bool) -> None:
        self._identity = identity
        self._epochs = epochs
        self._where = where
        self._repeats = repeats
        self._passes = Passes()
        self._changes = self._passes.changes  # of the plan, that this reader knows
        self._pass: Pass | None = None  # the newest one of this reader
        self._has_failed = False  # in a worker: its pass could not begin
        self._resumed: State | None = None  # in a worker: its state from a StatefulDataLoader
        self._newest_plan: tuple[int, str] | None = None  # the fingerprint up to a sample
        self._loaded_epoch: int | None = None  # until the first pass after a state was loaded
        self._gaps: Gaps = ()  # that the training has not reached

    @property
    def epoch(self) -> int:
        """The epoch of the newest pass, or of the first one."""
        return self._passes.epoch

    @property
    def consumed(self) -> int:
        """The sample of the epoch after the batch that this process has returned last."""
        return self._passes.consumed

    def set_epoch(self, epoch: int) -> None:
        """Move to the beginning of an epoch, or do nothing while that epoch is being read."""
        epoch = whole_number("epoch", epoch, where=self._where)
        if self._loaded_epoch is not None and epoch < self._loaded_epoch:
            raise LoaderError(
                f"the state that was loaded is in epoch {self._loaded_epoch}, "
                f"but set_epoch({epoch}) would begin an earlier one",
                where=self._where,
                hint=f"continue with set_epoch({self._loaded_epoch}); a loader that accelerate prepared "
                "counts epochs itself, from 0: call its set_epoch too",
            )
        if epoch == self.epoch and not self._passes.has_ended:
            self._passes.keep_epoch()
        else:
            self._passes.move(epoch, 0, is_set=True)
            self._pass = None

    def begin(self, steps: Steps, *, runs_ahead: bool) -> Pass:
        """Begin a pass in this reader, and return it.

        Raises LoaderError if the samples received last are unknown, or if an epoch has no step.
        """
        self._has_failed = get_worker_info() is not None  # until the pass has begun
        self._check_whole_steps()
        worker = Worker.current()
        self.leave_out(steps, runs_ahead=runs_ahead)
        if self._changes != self._passes.changes:
            raise LoaderError(
                "the weights were set after the workers of this DataLoader had started",
                where=self._where,
                hint="make a new DataLoader, or use persistent_workers=False",
            )
        planned = Planned(
            steps=steps, epochs=self._epochs, repeats=self._repeats, runs_ahead=runs_ahead
        )
        start = self._passes.begin(worker, planned, self._take_resumed(steps))
        if start is None:
            raise abandoned_error(self.epoch, self._where)
        epoch = self._epochs.of(start.epoch)
        # Another worker may have begun the epoch before this one planned its steps.
        steps = replace(steps, lanes=epoch.lanes)
        steps.check(epoch.num_samples, where=self._where)
        ends = [gap.start[1] for gap in self._gaps if gap.start[0] == start.epoch]
        self._pass = Pass(
            start,
            steps,
            worker,
            num_samples=min([epoch.num_samples, *ends]),
            runs_ahead=runs_ahead,
            is_cut=bool(ends),
        )
        self._loaded_epoch = None
        self._has_failed = False
        if not self._pass.numbers and not self._pass.is_cut:
            self._passes.end(worker, start.number)
        return self._pass

    @contextmanager
    def changing(self, at: int) -> Iterator[None]:
        """Let the plan change from a sample on, counted over all epochs; readers wait.

        Raises LoaderError if a sample from there on may have been read.
        """
        if get_worker_info() is not None or (
            self._passes.runs_ahead and not self._passes.has_ended
        ):
            raise LoaderError(
                "the workers of a DataLoader read ahead, so that the plan cannot change now",
                where=self._where,
                hint="iterate dataset.batches(batch_size, prefetch=...) without workers, or change the plan "
                "with a saved state: from_state(..., change=PlanChange(...))",
            )
        with nullcontext() if self._pass is None else self._pass.lock:
            reached = self.consumed if self._pass is None else self._pass.reached
            reached += self._epochs.of(self.epoch).first_sample
            if at < reached:
                raise LoaderError(
                    f"the plan cannot change at sample {at:,}: samples up to {reached:,} are taken, or read "
                    "ahead",
                    where=self._where,
                    hint="name a later sample, the same on all ranks: more than prefetch steps ahead",
                )
            yield
        self._passes.count_change()
        self._changes = self._passes.changes

    def skip(self, num_steps: int, steps: Steps, *, after: int = 0) -> None:
        """Leave out some steps, the next ones or after others, as if they had been read, and record it."""
        after = whole_number("after", after, where=self._where)
        if not whole_number("num_steps", num_steps, where=self._where):
            return
        if get_worker_info() is not None or (
            self._passes.runs_ahead and not self._passes.has_ended
        ):
            raise abandoned_error(self.epoch, self._where)
        self._check_whole_steps()
        if self._pass is not None:
            self._pass.is_left = True
        self._gaps = plan_gap(
            self._passes, self._gaps, num_steps, steps, self._epochs, after=after, where=self._where
        )
        self.leave_out(steps)

    def leave_out(self, steps: Steps, *, runs_ahead: bool = False) -> None:
        """Move behind the samples that are left out here, or before which there is no other step.

        Raises LoaderError if such samples lie ahead of readers that would not know where to stop.
        """
        place = next_place(self._passes)
        self._gaps = gaps_after(place, self._gaps)
        if self._gaps and (runs_ahead or get_worker_info() is not None):
            raise read_ahead_error(self._where)
        self._gaps = pass_gaps(self._passes, self._gaps, steps)
        if next_place(self._passes) != place:
            self._pass = None

    def has_steps(self, epoch: int, steps: Steps) -> bool:
        """Return whether the next pass reads more of an epoch."""
        place, num_samples = next_place(self._passes), self._epochs.of(epoch).num_samples
        return place[0] == epoch and steps.count(num_samples - place[1]) > 0

    def replan(self, identity: State, epochs: Epochs) -> None:
        """Replace the plan, while it is ``changing``."""
        self._identity, self._epochs = identity, epochs

    def record(self, begun: Pass, item: PositionedBatch) -> None:
        """Record that a pass returns a batch next; raise LoaderError if steps were skipped since it began."""
        if begun.is_left:
            raise left_pass_error(self._where)
        begun.returned += item.is_whole
        begun.is_whole = item.is_whole
        if not begun.worker.loader:
            self._passes.record(item.position)
        if item.is_last and not begun.is_cut:
            self._passes.end(begun.worker, begun.start.number)

    def state(self, consumed: int | None = None) -> State:
        """Return the state after the samples of the epoch that this process has returned, or a number.

        Raises LoaderError if the samples received are unknown, or if there are not so many.
        """
        if get_worker_info() is not None:
            return self._worker_state()
        if consumed is None:
            if self._passes.runs_ahead:
                raise LoaderError(
                    "the loader reads ahead, so the dataset cannot tell which samples were received",
                    where=self._where,
                    hint="pass samples_seen=steps * batch_size * world_size, or save the state_dict() of a "
                    "StatefulDataLoader",
                )
            consumed = self.consumed
            self._check_whole_steps()
        state = self._state(self.epoch, consumed)
        check_position(state, self._epochs, where=self._where)
        return state

    def state_after(self, samples_seen: int, steps: Steps | None = None) -> State:
        """Return the state after some samples since the first epoch, each epoch in the same steps.

        By default, they are the steps of the newest pass.
        """
        steps = self._passes.steps if steps is None else steps
        samples_seen = whole_number("samples_seen", samples_seen, where=self._where)
        return self._state(*place_after(samples_seen, steps, self._epochs, where=self._where))

    def load(self, state: State) -> None:
        """Move to the position of a saved state."""
        in_worker = get_worker_info() is not None  # of a StatefulDataLoader: it gets its own state
        state = state if in_worker else find_state(state)
        until = whole_number("until", state["until"], where=self._where)
        check_state(state, self._state(0, 0, until=until), where=self._where)
        check_position(state, self._epochs, where=self._where)
        if in_worker:
            self._resumed = state
            return
        self._loaded_epoch, consumed = int(state["epoch"]), int(state["consumed"])
        self._pass, self._gaps = None, gaps_of(state)
        self._passes.move(self._loaded_epoch, consumed, parts=parts_of(state))

    def _state(self, epoch: int, consumed: int, *, until: int | None = None) -> State:
        """Return the state of a position; its fingerprint covers the order up to there, or to a sample."""
        until = self._epochs.of(epoch).first_sample + consumed if until is None else until
        if self._newest_plan is None or self._newest_plan[0] != until:
            self._newest_plan = (until, self._epochs.fingerprint(until))
        plan = {"format": STATE_FORMAT, "plan": self._newest_plan[1], "until": until}
        state = {**plan, **self._identity, "epoch": epoch, "consumed": consumed}
        return (
            state
            | self._read_until((epoch, consumed))
            | gaps_to_state(self._gaps, (epoch, consumed))
        )

    def _read_until(self, end: Place) -> State:
        """Return what a state records of the samples that were read up to a place."""
        parts = cut_parts(self._passes.parts, end)
        if not parts or parts[-1].size == UNKNOWN:
            return {}
        return {"read": [part._asdict() for part in parts]}

    def _worker_state(self) -> State:
        """Return the state of this worker: the start of its pass, and the steps that it has returned."""
        if self._has_failed:  # the first batch says why
            return self._state(0, 0)
        if self._pass is None or self._pass.runs_ahead:
            raise LoaderError("a worker has a state only while it is read by a StatefulDataLoader")
        self._check_whole_steps()
        start = self._pass.start
        # Where the training loop is depends on all workers, so the fingerprint covers the whole pass.
        until = self._epochs.of(start.epoch).first_sample + self._pass.end
        state = self._state(start.epoch, start.first_sample, until=until)
        read = self._read_until((start.epoch, self._pass.end))
        return state | read | self._pass.worker_state()

    def _check_whole_steps(self) -> None:
        """Raise LoaderError if the samples that all ranks and workers have returned are not consecutive."""
        if self._pass is None or self._pass.is_whole:
            return
        if get_worker_info() is not None or self._pass.steps.rank.world_size > 1:
            raise LoaderError(
                "a dataset between this one and its DataLoader does not pass on all samples of a step, so "
                "that no state can say which ones were received",
                where=self._where,
                hint="drop rows after the loader, or use a View to select documents",
            )

    def _take_resumed(self, steps: Steps) -> Resumed | None:
        """Return the state with which this worker resumes; only the first pass resumes."""
        state, self._resumed = self._resumed, None
        return None if state is None else resumed_of(state, steps.stride)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields of a copy, which begins where this position is."""
        # A process that is being spawned shares these passes, and a copy of them would not be shared.
        passes = self._passes if get_spawning_popen() is not None else copy(self._passes)
        return {**vars(self), "_pass": None, "_passes": passes}
