"""How every kernel is compiled: by numba, without the interpreter's lock, kept on disk."""

from collections.abc import Callable
from typing import TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Compile a function over arrays at its first call; later processes load it from the cache."""
    compiled: _Function = numba.njit(nogil=True, cache=True)(function)
    return compiled
