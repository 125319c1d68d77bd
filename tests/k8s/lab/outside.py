"""Commands with a cluster file, from outside the cluster."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.helpers.cli import start

FILE = """
image: registry.example.com/tokenlake:0.1.0
workers: 2
cpu: 250m
memory: 1536Mi
"""


def etl(*words: object) -> subprocess.CompletedProcess[str]:
    process = start(*words)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert "Traceback" not in err
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@contextmanager
def run(lake: str, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a run from outside, and kill it at the end."""
    words = ("run", "recipe.yaml", "--lake", lake, "--cluster", "k8s:cluster.yaml")
    with start(*words, *options) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_splits(process: "subprocess.Popen[str]") -> None:
    """Wait until splits are done."""
    assert process.stderr is not None
    seen = ""
    while not (line := process.stderr.readline()).startswith("documents   "):
        seen += line
        assert line, seen
