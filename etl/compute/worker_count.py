"""How many workers run on this machine: its cores, or fewer for little input."""

import math
import os

# A worker needs 2 seconds of CPU time to start, in which another one processes about this much.
_BYTES_PER_WORKER = 8 << 20


def num_cores() -> int:
    """Return the number of cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_small(planned_bytes: int | None) -> bool:
    """Return whether a run has so little input that one worker is enough.

    >>> is_small(1000), is_small(None)
    (True, False)
    """
    return planned_bytes is not None and planned_bytes <= _BYTES_PER_WORKER


def local_workers(planned_bytes: int | None) -> int:
    """Return as many workers as pay for their start, at most one per core: for unknown input one per core.

    >>> local_workers(1000)
    1
    """
    if planned_bytes is None:
        return num_cores()
    return min(num_cores(), max(math.ceil(planned_bytes / _BYTES_PER_WORKER), 1))
