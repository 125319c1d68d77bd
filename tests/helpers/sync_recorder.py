"""Record which files and folders a process syncs, creates and names, in order, to the file ``$SYNC_RECORD``.

Importing the module starts the recording; ``recorded_environment`` makes all Python processes import it. Each
line is a JSON list: the operation and its absolute paths. ``sync`` is recorded after it was done, ``link``
and ``replace`` before; the operations of all processes are in one order.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_VARIABLE = "SYNC_RECORD"
_ROOT = Path(__file__).parent.parent.parent

Operation = list[str]


def recorded_environment(folder: Path) -> dict[str, str]:
    """Return the environment for processes that record to ``folder / "operations"``."""
    (folder / "sitecustomize.py").write_text(f"import {__name__}\n")
    path = os.pathsep.join((str(folder), str(_ROOT), os.environ.get("PYTHONPATH", "")))
    return {**os.environ, "PYTHONPATH": path, _VARIABLE: str(folder / "operations")}


def read_operations(folder: Path) -> list[Operation]:
    """Return the operations that were recorded, in order."""
    return [json.loads(line) for line in (folder / "operations").read_text().splitlines()]


def record(target: int) -> None:
    """Record the operations of this process from now on, to an open file."""

    def write(*operation: object) -> None:
        os.write(target, f"{json.dumps(list(map(str, operation)))}\n".encode())

    def before(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(source: Any, destination: Any, **options: Any) -> None:
            write(name, Path(source).absolute(), Path(destination).absolute())
            original(source, destination, **options)

        return wrapper

    original_fsync, original_mkdir = os.fsync, os.mkdir

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        original_fsync(descriptor)
        write("sync", path)

    def mkdir(path: Any, mode: int = 0o777, **options: Any) -> None:
        original_mkdir(path, mode, **options)
        write("mkdir", Path(path).absolute())

    os.fsync, os.mkdir = fsync, mkdir  # type: ignore[assignment]
    os.link, os.replace = before("link", os.link), before("replace", os.replace)
    os.rename = before("replace", os.rename)


if _VARIABLE in os.environ:
    record(os.open(os.environ[_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND))
