"""Functions that only kernels call are linked into kernels, where this version of numba is known."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from etl.kernels import linking
from etl.kernels.jit import allocator, inner, kernel

ROOT = Path(__file__).parents[2]

UNKNOWN = """
import numba, numpy
numba.version_info = numba.version_info._replace(minor=999)

from etl.kernels import jit, linking
from tests.kernels.test_linking import _scaled, total

assert not linking.is_supported()
assert not isinstance(_scaled, linking.LinkedFunction)
print(total(numpy.arange(5), 2), _scaled(1, 2, 3))
"""


@inner
def _scaled(value, factor, literal):
    return value * factor + literal


@kernel
def _sum(values, factor):
    out = 0
    for value in values:
        out += _scaled(value, factor, 0) + _scaled(0, 0, 1) - 1
    return out


@kernel
def total(values, factor):
    return _sum(values, factor) + _scaled(factor, 2, 0)


@allocator
def _doubled(values):
    return np.append(values, values)


@kernel
def _tripled(values):
    return np.append(values, np.append(values, values))


def test_only_allocators_allocate():
    values = np.arange(2)
    assert _doubled(values).tolist() == [0, 1, 0, 1]
    with pytest.raises(numba.core.errors.NumbaError, match="Only accept returning of array"):
        _tripled(values)


def test_the_pinned_version_of_numba_is_the_tested_one():
    (line,) = [x for x in (ROOT / "constraints.txt").read_text().split() if x.startswith("numba==")]
    pinned = tuple(map(int, line.removeprefix("numba==").split(".")[:2]))
    assert pinned == linking.TESTED
    assert linking.is_supported() == (tuple(numba.version_info[:2]) == linking.TESTED)


def test_a_kernel_is_called_by_python_and_by_kernels():
    values = np.arange(5)
    assert _sum(values, 2) == 20
    assert total(values, 2) == 24


def test_a_function_is_compiled_once_for_all_literals():
    total(np.arange(5), 2)
    if total.stats.cache_misses:  # not loaded from the cache
        assert {len(_scaled.overloads)} == {1}


def test_a_linked_function_runs_uncompiled_from_python():
    assert _scaled("a", 2, "b") == "aab"


@pytest.mark.slow
def test_other_versions_of_numba_compile_as_they_do(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", UNKNOWN]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["24", "5"]
