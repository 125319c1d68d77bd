"""Compile kernels with numba: without the GIL, and cached on disk until any kernel changes.

Machine code is kept beside the source files, where `etl warm` puts it when an image is built. Where these
cannot be written, as in a container with a read-only root, it is read from there, and what is missing is kept
in the user's cache folder. Where that cannot be written either, kernels are compiled in each process.

``TOKENLAKE_CPU`` names the processors to compile for, so that the machine code of an image fits all of a
cluster's machines: ``generic``, ``x86-64-v2``, ``x86-64-v3`` or ``x86-64-v4``; on other architectures, all of
these mean ``generic``. A machine that lacks a part of the level compiles for itself.
"""

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.registry import CPUDispatcher

_Function = TypeVar("_Function", bound=Callable[..., object])
_KERNELS: Final = Path(__file__).parent
_CONFIG: Any = numba.config  # its stubs lack most settings

# What LLVM calls the levels of the x86-64 psABI, and the features that each adds to the one before.
_V2 = frozenset({"cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
CPUS: Final = {"generic": frozenset[str](), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""The values of ``TOKENLAKE_CPU``, each with the features that a machine must have."""


def cpu() -> str | None:
    """Return the level of processors that kernels are compiled for; None: this machine's."""
    name = os.environ.get("TOKENLAKE_CPU")
    if name not in CPUS:
        return None
    if platform.machine() not in ("x86_64", "AMD64"):
        return "generic"
    features = binding.get_host_cpu_features()
    return name if all(features.get(feature) for feature in CPUS[name]) else None


if (_level := cpu()) is not None:
    _CONFIG.CPU_NAME = _level
    _CONFIG.CPU_FEATURES = ""  # those of the level, not this machine's


def kernel(function: _Function) -> _Function:
    """Compile a function over arrays at its first call, and load it from the cache in later processes.

    Its machine code includes that of the kernels and tables of other files that it uses, but numba checks
    only the function's own file. So a change in any file of ``etl/kernels`` invalidates the cache.
    """
    compiled: Any = numba.njit(nogil=True)(function)
    compiled._cache = _Cache(function)  # noqa: SLF001
    kernel_function: _Function = compiled
    return kernel_function


def inner(function: _Function) -> _Function:
    """Compile a function that only other kernels call and that allocates no array.

    It does not count references to its arrays: the atomic counts would cost a function of a few
    instructions more than its work, and its callers hold the arrays. It is inlined into its callers, since
    an array argument is nine words on the stack: that halves the time of a word in brackets.
    """
    compiled: _Function = numba.njit(nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload]
    return compiled


def rare(function: _Function) -> _Function:
    """Compile as ``inner``, but not inlined: for a function that is called rarely, from many places."""
    compiled: _Function = numba.njit(nogil=True, _nrt=False)(function)  # type: ignore[call-overload]
    return compiled


def count_kernels() -> tuple[int, int]:
    """Return how many kernels this process has compiled, and how many it has loaded from the cache."""
    modules = [module for name, module in sys.modules.items() if name.startswith(__package__)]
    values = {id(value): value for module in modules for value in vars(module).values()}
    stats = [value.stats for value in values.values() if isinstance(value, CPUDispatcher)]
    compiled = sum(sum(each.cache_misses.values()) for each in stats)
    return compiled, sum(sum(each.cache_hits.values()) for each in stats)


def target() -> str:
    """Return the processors that kernels are compiled for, as LLVM names them."""
    return str(_CONFIG.CPU_NAME or binding.get_host_cpu_name())


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


class _Cache(FunctionCache):
    """The cache of one kernel, in the first folder that has its machine code."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        locator: _Locator = self._impl.locator
        name = f"{locator.file.stem}.{function.__qualname__}"
        stamp = locator.get_source_stamp()
        self._cache_file = _CacheFiles(
            [_CacheFile(str(folder), name, stamp) for folder in locator.folders()]
        )


class _CacheFiles:
    """The cache files of one kernel in several folders, some of which may be read-only."""

    def __init__(self, files: list["_CacheFile"]) -> None:
        self._files = files

    def load(self, key: object) -> object:
        """Return the machine code for one signature from the first folder that has it, or None."""
        found = (file.load(key) for file in self._files)  # type: ignore[no-untyped-call]
        return next((data for data in found if data is not None), None)

    def save(self, key: object, data: object) -> None:
        """Write the machine code for one signature to the first folder that can be written, if any."""
        for file in self._files:
            with suppress(OSError):
                file.save(key, data)
                return

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
