"""The command line, in this process or another."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from typer.testing import CliRunner, Result

from etl.cli.app import app
from etl.storage.filesystem import TIMEOUT_VARIABLE

ROOT = Path(__file__).parent.parent.parent


def etl(*words: object, env: Mapping[str, str] | None = None) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], env=env)


def start(*words: object) -> subprocess.Popen[str]:
    """Start a command in a separate process."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOKENLAKE_") or name == TIMEOUT_VARIABLE
    }
    return subprocess.Popen(
        [sys.executable, "-c", "from etl.cli import main; main()", *map(str, words)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
