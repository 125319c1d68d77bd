"""A driver process whose storage operations are numbered, so that a test can pause it before any of them.

The driver computes on a Dask worker in its own process. Two threads call the store: the driver's own, and
the thread that runs the tasks of the worker; the operations of each are numbered separately, from 0 in
every job. Operations in further threads, which read or check many files at once, are not numbered: the
thread that waits for them cannot be paused either.
"""

import functools
import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import deltalake
from distributed import Client

import etl.job.commit_policy
import etl.job.run
from etl import storage
from etl.delta.table import Table
from etl.errors import TokenlakeError
from etl.job.shuffle import ShuffleSettings, shuffle
from etl.lake import leases
from etl.lake.releases import Release, create_release
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import MIN_RETAIN, vacuum
from etl.recipe.recipe import Recipe
from tests.chaos.processes import CRASHED, DONE, FAILED, QUARANTINED, settle

Kind = Literal[
    "plain",
    "replace_changed",
    "drop_missing",
    "rebuild",
    "repair",
    "optimize",
    "vacuum",
    "shuffle",
    "release",
]
Role = Literal["driver", "worker"]

_BUCKET_BYTES = 1000  # so that even a few texts are several buckets

_PURE = {
    "convert_write_errors",
    "delta_options",
    "filesystem",
    "get_protocol",
    "is_glob",
    "is_local",
}
_PURE |= {"join", "local_path", "normalize", "refuse_credentials"}


@dataclass(frozen=True)
class Stop:
    """The operation before which a driver pauses: its thread, and its number among those of one label.

    A label is the name of the function and that of the table or folder, for example "list_pattern raw";
    without a label, all operations of the thread are counted.
    """

    role: Role
    number: int
    label: str | None = None


@dataclass(frozen=True)
class Job:
    """A job for a driver, where it pauses first, and how long a lease lives that is not renewed."""

    kind: Kind
    recipe: Path
    stop: Stop | None = None
    lifetime_s: float | None = None  # of leases; None: as long as leases of other jobs


@dataclass(frozen=True)
class Paused:
    """A driver that waits before an operation."""

    label: str
    numbers: Mapping[Role, int]  # operations so far


@dataclass(frozen=True)
class Ended:
    """A job that has ended: its exit code, as in ``processes``, and its output."""

    code: int
    output: str
    numbers: Mapping[Role, int]  # operations


class Operations:
    """Numbers the storage operations of a process, and pauses before the operation that the test names."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._counts: Counter[tuple[Role, str | None]] = Counter()
        self._folders: tuple[str, ...] = ()

    def install(self) -> None:
        """Count all functions of the storage package that read, list or write, and new tables."""
        for name in storage.__all__:
            function = getattr(storage, name)
            if name not in _PURE and not isinstance(function, type):
                setattr(storage, name, self._counted(name, function))
        deltalake.DeltaTable.create = self._counted("create", deltalake.DeltaTable.create)  # type: ignore[method-assign]

    def start(self, stop: Stop | None, folders: Sequence[str]) -> None:
        """Number the operations on files in some folders from 0 again."""
        self._counts.clear()
        self._stop, self._folders = stop, tuple(folders)

    @property
    def numbers(self) -> dict[Role, int]:
        """The operations so far, by thread."""
        return {role: self._counts[role, None] for role in ("driver", "worker")}

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            role = _role()
            folder = next((f for f in self._folders if args and f in str(args[0])), None)
            if role is not None and folder is not None:
                inner = str(args[0]).partition(folder)[2].strip("/").partition("/")[0]
                is_input = folder == self._folders[0]
                self._count(role, f"{name} {'raw' if is_input else inner}")
            return function(*args, **kwargs)

        return counted

    def _count(self, role: Role, label: str) -> None:
        """Count an operation, and pause before it if the test wants it."""
        with self._lock:  # while one thread is paused, the other one waits at its next operation
            here = [Stop(role, self._counts[role, of], of) for of in (None, label)]
            self._counts.update([(role, None), (role, label)])
            if self._stop in here:
                self._pipe.send(Paused(label, self.numbers))
                self._stop = self._pipe.recv()


def _role() -> Role | None:
    thread = threading.current_thread()
    if thread is threading.main_thread():
        return "driver"
    return "worker" if "Dask-Default-Threads" in thread.name else None


def serve(log: Path, pipe: Connection) -> None:
    """Do the jobs that arrive through a pipe, and report each pause and end."""
    settle(log, {})
    etl.job.commit_policy._MOST_RESULTS = 1  # as many commits as possible
    operations = Operations(pipe)
    operations.install()
    client = Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit=0
    )
    while True:
        job: Job = pipe.recv()
        recipe = Recipe.load(job.recipe)
        operations.start(job.stop, [*recipe.source.paths, str(recipe.lake)])
        with _lifetime(job.lifetime_s):
            code, output = _do(job.kind, recipe, client)
        pipe.send(Ended(code, output, operations.numbers))


@contextmanager
def _lifetime(seconds: float | None) -> Iterator[None]:
    """Let leases live for so many seconds inside a ``with`` block, renewed as often as otherwise."""
    if seconds is None:
        yield
        return
    share = seconds / leases.LIFETIME.total_seconds()
    with patch.multiple(
        leases,
        LIFETIME=leases.LIFETIME * share,
        _COMMIT_TIME=leases._COMMIT_TIME * share,
        _RENEW_SECONDS=leases._RENEW_SECONDS * share,
    ):
        yield


def _release_oldest(lake: str) -> Release:
    """Release the oldest version that has tokens, whose files a vacuum may delete, or an empty table."""
    tokens = Table.open(storage.join(lake, "tokens"))
    oldest = min((commit.version for commit in tokens.commits() if commit.add), default=None)
    return create_release(lake, f"release-{uuid.uuid4().hex[:8]}", version=oldest)


def _do(kind: Kind, recipe: Recipe, client: Client) -> tuple[int, str]:
    """Do a job, and return its exit code and its output."""
    lake = str(recipe.lake)
    try:
        match kind:
            case "repair":
                done: object = repair(lake, drop=True)
            case "optimize":
                done = optimize(lake)
            case "vacuum":
                done = vacuum(lake, retain=MIN_RETAIN, delete=True)
            case "release":
                done = _release_oldest(lake)
            case "shuffle":
                settings = ShuffleSettings(bucket_bytes=_BUCKET_BYTES)
                done = shuffle(lake, settings=settings, cluster=client)
            case _:
                flags = {} if kind == "plain" else {kind: True}
                report = etl.job.run.run(recipe, cluster=client, **flags)
                return (DONE if report.ok else QUARANTINED), str(report)
    except TokenlakeError as error:
        return FAILED, f"error: {error}"
    except BaseException:  # noqa: BLE001 - a user should never see any other exception
        return CRASHED, traceback.format_exc()
    return DONE, str(done)
