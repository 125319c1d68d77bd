"""The processors that kernels are compiled for, and whether this machine can run shipped machine code.

``TOKENLAKE_CPU`` names the processors, so that the machine code of an image fits all of a cluster's machines:
``generic``, ``x86-64-v2``, ``x86-64-v3`` or ``x86-64-v4``; on other architectures, all of these mean
``generic``. A machine that lacks a part of the level compiles for itself.
"""

import os
import platform
from typing import Final

from llvmlite import binding

# What LLVM calls the levels of the x86-64 psABI, and the features that each adds to the one before.
_V2 = frozenset({"cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
CPUS: Final = {"generic": frozenset[str](), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""The values of ``TOKENLAKE_CPU``, each with the features that a machine must have."""

SHIPPED: Final = "x86-64-v3"
"""The level that the kernels in a wheel are compiled for."""


def cpu() -> str | None:
    """Return the level of processors that kernels are compiled for; None: this machine's."""
    name = os.environ.get("TOKENLAKE_CPU")
    if name not in CPUS:
        return None
    if not _is_x86():
        return "generic"
    return name if _has(name) else None


def target() -> str:
    """Return the processors that kernels are compiled for, as LLVM names them."""
    return cpu() or host()


def host() -> str:
    """Return this machine's processor, as LLVM names it."""
    return str(binding.get_host_cpu_name())


def highest_level() -> str:
    """Return the highest of `CPUS` that this machine has."""
    return [name for name in CPUS if _has(name)][-1] if _is_x86() else "generic"


def runs_shipped() -> bool:
    """Return whether this machine can run shipped kernels, and ``TOKENLAKE_CPU`` asks for no other level."""
    return os.environ.get("TOKENLAKE_CPU", SHIPPED) == SHIPPED and _is_x86() and _has(SHIPPED)


def _is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")


def _has(name: str) -> bool:
    features = binding.get_host_cpu_features()
    return all(features.get(feature) for feature in CPUS[name])
