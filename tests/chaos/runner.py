"""Run the job in separate processes and inject one fault at a given moment."""

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
from typing import Any, NoReturn

import pytest

from tests.chaos import processes
from tests.chaos.hangs import describe
from tests.chaos.schedule import Fault, Victim
from tests.helpers.s3_proxy import Fault as Answer
from tests.helpers.s3_proxy import Request

_WORKERS = 2
_LIMIT_SECONDS = 300.0  # the corpus takes a few seconds
_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos.processes", "tests.chaos.preloaded"])


@dataclass
class Machines:
    """A scheduler, its workers and sometimes a driver, with their logs."""

    folder: Path
    environment: Mapping[str, str]
    scheduler: BaseProcess | None = None
    workers: list[BaseProcess] = field(default_factory=list)
    driver: BaseProcess | None = None
    address: str = ""
    limit_s: float = _LIMIT_SECONDS
    _last: Path | None = None  # the log of the last driver
    _logs: dict[BaseProcess, Path] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)  # one thread at a time asks whether a process lives
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self, recipe: Path, tick: Callable[[], None] = lambda: None) -> int:
        """Run a recipe, calling ``tick`` often, and return the exit code of the driver."""
        self.start()
        self.driver = self._begin(
            "driver", processes.driver, self.environment, self.address, recipe
        )
        self._last = self._logs[self.driver]
        begun = time.monotonic()
        while self._is_alive(self.driver):
            tick()
            self._revive()
            if time.monotonic() - begun > self.limit_s:
                self._fail(f"the driver hangs: it has not ended for {self.limit_s:g} seconds")
            time.sleep(0.005)
        code = self.driver.exitcode
        assert code is not None
        if code not in (processes.DONE, processes.FAILED, processes.QUARANTINED, -signal.SIGKILL):
            pytest.fail(f"the driver ended with {code}:\n{self.output()}")
        return code

    def output(self) -> str:
        """Return the output of the last driver."""
        return self._last.read_text() if self._last is not None else ""

    def victims(self, victim: Victim) -> list[BaseProcess]:
        """Return the live processes of a kind."""
        scheduler, driver = [self.scheduler], [self.driver]
        chosen = {
            "worker": self.workers[:1],
            "scheduler": scheduler,
            "driver": driver,
            "all": [*driver, *scheduler, *self.workers],
        }[victim]
        return [process for process in chosen if process is not None and self._is_alive(process)]

    def end(self) -> None:
        """Kill all processes."""
        for process in self.victims("all"):
            process.kill()
            process.join()
        self.scheduler, self.workers = None, []
        self._logs.clear()

    def start(self) -> None:
        """Start a cluster if there is none, or if its scheduler has died."""
        if self.scheduler is not None and not self._is_alive(self.scheduler):
            self.end()
        if self.scheduler is None:
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            with receiver, sender:
                self.scheduler = self._begin("scheduler", processes.scheduler, sender)
                if not receiver.poll(self.limit_s):
                    self._fail(f"the scheduler has not started within {self.limit_s:g} seconds")
                self.address = receiver.recv()
        self._revive()

    def _revive(self) -> None:
        """Replace dead workers, as a nanny or an orchestrator does."""
        self.workers = [process for process in self.workers if self._is_alive(process)]
        while len(self.workers) < _WORKERS and self.victims("scheduler"):
            arguments = (self.environment, self.address, self.folder)
            self.workers.append(self._begin("worker", processes.worker, *arguments))

    def _is_alive(self, process: BaseProcess) -> bool:
        with self._lock:
            return process.is_alive()

    def _begin(self, name: str, target: Callable[..., None], *arguments: Any) -> BaseProcess:
        """Start a process, which writes its output to a log."""
        log = self.folder / f"{next(self._numbers):03}-{name}.log"
        process = _CONTEXT.Process(target=target, name=name, args=(log, *arguments))
        process.start()
        self._logs[process] = log
        return process

    def _fail(self, what: str) -> NoReturn:
        """Describe all processes, kill them, and fail the test."""
        alive = self.victims("all")
        described = "\n\n".join(describe(each.name, each, self._logs[each]) for each in alive)
        self.end()
        pytest.fail(f"{what}\n{described}")


@contextmanager
def machines(folder: Path, environment: Mapping[str, str]) -> Iterator[Machines]:
    """Yield processes that end with the context."""
    folder.mkdir(parents=True)
    running = Machines(folder, environment)
    try:
        yield running
    finally:
        running.end()


@dataclass
class Injection:
    """A fault to inject once a number of files has been written."""

    fault: Fault
    running: Machines
    after: int  # files written
    done: bool = False

    def tick(self, written: int) -> None:
        """Inject a fault of processes, once, if enough files have been written."""
        if self.done or self.fault.answer or written < self.after:
            return
        victims = self.running.victims(self.fault.victim)
        self.done = bool(victims)
        for process in victims:
            if self.fault.kind == "kill":
                process.kill()
            else:
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (self.fault.room, hard))


@dataclass
class Outage:
    """The schedule of a proxy: injects a fault of the store, or of a process, at its moment."""

    injection: Injection
    written: int = 0
    remaining: int = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = self.injection.fault.count

    def __call__(self, request: Request) -> Answer | None:
        """Return the fault for a request, or None; the proxy calls this for one request at a time."""
        self.written += request.method == "PUT"
        self.injection.tick(self.written)
        fault = self.injection.fault
        applies = is_commit(request) or not fault.commits_only
        is_due = self.written >= self.injection.after
        if not (fault.answer and applies and self.remaining and is_due):
            return None
        self.remaining -= 1
        self.injection.done = True
        return fault.answer


def is_commit(request: Request) -> bool:
    """Return whether a request writes an entry of a table's log."""
    return request.method == "PUT" and "/_delta_log/" in request.path
