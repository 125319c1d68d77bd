"""Let one process of a machine compile a kernel while the others wait for its machine code."""

import fcntl
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

PATIENCE: Final = 600.0
"""Seconds to wait for another process: a kernel takes up to 30 to compile. Then, both compile it."""

_PAUSE: Final = 0.05


class CompileLock:
    """A lock on the first file of several that can be locked; without any, it locks nothing.

    The system releases it when its process ends, however that happens.
    """

    def __init__(self, paths: Iterable[Path], patience: float = PATIENCE) -> None:
        self._paths = tuple(paths)
        self._patience = patience
        self._file: int | None = None

    def acquire(self) -> None:
        """Wait until no other process has the lock."""
        for path in self._paths:
            with suppress(OSError):  # a read-only folder, or a file system without locks
                path.parent.mkdir(parents=True, exist_ok=True)
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    self._wait(file)
                except OSError:
                    os.close(file)
                    raise
                self._file = file
                return

    def release(self) -> None:
        """Let other processes have the lock, if this one has it."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _wait(self, file: int) -> None:
        end = time.monotonic() + self._patience
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_PAUSE)
            else:
                return
