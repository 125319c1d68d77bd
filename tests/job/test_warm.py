"""`etl warm` compiles all kernels that stages use, for the processors that TOKENLAKE_CPU names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etl.errors import ClusterError
from etl.job.warm import warm_kernels

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

    def output(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        run = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        return run.stdout.decode()

    warm = json.loads(output("-c", "from etl.cli import main; main()", "warm", "--json"))
    assert warm["compiled"] > 30
    assert warm["cpu"] == "generic"
    assert output("-c", GOLDEN).splitlines()[-1] == "0"


@pytest.mark.parametrize(("level", "hint"), [("x86-64-v9", "x86-64-v4"), ("generik", "generic")])
def test_an_unknown_level_is_refused(
    monkeypatch: pytest.MonkeyPatch, level: str, hint: str
) -> None:
    monkeypatch.setenv("TOKENLAKE_CPU", level)
    with pytest.raises(ClusterError, match=rf"'{level}': an unknown level.*(.|\n)*hint: .*{hint}"):
        warm_kernels()
