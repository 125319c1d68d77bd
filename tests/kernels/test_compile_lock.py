"""One process of a machine compiles a kernel; the others wait for it, but never forever."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etl.kernels.compile_clock import CLOCK
from etl.kernels.compile_lock import CompileLock
from etl.stages.stage_clock import StageClock

ROOT = Path(__file__).parents[2]

KERNEL = """
from etl.kernels.jit import kernel

@kernel
def total(numbers):
    out = 0
    for number in numbers:
        out += number
    return out
"""
CALLER = """
import sys
import numpy
from total import total

print("ready", flush=True)
sys.stdin.readline()
total(numpy.arange(10))
print(sum(total.stats.cache_hits.values()))
"""
HOLDER = """
import sys
from pathlib import Path
from etl.kernels.compile_lock import CompileLock

CompileLock([Path(sys.argv[1])]).acquire()
print("held", flush=True)
sys.stdin.readline()
"""


def start(code: str, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start a process that waits for a line, once it has written one."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.mark.slow
def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path: Path) -> None:
    (tmp_path / "total.py").write_text(KERNEL)
    cache = str(tmp_path / "cache")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    processes = [start(CALLER, NUMBA_CACHE_DIR=cache, PYTHONPATH=path) for _ in range(3)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60) for process in processes]
    assert sorted(out for out, _ in outputs) == ["0\n", "1\n", "1\n"]  # loaded from the cache
    assert any("compiling kernels, once per machine: total.total" in err for _, err in outputs)


def test_a_killed_process_releases_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "folder/lock"
    with start(HOLDER, path, PYTHONPATH=str(ROOT)) as holder:
        waiting = CompileLock([path], patience=0)
        waiting.acquire()  # gives up
        waiting.release()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    lock = CompileLock([path], patience=3600)
    lock.acquire()
    lock.release()


def test_another_lock_waits_until_the_first_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = CompileLock([path])
    first.acquire()
    code = HOLDER.replace("CompileLock([", "print('waits', flush=True);CompileLock([")
    with start(code, path, PYTHONPATH=str(ROOT)) as other:
        time.sleep(0.2)
        first.release()
        assert other.stdout.readline() == "held\n"
        other.communicate("end\n")


def test_folders_that_cannot_be_written_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    writable = tmp_path / "cache/lock"
    for paths in ([file / "lock"], [file / "lock", writable], []):
        lock = CompileLock(paths)
        lock.acquire()
        lock.release()
    assert writable.exists()


def test_compiling_is_no_cost_of_a_stage() -> None:
    clock = StageClock()
    with clock.measure("work"):
        CLOCK.begin("words")
        time.sleep(0.1)
        CLOCK.end()
    assert clock.seconds()["work"] < CLOCK.seconds
