"""`etl warm` compiles all kernels that stages use, for the processors that TOKENLAKE_CPU names."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import Future
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import pytest

from etl.errors import ClusterError
from etl.job import warm
from etl.job.warm import warm_kernels
from etl.kernels.compile_clock import NUM_KERNELS
from tests.helpers.listeners import Recorder

ROOT = Path(__file__).parents[2]
GOLDEN = """
import pytest
from etl.kernels import jit

assert pytest.main(["-q", "-p", "no:cacheprovider", "tests/stages/test_golden.py"]) == 0
print(jit.count_kernels()[0])
"""


@pytest.mark.slow  # compiles all kernels
def test_no_stage_compiles_a_kernel_afterwards(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TOKENLAKE_CPU": "generic"}

    def output(*arguments: str) -> tuple[str, list[str]]:
        """Run Python, which must not show Dask's log; return its output and the lines about kernels."""
        run = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "distributed" not in run.stderr, run.stderr
        return run.stdout, re.findall(r"^kernel \d.*", run.stderr, re.MULTILINE)

    command = ("-c", "from etl.cli import main; main()", "warm")
    printed, kernels = output(*command, "--json")
    warmed = json.loads(printed)
    assert warmed["compiled"] > 30
    assert warmed["cpu"] == "generic"
    numbers = [re.split("[:,]", line)[0] for line in kernels]
    assert numbers == [f"kernel {n} of {len(kernels)}" for n in range(1, len(kernels) + 1)]
    assert len({line.partition(":")[2] for line in kernels}) == len(kernels)
    assert output("-c", GOLDEN)[0].splitlines()[-1] == "0"
    printed, kernels = output(*command)
    assert printed.startswith("nothing to do: all kernels are compiled\ncompiled    0 kernels")
    assert kernels == []


@pytest.mark.parametrize(("level", "hint"), [("x86-64-v9", "x86-64-v4"), ("generik", "generic")])
def test_an_unknown_level_is_refused(
    monkeypatch: pytest.MonkeyPatch, level: str, hint: str
) -> None:
    monkeypatch.setenv("TOKENLAKE_CPU", level)
    with pytest.raises(ClusterError, match=rf"'{level}': an unknown level.*(.|\n)*hint: .*{hint}"):
        warm_kernels()


def test_a_kernel_that_several_processes_wait_for_is_one_line() -> None:
    listener, first, second = Recorder(), Future[Any](), Future[Any]()
    names: SimpleQueue[str] = get_context("spawn").SimpleQueue()
    first.set_result(((1, 1), ["a", "b"]))
    for name in ("a", "a", "", "c", "b", ""):
        names.put(name)
    warm._follow([first, second], names, listener)
    total = NUM_KERNELS
    assert listener.lines == [f"kernel 1 of {total}: a", f"kernel 3 of {total}: c"]
