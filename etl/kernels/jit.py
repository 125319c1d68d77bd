"""Compile kernels with numba: without the GIL, and cached on disk until any kernel changes."""

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
from numba.core.caching import IndexDataCacheFile

_Function = TypeVar("_Function", bound=Callable[..., object])
_KERNELS: Final = Path(__file__).parent


def kernel(function: _Function) -> _Function:
    """Compile a function over arrays at its first call, and load it from the cache in later processes.

    Its machine code includes that of the kernels and tables of other files that it uses, but numba checks
    only the function's own file. So a change in any file of ``etl/kernels`` invalidates the cache.
    """
    compiled: Any = numba.njit(nogil=True, cache=True)(function)
    folder = Path(function.__code__.co_filename).parent
    stamp = _stamp(_KERNELS)
    if not folder.is_relative_to(_KERNELS):
        stamp += _stamp(folder)
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"
    compiled._cache._cache_file = _CacheFile(compiled._cache.cache_path, name, stamp)  # noqa: SLF001
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


class _CacheFile(IndexDataCacheFile):
    """The cache of one kernel, with its stamp in the names of the files.

    Numba compares the stamp inside an index only after it has loaded the types in it, which fails if one
    was renamed since. An index of another stamp has another name, so it is never loaded.
    """

    def __init__(self, folder: str, name: str, stamp: str) -> None:
        self._prefix = f"{name}.{sys.implementation.cache_tag}."
        self._current = self._prefix + hashlib.sha256(stamp.encode()).hexdigest()[:16]
        super().__init__(folder, self._current, stamp)  # type: ignore[no-untyped-call]

    def save(self, key: object, data: object) -> None:
        """Write the machine code for one signature, and remove the files of other stamps."""
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
