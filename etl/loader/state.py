"""What is saved of a dataset: a handful of integers, by itself or inside what torchdata makes of it.

Steps are dealt to DataLoader workers in turn, so that a worker's state is the place where *it* goes on.
The places of all W workers are W steps that follow each other; the first of them is where the training
loop stands, and a state that holds at any number of workers and ranks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from etl.errors import LoaderError

STATE_FORMAT = 2
State = dict[str, Any]

_KEYS = {"format", "plan", "epoch", "consumed"}  # what every state has
_WORKER_KEYS = {"worker", "workers", "stride"}  # what that of a DataLoader worker has besides


def worker_state(state: State, *, worker: int, workers: int, stride: int) -> State:
    """The state of one of the workers; ``stride`` is the samples of a step over all ranks."""
    return {**state, "worker": worker, "workers": workers, "stride": stride}


def find_state(saved: Mapping[str, Any]) -> State:
    """The state of the dataset in what was saved: the state itself, or a checkpoint that holds one, as
    that of a StatefulDataLoader, whose workers each have their own.

    Raises LoaderError if there is none, or the workers do not stand at one step.

    >>> find_state({"model": {}, "data": {"format": 2, "plan": "a", "epoch": 0, "consumed": 8}})["consumed"]
    8
    """
    found = list(_states(saved))
    if not found:
        raise LoaderError(
            "no state of a TokenDataset in it",
            hint="save dataset.state_dict(), or the state_dict() of a StatefulDataLoader over it",
        )
    if _steps_since_snapshot(saved):
        raise LoaderError(
            "the state of a StatefulDataLoader between two snapshots",
            hint="give it to that loader, or save with snapshot_every_n_steps=1",
        )
    first = found[0]
    if not first.keys() >= _WORKER_KEYS:
        if any(state != first for state in found):
            raise LoaderError(f"{len(found)} states of datasets", hint="give one of them")
        return first
    steps = sorted(int(state["consumed"]) for state in found)
    expected = [steps[0] + number * first["stride"] for number in range(first["workers"])]
    if steps != expected:
        raise LoaderError(
            "the DataLoader workers do not stand at one step: no other number of workers can go on",
            hint="give the state to a loader with as many workers, or use dataset.batches()",
        )
    behind = min(found, key=lambda state: int(state["consumed"]))
    return {name: value for name, value in behind.items() if name not in _WORKER_KEYS}


def check_state(state: State, own: State, *, where: str) -> None:
    """Raise LoaderError unless a state is of the same order of samples as one's own."""
    if state["format"] != own["format"]:
        raise LoaderError(
            f"a state of format {state['format']}, not {own['format']}",
            hint="load it with the version of Tokenlake that saved it",
        )
    if state["plan"] == own["plan"]:
        return
    names = [
        name for name in state if name not in _KEYS | _WORKER_KEYS and not _is_nested(state[name])
    ]
    changed = [f"{n}={state[n]} here {own.get(n)}" for n in names if state[n] != own.get(n)]
    then = ", ".join(f"{name}={state[name]}" for name in names)
    raise LoaderError(
        f"the state of another order of samples ({', '.join(changed) or 'another table'})",
        where=where,
        hint=f"open the dataset as it was then: {then}",
    )


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping)


def _states(saved: Any) -> Iterator[State]:
    if isinstance(saved, Mapping):
        if saved.keys() >= _KEYS:
            yield dict(saved)
            return
        for value in saved.values():
            yield from _states(value)


def _steps_since_snapshot(saved: Any) -> bool:
    if not isinstance(saved, Mapping):
        return False
    return bool(saved.get("_steps_since_snapshot")) or any(
        _steps_since_snapshot(value) for value in saved.values()
    )
