"""Drivers that a test starts, pauses, resumes and kills: see ``pauses`` for their processes."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import NoReturn

import pytest

from tests.chaos import pauses
from tests.chaos.hangs import describe
from tests.chaos.pauses import Ended, Job, Kind, Paused, Stop
from tests.chaos.processes import CRASHED
from tests.chaos.small_site import SmallSite

_LIMIT_SECONDS = 300.0
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos.pauses", "tests.chaos.preloaded"])


class Driver:
    """A driver process, which does one job after the other.

    A job that neither pauses nor ends within ``limit_s`` seconds fails the test, as does a process that dies.
    """

    def __init__(self, folder: Path, name: str, *, limit_s: float = _LIMIT_SECONDS) -> None:
        self._name = f"driver {name}"
        self._logs = (folder / f"{name}-{number}.log" for number in count())
        self._log = folder
        self._kind: Kind | None = None
        self._label: str | None = None  # of the last pause
        self.limit_s = limit_s
        self.is_busy = False
        self._start()

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def start(
        self,
        kind: Kind,
        site: SmallSite,
        stop: Stop | None = None,
        *,
        lifetime_s: float | None = None,
    ) -> Paused | Ended:
        """Start a job, and return when it pauses or ends."""
        assert not self.is_busy
        self.is_busy = True
        self._kind, self._label = kind, None
        return self._send(Job(kind, site.file, stop, lifetime_s))

    def resume(self, stop: Stop | None = None) -> Paused | Ended:
        """Continue a paused job to its next pause or its end."""
        assert self.is_busy
        return self._send(stop)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process inside a ``with`` block with all its threads: no lease is renewed."""
        os.kill(self.pid, signal.SIGSTOP)
        yield
        os.kill(self.pid, signal.SIGCONT)

    def run(self, kind: Kind, site: SmallSite, *, lifetime_s: float | None = None) -> Ended:
        """Do a job without a pause."""
        ended = self.start(kind, site, lifetime_s=lifetime_s)
        assert isinstance(ended, Ended)
        return ended

    def kill(self) -> None:
        """Kill the process, wherever it is, and start another one."""
        self.end()
        self._start()

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self.is_busy = False

    def _start(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._log = next(self._logs)
        self._process = _CONTEXT.Process(target=pauses.serve, args=(self._log, theirs))
        self._process.start()
        theirs.close()

    def _send(self, message: Job | Stop | None) -> Paused | Ended:
        try:
            self._pipe.send(message)
            if not self._pipe.poll(self.limit_s):
                self._fail(f"hangs: nothing came from it for {self.limit_s:g} seconds")
            answer: Paused | Ended = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            self._fail("has died")
        if isinstance(answer, Paused):
            self._label = answer.label
            return answer
        self.is_busy = False
        if answer.code == CRASHED:
            pytest.fail(f"the {self._name} crashed in the job {self._kind}:\n{answer.output}")
        return answer

    def _fail(self, what: str) -> NoReturn:
        """Describe the process, replace it, and fail the test."""
        pause = "" if self._label is None else f", which last paused before {self._label}"
        described = describe(self._name, self._process, self._log)
        self.kill()
        pytest.fail(f"the {self._name} {what}\njob: {self._kind}{pause}\n{described}")


@contextmanager
def drivers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Yield two drivers that end with the context."""
    folder.mkdir(parents=True, exist_ok=True)
    both = Driver(folder, "first"), Driver(folder, "second")
    try:
        yield both
    finally:
        for driver in both:
            driver.end()
