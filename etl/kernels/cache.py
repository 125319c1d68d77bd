"""The cache of compiled kernels: files in several folders, of which some may be read-only.

One process compiles a kernel; others that need it at the same time wait, and load what it has saved.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from etl.kernels.compile_clock import CLOCK
from etl.kernels.compile_lock import CompileLock
from etl.kernels.cpu import SHIPPED, runs_shipped

_KERNELS: Final = Path(__file__).parent
_CONFIG: Any = numba.config  # its stubs lack most settings


class _Locator:
    """Where a cache is: numba's locators need to write there, this one does not."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @classmethod
    def from_function(cls, _function: object, file: str) -> "_Locator":
        return cls(Path(file))

    def get_cache_path(self) -> str:
        return str(self.folders()[0])

    def get_source_stamp(self) -> str:
        folder = self.file.parent
        return _stamp(_KERNELS) + ("" if folder.is_relative_to(_KERNELS) else _stamp(folder))

    def get_disambiguator(self) -> str:
        return ""

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder is created when something is saved."""

    def folders(self) -> tuple[Path, ...]:
        """Return where machine code is looked for, and then kept if it can be written."""
        place = hashlib.sha256(str(self.file.parent).encode()).hexdigest()[:16]
        if _CONFIG.CACHE_DIR:
            return (Path(_CONFIG.CACHE_DIR, place),)
        name = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        user = Path(os.path.expanduser(name))  # noqa: PTH111 - Path raises without a home
        kept = (user / "tokenlake" / "kernels" / place,) if user.is_absolute() else ()
        return (self.file.parent / "__pycache__", *kept)


class _Implementation(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class KernelCache(FunctionCache):
    """The cache of one kernel, in the first folder that has its machine code."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        locator: _Locator = self._impl.locator
        name = f"{locator.file.stem}.{function.__qualname__}"
        stamp = locator.get_source_stamp()
        folders = locator.folders()
        self._cache_file = _CacheFiles([_CacheFile(str(folder), name, stamp) for folder in folders])
        lock = f"{name}.{sys.implementation.cache_tag}.lock"
        self.name = name
        shipped = _CacheFile(str(locator.file.parent / "compiled"), name, stamp)
        self._shipped = shipped if runs_shipped() else None
        self._lock = CompileLock(folder / lock for folder in folders)
        self._is_compiling = False

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return the kernel for one signature, or None if this process is to compile it, and then to save it.

        In that case, ``end`` must be called afterwards.
        """
        loaded = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if loaded is None and not self._is_compiling:
            self._is_compiling = True
            CLOCK.begin(self.name)
            self._lock.acquire()
            # Another process may have saved it since.
            loaded = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return loaded

    def _load_overload(self, sig: object, target_context: Any) -> object:
        loaded = super()._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if loaded is not None or self._shipped is None:
            return loaded
        key = self._index_key(sig, target_context.codegen())  # type: ignore[no-untyped-call]
        signature, (triple, *_), code = key
        data = self._shipped.load((signature, (triple, SHIPPED, ""), code))
        return None if data is None else self._impl.rebuild(target_context, data)

    def place(self) -> str | None:
        """Return where this kernel's machine code is, ``shipped`` or ``cached``; None: it has none."""
        if self._shipped is not None and self._shipped.is_there():
            return "shipped"
        files: _CacheFiles = self._cache_file
        return "cached" if files.is_there() else None

    def end(self) -> None:
        """Let other processes compile the kernel, if this one has."""
        if self._is_compiling:
            self._is_compiling = False
            self._lock.release()
            CLOCK.end()


class _CacheFiles:
    """The cache files of one kernel in several folders, some of which may be read-only."""

    def __init__(self, files: list["_CacheFile"]) -> None:
        self._files = files

    def load(self, key: object) -> object:
        """Return the machine code for one signature from the first folder that has it, or None."""
        found = (file.load(key) for file in self._files)
        return next((data for data in found if data is not None), None)

    def save(self, key: object, data: object) -> None:
        """Write the machine code for one signature to the first folder that can be written, if any."""
        for file in self._files:
            with suppress(OSError):
                file.save(key, data)
                return

    def is_there(self) -> bool:
        """Return whether a folder has machine code for any signature."""
        return any(file.is_there() for file in self._files)

    def flush(self) -> None:
        """Forget all machine code in folders that can be written."""
        for file in self._files:
            with suppress(OSError):
                file.flush()  # type: ignore[no-untyped-call]


class _CacheFile(IndexDataCacheFile):
    """The cache of one kernel in one folder, with its stamp in the names of the files.

    Numba compares the stamp inside an index only after it has loaded the types in it, which fails if one
    was renamed since. An index of another stamp has another name, so it is never loaded.
    """

    def __init__(self, folder: str, name: str, stamp: str) -> None:
        self._prefix = f"{name}.{sys.implementation.cache_tag}."
        self._current = self._prefix + hashlib.sha256(stamp.encode()).hexdigest()[:16]
        super().__init__(folder, self._current, stamp)  # type: ignore[no-untyped-call]

    def is_there(self) -> bool:
        """Return whether the folder has machine code for any signature."""
        return Path(self._cache_path, f"{self._current}.nbi").is_file()

    def load(self, key: object) -> object:
        """Return the machine code for one signature; None if there is none, or its files are damaged."""
        try:
            return super().load(key)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - unpickling raises many types
            return None

    def _load_index(self) -> dict[object, str]:
        try:
            index: dict[object, str] = super()._load_index()  # type: ignore[no-untyped-call]
        except OSError:
            raise  # another folder is used
        except Exception:  # noqa: BLE001 - numba does not sync: a power failure may leave it empty
            return {}
        return index

    def save(self, key: object, data: object) -> None:
        """Write the machine code for one signature, and remove the files of other stamps."""
        Path(self._cache_path).mkdir(parents=True, exist_ok=True)
        super().save(key, data)  # type: ignore[no-untyped-call]
        for path in Path(self._cache_path).glob(f"{self._prefix}*.nb[ci]"):
            if not path.name.startswith(self._current):
                path.unlink(missing_ok=True)


@cache
def _stamp(folder: Path) -> str:
    """Return the sha256 of the paths and contents of all Python files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
