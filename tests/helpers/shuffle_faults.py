"""Faults in the real shuffle of Dask, in this process or in worker processes (``client.run``).

Each fault happens in one call of one function, in the first process that gets there, unless it is ``always``.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distributed.shuffle._exceptions import DataUnavailable
from distributed.shuffle._shuffle import DataFrameShuffleRun

Function = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """What happens, and the file that shows in which process it has happened."""

    kind: str  # a key of ``FAULTS``
    marker: Path
    always: bool = False

    def happens(self) -> bool:
        """Return whether it happens in this call."""
        try:
            with self.marker.open("w" if self.always else "x") as file:
                file.write(f"{os.getpid()}\n")
        except FileExistsError:
            return False
        return True


def _lose_shard(fault: Fault, receive: Function) -> Function:
    async def replaced(run: Any, data: list[Any]) -> Any:
        return await receive(run, data[1:] if fault.happens() else data)

    return replaced


def _double_rows(fault: Fault, write: Function) -> Function:
    async def replaced(run: Any, groups: Any) -> None:
        await write(run, groups)
        if fault.happens():
            await write(run, groups)

    return replaced


def _lose_partition(fault: Fault, read: Function) -> Function:
    def replaced(run: Any, partition: Any) -> Any:
        if fault.happens():
            raise DataUnavailable(partition)
        return read(run, partition)

    return replaced


def _swap_partition(fault: Fault, read: Function) -> Function:
    def replaced(run: Any, partition: tuple[int]) -> Any:
        others = sorted({*run.worker_for.index[run.worker_for == run.local_address]} - {*partition})
        return read(run, (others[0],) if others and fault.happens() else partition)

    return replaced


def _signal(number: signal.Signals) -> Callable[[Fault, Function], Function]:
    """Return a fault that sends a signal to the process before it calls the function."""

    def install(fault: Fault, function: Function) -> Function:
        def replaced(*args: Any, **known: Any) -> Any:
            if fault.happens():
                os.kill(os.getpid(), number)
            return function(*args, **known)

        return replaced

    return install


_PHASES: Final = {
    "transfer": "add_partition",
    "receive": "_receive",
    "barrier": "inputs_done",
    "unpack": "_get_output_partition",
}
FAULTS: Final[dict[str, tuple[str, Callable[[Fault, Function], Function]]]] = {
    "lost shard": ("_receive", _lose_shard),
    "doubled rows": ("_write_to_disk", _double_rows),
    "lost partition": ("_read_from_disk", _lose_partition),
    "swapped partition": ("_read_from_disk", _swap_partition),
    **{f"killed at {at}": (name, _signal(signal.SIGKILL)) for at, name in _PHASES.items()},
    **{f"stopped at {at}": (name, _signal(signal.SIGSTOP)) for at, name in _PHASES.items()},
}
"""The function that each fault replaces, and the function that replaces it."""


def install(fault: Fault) -> Callable[[], None]:
    """Let a fault happen in this process; return a function that removes it."""
    name, replace = FAULTS[fault.kind]
    original = getattr(DataFrameShuffleRun, name)
    setattr(DataFrameShuffleRun, name, replace(fault, original))
    return lambda: setattr(DataFrameShuffleRun, name, original)


def install_in_worker(fault: Fault) -> None:
    """Let a fault happen in a worker process, until this ends."""
    install(fault)
