"""How every kernel is compiled: by numba, without the interpreter's lock, kept on disk."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Compile a function over arrays at its first call; later processes load it from the cache.

    Its machine code holds that of the kernels and the tables of other files that it uses, and numba by
    itself looks at the function's own file only: so any change in the folder makes the cache stale.
    """
    compiled = numba.njit(nogil=True, cache=True)(function)
    stamp = _stamp(Path(function.__code__.co_filename).parent)
    compiled._cache._cache_file._source_stamp = stamp  # type: ignore[attr-defined] # noqa: SLF001
    return compiled


def inner(function: _Function) -> _Function:
    """Compile a function that only other kernels call and that makes no array.

    It does not count references to its arrays, up and down, atomically: that would cost a function of a
    few instructions more than they do. Its callers hold the arrays. It becomes a part of its callers'
    code, since an array passed on is nine words on the stack: that halves the time of a word in brackets.
    """
    compiled: _Function = numba.njit(nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload]
    return compiled


def rare(function: _Function) -> _Function:
    """Compile as ``inner``, for what is seldom called from many places: it stands once, for all of them."""
    compiled: _Function = numba.njit(nogil=True, _nrt=False)(function)  # type: ignore[call-overload]
    return compiled


@cache
def _stamp(folder: Path) -> str:
    """The sha256 of all Python files of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
