"""Track what a run planned and how far it is, for its lease, which another thread writes."""

import time
from dataclasses import replace

from etl.compute.listener import Progress
from etl.job.plan import Plan
from etl.lake.run_state import RunState


class RunTracker:
    """The state of one run in this process."""

    def __init__(self, plan: Plan, run_id: str) -> None:
        self._run_id = run_id
        self._step_started = time.monotonic()
        self.plan(plan)

    def plan(self, plan: Plan) -> None:
        """Set the planned totals; the steps are about to begin."""
        self._state = RunState(
            run_id=self._run_id,
            recipe=plan.recipe.name,
            splits=len(plan.splits),
            input_bytes=plan.num_bytes,
            units=max(plan.units.undecided, plan.units.untokenized),
        )

    def update(self, progress: Progress) -> None:
        """Set the progress of a step of the planned run."""
        if progress.step != self._state.step:
            self._step_started = time.monotonic()
        self._state = replace(
            self._state,
            step=progress.step,
            done=progress.done,
            total=progress.total,
            done_bytes=progress.done_bytes,
            total_bytes=progress.total_bytes,
            seconds_left=0.0 if progress.done == progress.total else progress.seconds_left,
        )

    def state(self) -> RunState:
        """Return the state now."""
        state = self._state
        if state.step is None:
            return state
        return replace(state, seconds=round(time.monotonic() - self._step_started, 1))
