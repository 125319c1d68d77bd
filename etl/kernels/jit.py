"""Compile kernels with numba: without the GIL, and cached on disk until any kernel changes.

Machine code is kept beside the source files, where `etl warm` puts it when an image is built. Where these
cannot be written, as in a container with a read-only root, it is read from there, and what is missing is kept
in the user's cache folder. Where that cannot be written either, kernels are compiled in each process.

``TOKENLAKE_CPU`` names the processors to compile for, so that the machine code of an image fits all of a
cluster's machines: ``generic``, ``x86-64-v2``, ``x86-64-v3`` or ``x86-64-v4``; on other architectures, all of
these mean ``generic``. A machine that lacks a part of the level compiles for itself.
"""

import os
import platform
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
from llvmlite import binding

from etl.kernels.cache import KernelCache
from etl.kernels.linking import LinkedFunction, LinkingKernel, is_supported

_Function = TypeVar("_Function", bound=Callable[..., object])
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
    compiled: Any = _Kernel(function)
    kernel_function: _Function = compiled
    return kernel_function


def inner(function: _Function) -> _Function:
    """Compile a function that only other kernels call and that allocates no array.

    It does not count references to its arrays: the atomic counts would cost a function of a few
    instructions more than its work, and its callers hold the arrays. It is inlined into its callers, since
    an array argument is nine words on the stack: that halves the time of a word in brackets.
    """
    return _link(function, forceinline=True)


def rare(function: _Function) -> _Function:
    """Compile as ``inner``, but not inlined: for a function that is called rarely, from many places."""
    return _link(function)


class _Kernel(LinkingKernel):
    """A function that Python calls, with its cache."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache: Any = KernelCache(function)

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
    modules = [module for name, module in sys.modules.items() if name.startswith(__package__)]
    values = {id(value): value for module in modules for value in vars(module).values()}
    stats = [value.stats for value in values.values() if isinstance(value, _Kernel)]
    compiled = sum(sum(each.cache_misses.values()) for each in stats)
    return compiled, sum(sum(each.cache_hits.values()) for each in stats)


def target() -> str:
    """Return the processors that kernels are compiled for, as LLVM names them."""
    return str(_CONFIG.CPU_NAME or binding.get_host_cpu_name())
