"""Measure commands of Tokenlake with all processes that they start."""

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # prctl(2)
_CODE = "from etl.cli import main; main()"


def measure_command(arguments: Sequence[str], checkout: Path | None = None) -> tuple[float, float]:
    """Return the CPU seconds of a command with all its processes, and its wall seconds.

    ``checkout`` is a folder with another version of Tokenlake.
    """
    # Processes that outlive their parents become children of this one, so that their time is counted.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    environment = dict(os.environ) | ({} if checkout is None else {"PYTHONPATH": str(checkout)})
    command = [sys.executable, "-c", _CODE, *arguments]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall = time.perf_counter() - begun
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall
