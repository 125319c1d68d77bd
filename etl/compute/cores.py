"""The cores of this machine."""

import os


def num_cores() -> int:
    """Return the number of cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
