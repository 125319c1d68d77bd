"""Jobs in other processes that SIGSTOP suspends before one of their storage operations.

A server has imported all modules and forks a process for each job, which takes 50 ms. The leases of its jobs
are valid for a second or so, so that a job can be suspended for longer.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from etl import storage
from etl.errors import TokenlakeError
from etl.lake import leases, releases
from etl.maintenance import vacuum
from etl.maintenance.repair import repair

SHORT = timedelta(seconds=1.5)
"""How long the leases of short-lived jobs are valid."""

_COUNTED = ("write_bytes", "create_if_absent", "remove", "read_bytes", "find_files", "walk_files")
_JOBS: Mapping[str, Callable[[str], object]] = {
    "vacuum": lambda lake: vacuum.vacuum(lake, retain=timedelta(0), delete=True).size,
    "release": lambda lake: releases.create_release(lake, "stopped", version=1).versions,
    "repair": lambda lake: repair(lake, drop=True).left,
}


@dataclass(frozen=True)
class Ended:
    """The end of a job: whether it raised none of our errors, and its result or error."""

    is_done: bool
    output: str


@dataclass
class StoppingJobs:
    """The server: one job at a time."""

    _process: subprocess.Popen[str] = field(
        default_factory=lambda: subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )

    def start(self, job: str, lake: str, stop: int, *, is_short: bool = False) -> Ended | None:
        """Start a job; return None if it is suspended before the operation of a number.

        ``is_short``: whether its lease is valid for ``SHORT`` only.
        """
        return self._ask({"job": job, "lake": lake, "stop": stop, "is_short": is_short})

    def resume(self) -> Ended:
        """Resume the job, and wait for its end."""
        ended = self._ask({})
        assert ended is not None
        return ended

    def close(self) -> None:
        """End the server."""
        with self._process:  # which closes the pipes
            self._process.kill()

    def _ask(self, request: Mapping[str, Any]) -> Ended | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return None if answer is None else Ended(**answer)


def shorten_leases() -> None:
    """Let the leases of this process be valid for ``SHORT``, and let it count the leases of others so."""
    leases.LIFETIME = SHORT  # type: ignore[misc]
    leases._COMMIT_TIME = timedelta(seconds=0.5)
    leases._RENEW_SECONDS = 0.1


def _serve() -> None:
    child, output = 0, -1
    for line in sys.stdin:
        request = json.loads(line)
        if request:
            output, child = _fork(**request)
        else:
            os.kill(child, signal.SIGCONT)
        _, status = os.waitpid(child, os.WUNTRACED)
        answer = None
        if not os.WIFSTOPPED(status):
            with os.fdopen(output) as file:
                answer = {"is_done": os.waitstatus_to_exitcode(status) == 0, "output": file.read()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _fork(job: str, lake: str, stop: int, *, is_short: bool) -> tuple[int, int]:
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return read, child
    if is_short:
        shorten_leases()
    vacuum.MIN_RETAIN = timedelta(0)  # type: ignore[misc]
    _stop_before(stop)
    try:
        output, code = str(_JOBS[job](lake)), 0
    except TokenlakeError as error:
        output, code = str(error), 1
    os.write(write, output.encode()[:4096])
    os._exit(code)


def _stop_before(stop: int) -> None:
    """Count the storage operations of all threads but the thread that renews the lease."""
    lock, count = threading.Lock(), iter(range(1 << 30))
    for name in _COUNTED:
        setattr(storage, name, _counted(getattr(storage, name), lock, count, stop))


def _counted(
    function: Callable[..., Any], lock: threading.Lock, count: Any, stop: int
) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread().name != "tokenlake-lease":
            with lock:
                if next(count) == stop:
                    os.kill(os.getpid(), signal.SIGSTOP)
                    time.sleep(0)  # the signal arrives
        return function(*args, **kwargs)

    return counted


if __name__ == "__main__":
    _serve()
