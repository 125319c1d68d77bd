"""`doctor`: what this machine has, and whether it can use a store and a cluster: a page for a bug report."""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from distributed.system import MEMORY_LIMIT
from packaging.requirements import Requirement

from etl import storage
from etl.compute.check_cluster import check_certificates, check_cluster
from etl.compute.library_versions import NOT_INSTALLED, environment_versions, installed_version
from etl.compute.worker_count import num_cores
from etl.errors import StorageError, TokenlakeError
from etl.kernels import cpu, jit
from etl.kernels.compile_clock import NUM_KERNELS
from etl.lake.leases import store_time

_Found = TypeVar("_Found")

_EXTRAS: Final = (
    "train",
    "k8s",
    "slurm",
    "tls",
    "gs",
    "az",
    "segmenters",
)  # the others are for developers
_MAX_CLOCK_SECONDS: Final = 300.0
"""Amazon S3 refuses requests whose time differs by 15 minutes from its own (RequestTimeTooSkewed)."""


@dataclass(frozen=True, kw_only=True)
class Unusable:
    """What a run could not use, and what to do about it."""

    problem: str
    hint: str | None


@dataclass(frozen=True, kw_only=True)
class StoreCheck:
    """A folder in which files can be created, read and deleted, and a second writer is refused."""

    url: str
    seconds: float  # for all of it
    clock_ahead_seconds: float  # of the store, against this machine


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What `doctor` found. Sizes are in bytes."""

    tokenlake: str
    python: str
    system: str
    versions: dict[str, str]  # of libraries that results and messages depend on
    extras: dict[str, list[str]]  # what each extra lacks; nothing: it is installed
    processor: str
    level: str  # of x86-64, or generic
    cores: int
    memory: int  # that processes may use
    free_disk: dict[str, int]  # by folder
    kernels: dict[str, list[str]]  # names by where their machine code is: shipped or cached
    missing_kernels: int  # that `etl warm` would compile
    store: StoreCheck | Unusable | None
    cluster: str | Unusable | None
    certificates_expire: datetime | Unusable | None

    @property
    def has_problems(self) -> bool:
        """Whether the store, the cluster or its certificates cannot be used."""
        found = (self.store, self.cluster, self.certificates_expire)
        return any(isinstance(each, Unusable) for each in found)


def doctor(
    lake: str | os.PathLike[str] | None = None,
    *,
    cluster: str | None = None,
    tls: str | None = None,
) -> Diagnosis:
    """Examine this machine, and try the folder of a lake and a cluster if they are given.

    A file is created in the folder, a second writer of it refused, and the file read and deleted. No cluster
    is started: its permissions are checked, or the versions of its workers, and when its certificates expire.

    >>> import etl
    >>> sorted(etl.doctor().kernels)
    ['cached', 'shipped']
    """
    kernels, versions = jit.find_kernels(), dict(environment_versions())
    found = None if cluster is None else _attempt(lambda: check_cluster(cluster, tls))
    return Diagnosis(
        tokenlake=versions.pop("tokenlake"),
        python=platform.python_version(),
        system=platform.platform(),
        versions=versions,
        extras=_lacking_of_extras(),
        processor=cpu.host(),
        level=cpu.highest_level(),
        cores=num_cores(),
        memory=MEMORY_LIMIT,
        free_disk={
            folder: shutil.disk_usage(folder).free
            for folder in (str(Path.cwd()), tempfile.gettempdir())
        },
        kernels=kernels,
        missing_kernels=max(NUM_KERNELS - sum(map(len, kernels.values())), 0),
        store=None
        if lake is None
        else _attempt(lambda: _check_store(storage.normalize(str(lake)))),
        cluster=found,
        certificates_expire=None
        if isinstance(found, Unusable)
        else _attempt(lambda: check_certificates(cluster, tls)),
    )


def _attempt(check: Callable[[], _Found]) -> _Found | Unusable:
    try:
        return check()
    except TokenlakeError as error:
        what = error.what if error.where is None else f"{error.where}: {error.what}"
        return Unusable(problem=what, hint=error.hint)


def _lacking_of_extras() -> dict[str, list[str]]:
    """Return the packages that each extra requires and that are missing, or have another version."""
    try:
        metadata = distribution("tokenlake").metadata
    except PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return {
        extra: [
            each.name
            for each in requirements
            if each.marker is not None
            and each.marker.evaluate({"extra": extra})
            and not each.marker.evaluate({"extra": ""})
            and not _is_installed(each)
        ]
        for extra in _EXTRAS
    }


def _is_installed(requirement: Requirement) -> bool:
    found = installed_version(requirement.name)
    return found != NOT_INSTALLED and requirement.specifier.contains(found, prereleases=True)


def _check_store(folder: str) -> StoreCheck:
    """Try to write, read and refuse a second writer, and compare the store's clock with this machine's.

    Raises StorageError if one of these fails.
    """
    is_new = storage.is_local(folder) and not Path(storage.local_path(folder)).exists()
    probe = storage.join(folder, f".doctor-{uuid4().hex}")
    started = time.monotonic()
    try:
        storage.try_conditional_writes(folder)  # reads, too: a refused writer compares the content
        storage.create_if_absent(probe, b"")
        ahead = (store_time(probe) - datetime.now(UTC)).total_seconds()
    finally:
        with suppress(StorageError):
            storage.remove(probe)
        if is_new:
            with suppress(OSError):
                Path(storage.local_path(folder)).rmdir()
    if abs(ahead) > _MAX_CLOCK_SECONDS:
        what = f"the clocks of the store and of this machine differ by {abs(ahead):,.0f} s"
        raise StorageError(what, where=folder, hint="set this machine's clock, as with NTP")
    return StoreCheck(url=folder, seconds=time.monotonic() - started, clock_ahead_seconds=ahead)
