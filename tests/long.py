"""Run one part of the long suites, chosen by the hash of the commit: `make long`.

Each commit chooses another part, so that all parts run over time. Tests that fail are repeated once. A test
that passes then is printed as flaky, and only tests that fail twice fail the part.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Part:
    """A target of the Makefile or one of its parts (``k/n``), and the programs that it needs."""

    target: str
    part: str = ""
    needs: tuple[str, ...] = ()
    folder: Path = ROOT  # of the Makefile

    def __str__(self) -> str:
        return f"{self.target} PART={self.part}" if self.part else self.target

    def missing(self) -> list[str]:
        """Return the needed programs that are not installed."""
        return [program for program in self.needs if shutil.which(program) is None]

    def run(self, *options: str) -> bool:
        """Run the part with further options of pytest, and return whether it passed."""
        variables = [f"PART={self.part}", f"PYTEST_OPTIONS={' '.join(options)}"]
        command = ["make", self.target, *variables]
        return subprocess.run(command, cwd=self.folder, check=False).returncode == 0


def parts_of(target: str, count: int) -> list[Part]:
    """Divide a target into equal parts."""
    return [Part(target=target, part=f"{number + 1}/{count}") for number in range(count)]


PARTS: Final = (
    *parts_of("test-slow", 8),
    *parts_of("test-s3", 8),
    Part(target="test-stores", needs=("npm",)),
    Part(target="test-trainers"),
    Part(target="test-pages", needs=("chromium",)),
    Part(target="test-wheel"),
    *parts_of("chaos", 8),
    *parts_of("damage", 8),
)
"""What `make long` chooses from. Each part takes less than 25 minutes on two cores."""


def choose(commit: str, parts: Sequence[Part]) -> Part:
    """Return the part that a commit's hash chooses.

    >>> choose("1b", parts_of("chaos", 8)).part
    '4/8'
    """
    return parts[int(commit, 16) % len(parts)]


def run_part(part: Part) -> bool:
    """Run a part, and again the tests that fail; return False if one failed twice."""
    if missing := part.missing():
        say(f"skipped {part}: it needs {', '.join(missing)}, which is not on the PATH")
        return True
    with tempfile.TemporaryDirectory() as cache:
        passed = run_and_repeat(part, Path(cache))
    say(f"{part} {'passed' if passed else 'failed'}")
    return passed


def run_and_repeat(part: Part, cache: Path) -> bool:
    """Run a part, and again the tests that fail, with an empty folder for pytest's cache."""
    option = f"-o cache_dir={cache}"
    if part.run(option):
        return True
    failed = last_failed(cache)
    # Pytest divides the tests that it repeats, too: a failed test could be in another part. If it recorded
    # none, then something else failed, such as an installation: repeat the same part.
    again = replace(part, part="") if failed else part
    passed = again.run(option, "--last-failed")
    for test in sorted(failed - last_failed(cache)):
        say(f"flaky: {test} failed, and passed when it was repeated")
    return passed


def say(line: str) -> None:
    """Print a line before the output of the next process."""
    print(f"make long: {line}", flush=True)


def last_failed(cache: Path) -> set[str]:
    """Return the tests that pytest has recorded as failed."""
    file = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(file.read_text("utf-8"))) if file.exists() else set()


def main() -> int:
    """Choose a part, run it, and return the exit status."""
    command = ("git", "rev-parse", "HEAD")
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    part = choose(commit, PARTS)
    say(f"{part}, one of {len(PARTS)} parts, for {commit.strip()}")
    return 0 if run_part(part) else 1


if __name__ == "__main__":
    sys.exit(main())
