"""Describe a process that hangs: how long, what it printed last, and where each of its threads is.

Each process of a chaos case writes the stacks of its threads to its log on SIGUSR1: see ``processes.settle``.
If ``gdb`` is installed, it shows the stacks of machine code, too: a thread may hang outside of Python.
"""

import os
import shutil
import signal
import subprocess
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

_STACK = "(most recent call first)"  # of each thread, in the output of faulthandler
_STACK_SECONDS = 5.0  # for a process to write its stacks
_MOST_LINES = 40  # of the output before


def describe(name: str, process: BaseProcess, log: Path) -> str:
    """Return the state, the last output and the stacks of a process; a stopped one is continued for that."""
    pid, code = process.pid, process.exitcode
    assert pid is not None
    output = _read(log)
    last = "\n".join(output.splitlines()[-_MOST_LINES:]) or "(none)"
    if code is not None:
        return f"{name}: process {pid} ended with {code}; its last output:\n{last}"
    state, machine = _state(pid), _machine_stacks(pid)
    os.kill(pid, signal.SIGUSR1)
    os.kill(pid, signal.SIGCONT)
    stacks = _wait_for_stacks(log, len(output)) or "(it does not respond to SIGUSR1)"
    return f"{name}: process {pid} is {state}; its last output:\n{last}\nits threads:\n{stacks}\n{machine}"


def _wait_for_stacks(log: Path, start: int) -> str:
    """Return what a process writes after a position of its log, when it has written all of it."""
    written = ""
    deadline = time.monotonic() + _STACK_SECONDS
    while time.monotonic() < deadline:
        before, written = written, _read(log)[start:]
        if _STACK in written and written == before:
            break
        time.sleep(0.1)
    return written


def _machine_stacks(pid: int) -> str:
    """Return the innermost frames of machine code of all threads, or nothing without ``gdb``."""
    if shutil.which("gdb") is None:
        return ""
    command = ["gdb", "--batch", "-p", str(pid), "-ex", "thread apply all backtrace 12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout


def _read(log: Path) -> str:
    """Return the content of a log; a process that has just begun has none yet."""
    return log.read_text(errors="replace") if log.exists() else ""


def _state(pid: int) -> str:
    """Return the state of a process as Linux shows it, for example ``S (sleeping)``."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "alive"
    return status.partition("State:")[2].partition("\n")[0].strip()
