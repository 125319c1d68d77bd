"""Runs in other processes, which tests kill, and the outcome that they must have."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.job.plan import make_plan
from etl.lake.table_specs import SHUFFLED
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import Row, rows_by_table

Outcome = dict[str, list[Row]]


def outcome(recipe: Recipe) -> Outcome:
    """Return all rows of all tables that a run fills, and the digests of these; no work may remain."""
    assert not make_plan(recipe).has_work()
    problems = verify(str(recipe.lake))
    assert problems == []
    digests: Row = {
        name: digest for name, digest in problems.digests.items() if name != SHUFFLED.name
    }
    return {**rows_by_table(recipe), "digests": [digests]}


def version_of(recipe: Recipe, name: str) -> int:
    url = storage.join(str(recipe.lake), name)
    return Table.open(url).version if Table.exists(url) else -1


def start_run(file: Path, step: str = "") -> subprocess.Popen[bytes]:
    """Start a run in another process.

    ``step`` may be ``shuffle``, which follows the run, or ``TABLE-n``: it dies right before its n-th commit
    to a table.
    """
    command = [sys.executable, "-m", "tests.helpers.driver", str(file), str(step)]
    return subprocess.Popen(command, start_new_session=True)


def end_run(process: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a run, so that none outlives its test."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
