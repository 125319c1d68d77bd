"""Compile kernels with numba: without the GIL, and cached on disk until any kernel changes.

Machine code is kept beside the source files, where `etl warm` puts it when an image is built. Where these
cannot be written, as in a container with a read-only root, it is read from there, and what is missing is kept
in the user's cache folder. Where that cannot be written either, kernels are compiled in each process. Wheels
bring machine code of their own (``etl.kernels.cpu``), which is used where nothing else is kept.
"""

import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import numba

from etl.kernels.cache import KernelCache
from etl.kernels.cpu import cpu
from etl.kernels.linking import LinkedFunction, LinkingKernel, is_supported

_Function = TypeVar("_Function", bound=Callable[..., object])
_CONFIG: Any = numba.config  # its stubs lack most settings

if (_level := cpu()) is not None:
    _CONFIG.CPU_NAME = _level
    _CONFIG.CPU_FEATURES = ""  # the features of the level, not this machine's


def kernel(function: _Function) -> _Function:
    """Compile a function over arrays at its first call, and load it from the cache in later processes.

    Its machine code includes that of the kernels and tables of other files that it uses, but numba checks
    only the function's own file. So a change in any file of ``etl/kernels`` invalidates the cache.

    It must not allocate an array, so it does not count references to arrays: its callers hold them. In other
    kernels it is compiled as ``rare``.
    """
    compiled: Any = _Kernel(function, _nrt=False)
    kernel_function: _Function = compiled
    return kernel_function


def allocator(function: _Function) -> _Function:
    """Compile as ``kernel``, but for a function that allocates or returns an array.

    It counts references with atomic additions, two for each array that it passes on. In the loop over the
    lines of a text, that took 80 % of the time. So an allocator should leave loops to other functions.
    """
    compiled: Any = _Kernel(function)
    kernel_function: _Function = compiled
    return kernel_function


def inner(function: _Function) -> _Function:
    """Compile a function that only other kernels call and that allocates no array.

    It is inlined into its callers, since an array argument is nine words on the stack: that halves the time
    of a word in brackets.
    """
    return _link(function, forceinline=True)


def rare(function: _Function) -> _Function:
    """Compile as ``inner``, but not inlined: for a function that is called rarely, from many places."""
    return _link(function)


class _Kernel(LinkingKernel):
    """A function that Python calls, with its cache."""

    def __init__(self, function: Any, **options: bool) -> None:
        super().__init__(function, **options)
        self._cache: Any = KernelCache(function)
        self.name: str = self._cache.name

    @property
    def cache(self) -> KernelCache:
        """Return the cache of this kernel."""
        cache: KernelCache = self._cache
        return cache

    def compile(self, sig: Any) -> Any:
        """Load or compile the kernel for one signature."""
        try:
            return super().compile(sig)
        finally:
            self._cache.end()


def _link(function: _Function, **options: bool) -> _Function:
    compiled: Any
    if is_supported():
        compiled = LinkedFunction(function, _nrt=False, **options)
    else:
        compiled = numba.njit(nogil=True, _nrt=False, **options)(function)  # type: ignore[call-overload]
    linked: _Function = compiled
    return linked


def count_kernels() -> tuple[int, int]:
    """Return how many versions of kernels this process has compiled, and loaded from the cache."""
    stats = [each.stats for each in _kernels()]
    compiled = sum(sum(each.cache_misses.values()) for each in stats)
    return compiled, sum(sum(each.cache_hits.values()) for each in stats)


def kernel_names() -> list[str]:
    """Return the names of the kernels that this process has compiled or loaded."""
    return [each.name for each in _kernels() if each.stats.cache_misses or each.stats.cache_hits]


def find_kernels() -> dict[str, list[str]]:
    """Return the names of kernels by where their machine code is: ``shipped`` or ``cached``.

    A kernel whose machine code is there may still be compiled for other types.
    """
    package = import_module(__package__)
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        import_module(module.name)
    places: dict[str, list[str]] = {"shipped": [], "cached": []}
    for each in _kernels():
        if (place := each.cache.place()) is not None:
            places[place].append(each.name)
    return places


def _kernels() -> list[_Kernel]:
    modules = [module for name, module in sys.modules.items() if name.startswith(__package__)]
    values = {id(value): value for module in modules for value in vars(module).values()}
    return [value for value in values.values() if isinstance(value, _Kernel)]
