"""The saved state of a dataset: a few integers, also inside checkpoints and torchdata states.

DataLoader workers take the steps in turn. The state of a worker is the start of its pass and the number of
steps that *it* has returned. The steps of all W workers add up to the position of the training loop, which is
valid for any number of workers and ranks.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from etl.errors import LoaderError
from etl.loader.order.epochs import Epochs
from etl.loader.planned_passes import Resumed
from etl.loader.read_parts import TrainingPart, cut_parts
from etl.plural import many

STATE_FORMAT = 6
State = dict[str, Any]

_KEYS = {"format", "plan", "until", "epoch", "consumed"}  # in every state
_WORKER_KEYS = {"worker", "workers", "steps", "stride", "end"}
"""Also in the state of a DataLoader worker: its turn, the number of workers, the steps it has returned, the
samples per step over all ranks, and the end of its pass."""


class OtherOrderError(LoaderError):
    """A state belongs to another order of samples."""


def find_state(saved: Mapping[str, Any]) -> State:
    """Return the dataset state in a saved object: a state, or a checkpoint that contains one.

    A StatefulDataLoader saves one state per worker, from which the common state is computed.

    Raises LoaderError if it finds no state, or if the workers are not at consecutive steps.

    >>> state = {"format": 6, "plan": "a", "until": 8, "epoch": 0, "consumed": 8}
    >>> find_state({"model": {}, "data": state})["consumed"]
    8
    """
    states = list(_states(saved))
    if not states:
        raise LoaderError(
            "the saved object contains no state of a TokenDataset",
            hint="save dataset.state_dict(), or the state_dict() of a StatefulDataLoader over it",
        )
    if _steps_since_snapshot(saved):
        raise LoaderError(
            "the StatefulDataLoader was saved between two snapshots",
            hint="load the state into that loader, or save with snapshot_every_n_steps=1",
        )
    first = states[0]
    if not first.keys() >= _WORKER_KEYS:
        if any(state != first for state in states):
            raise LoaderError(
                f"the saved object contains {len(states)} dataset states that differ",
                hint="pass one of them",
            )
        return first
    for state in states:
        for name in (*_WORKER_KEYS, "consumed"):
            whole_number(name, state.get(name))
    total = sum(state["steps"] for state in states)
    workers = first["workers"]
    if any(s["steps"] != len(range(s["worker"], total, workers)) for s in states):
        raise LoaderError(
            "the DataLoader workers are not at consecutive steps, "
            "so only a loader with as many workers can resume",
            hint="load the state into such a loader, or save from a loader over dataset.batches()",
        )
    state = {name: value for name, value in first.items() if name not in _WORKER_KEYS}
    state["consumed"] = min(first["consumed"] + total * first["stride"], first["end"])
    if "read" in state:
        state["read"] = [part._asdict() for part in parts_of(state)]
    return state


def parts_of(state: State) -> list[TrainingPart]:
    """Return what a training had read when its state was saved."""
    return cut_parts(recorded_parts(state), (int(state["epoch"]), int(state["consumed"])))


def recorded_parts(state: State) -> list[TrainingPart]:
    """Return what a state records; in the state of a worker, the newest part has the rest of its pass."""
    return [TrainingPart(**part) for part in state.get("read", [])]


def resumed_of(state: State, stride: int) -> Resumed:
    """Return where a worker resumes; raise LoaderError if its steps had another number of samples."""
    if state["stride"] != stride:
        raise LoaderError(
            f"the state was saved with {state['stride']} samples per step over all ranks, "
            f"but this loader has {stride}",
            hint="pass the loader's state to dataset.load_state_dict, before the loader starts",
        )
    first = state["epoch"], state["consumed"]
    return Resumed(*first, state["worker"], state["steps"], recorded_parts(state))


def check_state(state: State, own: State, *, where: str) -> None:
    """Raise LoaderError unless a state belongs to the same order of samples as the dataset's own.

    The fingerprint covers the order up to the sample ``until``: what comes later may differ.
    """
    if state["format"] != own["format"]:
        raise LoaderError(
            f"the state has format {state['format']}, but this version reads format {own['format']}",
            hint="load it with the version of Tokenlake that saved it",
        )
    if state["plan"] == own["plan"]:
        return
    names = [
        name
        for name in {**state, **own}
        if name not in {"read", "skip", *_KEYS, *_WORKER_KEYS} and not _is_nested(state.get(name))
    ]
    changed = [
        f"{n}={state.get(n)}, here {own.get(n)}" for n in names if state.get(n) != own.get(n)
    ]
    saved = ", ".join(f"{name}={state[name]}" for name in names if name in state)
    raise OtherOrderError(
        f"the state belongs to another order of samples ({'; '.join(changed) or 'another table'})",
        where=where,
        hint=f"open the dataset with {saved}, or change it with from_state(..., change=PlanChange(...))",
    )


def check_position(state: State, epochs: Epochs, *, where: str) -> None:
    """Raise LoaderError unless the position of a state exists."""
    epoch = whole_number("epoch", state["epoch"], where=where)
    _check_samples("consumed", state["consumed"], epoch, epochs, where=where)
    for part in state.get("read", []):
        for name in TrainingPart._fields:
            whole_number(f"{name} of a part that was read", part.get(name), where=where)
    for number in chain.from_iterable(state.get("skip", [])):
        whole_number("an epoch or a sample that is skipped", number, where=where)
    if not state.keys() & _WORKER_KEYS:
        return
    missing = sorted(_WORKER_KEYS - state.keys())
    if missing:
        raise LoaderError(f"the state of a worker has no {', '.join(missing)}", where=where)
    numbers = {name: whole_number(name, state[name], where=where) for name in _WORKER_KEYS}
    _check_samples("end", state["end"], epoch, epochs, where=where)
    if numbers["worker"] >= numbers["workers"] or not numbers["stride"]:
        raise LoaderError(
            f"the state of a worker has worker={numbers['worker']}, workers={numbers['workers']}, "
            f"stride={numbers['stride']}",
            where=where,
            hint="save the state_dict() of a StatefulDataLoader",
        )


def whole_number(name: str, value: object, *, where: str | None = None) -> int:
    """Return a count as an int; raise LoaderError unless it is a whole number of at least 0.

    >>> whole_number("epoch", 2)
    2
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise LoaderError(
            f"{name} must be a whole number of at least 0, not {value!r}",
            where=where,
            hint="pass an int; a saved state has those that state_dict() returned",
        )
    return number


def _check_samples(name: str, value: object, epoch: int, epochs: Epochs, *, where: str) -> None:
    count, available = whole_number(name, value, where=where), epochs.of(epoch).num_samples
    if count > available:
        raise LoaderError(
            f"{name} is {many(count, 'sample')}, but epoch {epoch} has {available:,}",
            where=where,
            hint="samples counted over all epochs, such as steps * batch_size * world_size, have a name of "
            "their own: state_dict(samples_seen=...)",
        )


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping)


def _states(saved: Any) -> Iterator[State]:
    if isinstance(saved, Mapping) and saved.keys() >= _KEYS:
        yield dict(saved)
        return
    for value in _parts(saved):
        yield from _states(value)


def _steps_since_snapshot(saved: Any) -> bool:
    if isinstance(saved, Mapping) and saved.get("_steps_since_snapshot"):
        return True
    return any(_steps_since_snapshot(value) for value in _parts(saved))


def _parts(saved: Any) -> Iterable[Any]:
    """Return the values in a mapping or a list; Lightning keeps the states of loaders in a list."""
    if isinstance(saved, Mapping):
        return saved.values()
    return saved if isinstance(saved, (list, tuple)) else ()
