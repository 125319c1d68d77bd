"""Kernels on disk are compiled anew when a kernel that they use has changed in another file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLER = """
from etl.kernels.jit import kernel
from callee import factor

@kernel
def scaled(number):
    return factor() * number

print(scaled(10), sum(scaled.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_a_change_in_another_file_is_seen(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    found = []
    for factor in (2, 2, 3):
        (tmp_path / "callee.py").write_text(
            f"from etl.kernels.jit import kernel\n\n@kernel\ndef factor():\n    return {factor}\n"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NUMBA_CACHE_DIR": str(tmp_path / "n"),
        }
        command = [sys.executable, str(tmp_path / "caller.py")]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(run.stdout.split())
    assert found == [["20", "0"], ["20", "1"], ["30", "0"]]
