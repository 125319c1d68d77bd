"""The time of commands on a lake of a few documents: CPU seconds of all processes, and wall seconds.

    python benchmarks/small_runs.py RECIPE [--repeat N]

Each round runs the recipe into a new lake, and then commands that do little. The figures are medians.
"""

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

_SET_CHILD_SUBREAPER = 36  # prctl(2)
_CODE = "from etl.cli import main; main()"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    # Processes that outlive their parents become children of this one, so that their time is counted.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(arguments.repeat):
        with tempfile.TemporaryDirectory() as lake:
            for name, command in _commands(arguments.recipe, lake).items():
                times.setdefault(name, []).append(_measure(command))
    print(f"{'command':<16}{'CPU s':>8}{'wall s':>8}")
    for name, values in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{name:<16}{cpu:>8.2f}{wall:>8.2f}")


def _commands(recipe: str, lake: str) -> dict[str, list[str]]:
    run = ["run", recipe, "--lake", lake]
    return {
        "run": run,
        "nothing to do": run,
        "plan": ["plan", recipe, "--lake", lake],
        "history": ["history", f"{lake}/documents"],
        "status": ["status", lake],
        "report": ["report", lake],
        "verify": ["verify", lake],
        "--help": ["--help"],
    }


def _measure(command: list[str]) -> tuple[float, float]:
    """Return the CPU seconds of a command with all its processes, and its wall seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", _CODE, *command], check=True, capture_output=True)
    wall = time.perf_counter() - begun
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall


if __name__ == "__main__":
    main()
