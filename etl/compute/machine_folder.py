"""The folder that all worker processes of a machine share."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

from distributed import Client, LocalCluster, get_worker

_NAME: Final = "tokenlake-files"


def machine_folder() -> Path:
    """Return the shared folder; a worker has it in the local directory that Dask was given.

    Raises OSError if it cannot be created. A folder that another user can write to is not used: then each
    process has its own.
    """
    worker = worker_or_none()
    if worker is None:
        return _private(Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}")
    own = Path(worker.local_directory)
    try:
        return _private(own.parent / _NAME)
    except PermissionError:
        return _private(own / _NAME)


def machine_folders(client: Client) -> set[Path]:
    """Return the shared folders of the workers of a cluster."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return {Path(worker["local_directory"]).parent / _NAME for worker in workers}


def worker_or_none() -> Any:
    """Return the Dask worker that runs the current task; None outside of tasks."""
    try:
        return get_worker()
    except ValueError:
        return None


def is_local(client: Client) -> bool:
    """Return whether the workers are processes or threads of this machine, started with the client."""
    return isinstance(client.cluster, LocalCluster)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or others_write:
        raise PermissionError(f"{folder} belongs to another user")
    return folder
