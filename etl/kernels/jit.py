"""Decorators that compile kernels with numba: without the GIL, cached on disk."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., object])
_KERNELS: Final = Path(__file__).parent


def kernel(function: _Function) -> _Function:
    """Compile a function over arrays at its first call, and load it from the cache in later processes.

    Its machine code includes that of the kernels and tables of other files that it uses, but numba checks
    only the function's own file. So a change in any file of ``etl/kernels`` invalidates the cache.
    """
    compiled = numba.njit(nogil=True, cache=True)(function)
    stamp = _stamp(_KERNELS)
    folder = Path(function.__code__.co_filename).parent
    if not folder.is_relative_to(_KERNELS):
        stamp += _stamp(folder)
    compiled._cache._cache_file._source_stamp = stamp  # type: ignore[attr-defined] # noqa: SLF001
    return compiled


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


@cache
def _stamp(folder: Path) -> str:
    """Return the sha256 of the paths and contents of all Python files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
