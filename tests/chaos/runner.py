"""Runs the job in processes of its own, and lets one fault happen at its moment."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import RLock

import pytest

from tests.chaos import processes
from tests.chaos.schedule import Fault, Victim
from tests.proxy import Fault as Answer
from tests.proxy import Request

_WORKERS = 2
_LIMIT_SECONDS = 600  # so small a corpus takes a few, and kernels compiled for it a minute or two
_FORGE = get_context("forkserver")
_FORGE.set_forkserver_preload(["tests.chaos.processes"])


@dataclass
class Machines:
    """A scheduler, its workers, and at times a driver, with what they write beside their work."""

    folder: Path
    environment: Mapping[str, str]
    scheduler: BaseProcess | None = None
    workers: list[BaseProcess] = field(default_factory=list)
    driver: BaseProcess | None = None
    address: str = ""
    _last: Path | None = None
    _asking: RLock = field(default_factory=RLock)  # whether a process lives, one thread at a time
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self, recipe: Path, tick: Callable[[], None] = lambda: None) -> int:
        """Run a recipe to the end of its driver and return how that ended; ``tick`` is called often."""
        self._start()
        self._last = log = self._log("driver")
        self.driver = _FORGE.Process(
            target=processes.driver, args=(log, self.environment, self.address, recipe)
        )
        self.driver.start()
        deadline = time.monotonic() + _LIMIT_SECONDS
        while self._is_alive(self.driver):
            tick()
            self._revive()
            if time.monotonic() > deadline:
                os.kill(self.driver.pid, signal.SIGUSR1)  # it says where
                time.sleep(1)
                pytest.fail(f"the driver hangs:\n{self.told()}")
            time.sleep(0.005)
        code = self.driver.exitcode
        assert code is not None
        if code not in (processes.DONE, processes.TOLD, processes.PUT_ASIDE, -signal.SIGKILL):
            pytest.fail(f"the driver ended with {code}:\n{self.told()}")
        return code

    def told(self) -> str:
        """What the last driver wrote."""
        return self._last.read_text() if self._last is not None else ""

    def victims(self, victim: Victim) -> list[BaseProcess]:
        """The processes that are meant."""
        scheduler, driver = [self.scheduler], [self.driver]
        chosen = {
            "worker": self.workers[:1],
            "scheduler": scheduler,
            "driver": driver,
            "all": [*driver, *scheduler, *self.workers],
        }[victim]
        return [process for process in chosen if process is not None and self._is_alive(process)]

    def end(self) -> None:
        """Nothing is left running."""
        for process in self.victims("all"):
            process.kill()
            process.join()
        self.scheduler, self.workers = None, []

    def _start(self) -> None:
        """A cluster, if there is none that is whole."""
        if self.scheduler is not None and not self._is_alive(self.scheduler):
            self.end()
        if self.scheduler is None:
            here, there = _FORGE.Pipe(duplex=False)
            with here, there:
                self.scheduler = _FORGE.Process(
                    target=processes.scheduler, args=(self._log("scheduler"), there)
                )
                self.scheduler.start()
                self.address = here.recv()
        self._revive()

    def _revive(self) -> None:
        """A worker that died has a successor, as the nanny or the orchestrator gives it."""
        self.workers = [process for process in self.workers if self._is_alive(process)]
        while len(self.workers) < _WORKERS and self.victims("scheduler"):
            arguments = (self._log("worker"), self.environment, self.address, self.folder)
            process = _FORGE.Process(target=processes.worker, args=arguments)
            process.start()
            self.workers.append(process)

    def _is_alive(self, process: BaseProcess) -> bool:
        with self._asking:
            return process.is_alive()

    def _log(self, name: str) -> Path:
        return self.folder / f"{next(self._numbers):03}-{name}.log"


@contextmanager
def machines(folder: Path, environment: Mapping[str, str]) -> Iterator[Machines]:
    """Processes that end with the context."""
    folder.mkdir(parents=True)
    running = Machines(folder, environment)
    try:
        yield running
    finally:
        running.end()


@dataclass
class Blow:
    """A fault that waits for its moment, and then strikes."""

    fault: Fault
    running: Machines
    after: int  # so many files are written
    struck: bool = False

    def at(self, written: int) -> None:
        """Strike processes, if so many files are written and it has not been done."""
        if self.struck or self.fault.answer or written < self.after:
            return
        victims = self.running.victims(self.fault.victim)
        self.struck = bool(victims)
        for process in victims:
            if self.fault.kind == "kill":
                process.kill()
            else:
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (self.fault.room, hard))


@dataclass
class Outage:
    """What a proxy does to the store's answers: at its moment a fault strikes, there or at a process."""

    blow: Blow
    written: int = 0
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.blow.fault.count

    def __call__(self, request: Request) -> Answer | None:
        """The schedule of the proxy, which asks for one request at a time."""
        self.written += request.method == "PUT"
        self.blow.at(self.written)
        fault = self.blow.fault
        is_meant = is_commit(request) or not fault.commits_only
        if not (fault.answer and is_meant and self.left and self.written >= self.blow.after):
            return None
        self.left -= 1
        self.blow.struck = True
        return fault.answer


def is_commit(request: Request) -> bool:
    """Whether a request writes an entry of a table's log."""
    return request.method == "PUT" and "/_delta_log/" in request.path
