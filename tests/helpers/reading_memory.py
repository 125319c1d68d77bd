"""Measure the memory that a process takes to read one file.

``python -m tests.helpers.reading_memory`` reads requests from stdin, one JSON object per line, and forks
a process for each, so that a request need not wait for imports. Its answer has the growth of the resident
memory at its peak, and the outcome.
"""

import json
import os
import resource
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

MAX_GROWTH_BYTES = 1_000_000_000
"""By how much reading a split may let the memory of a process grow."""

_STATUS = Path("/proc/self/status")


def resident_kb(name: str) -> int:
    """VmRSS or VmHWM, the peak, of this process."""
    [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1])


def read(path: str, settings: dict[str, Any], max_rows: int) -> Counter[str]:
    """List, count and read a file; return the number of rows by outcome, or the error."""
    from etl.errors import TokenlakeError
    from etl.sources import Source
    from etl.sources.list_splits import list_splits, number_splits
    from etl.sources.read_split import count_records, read_split

    source, outcomes = Source(path=path, **settings), Counter[str]()
    try:
        splits = list(list_splits(source))
        if len(splits) > 1:
            splits = list(number_splits(splits, [count_records(split) for split in splits]))
    except TokenlakeError as error:
        return Counter({str(error): 1})
    for split in splits:
        try:
            for table in read_split(split, source):
                outcomes.update(reason or "text" for reason in table["reason"].to_pylist())
                if outcomes.total() >= max_rows:
                    return outcomes
        except TokenlakeError as error:
            outcomes[str(error)] += 1
    return outcomes


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now the current size
    before = resident_kb("VmRSS")
    try:
        outcome: dict[str, Any] = {"rows": read(**request)}
    except BaseException:  # noqa: BLE001 - reported to the test
        outcome = {"crash": traceback.format_exc()[-3000:]}
    return {**outcome, "growth_bytes": (resident_kb("VmHWM") - before) * 1024}


def _serve() -> None:
    import etl.sources  # noqa: F401 - imported once, for all requests

    # Data rather than address space, of which Arrow reserves more than it uses: protects the machine.
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.stdout.write(json.dumps(_measure(json.loads(line))) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.stdout.write(
                json.dumps({"crash": f"wait status {status}", "growth_bytes": -1}) + "\n"
            )
            sys.stdout.flush()


class Reader:
    """A process that forks others to read files."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.helpers.reading_memory"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, path: Path, *, max_rows: int = 10_000, **settings: Any) -> dict[str, Any]:
        """Read a file in a new process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"path": str(path), "settings": settings, "max_rows": max_rows}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """Stop the process."""
        self._process.communicate()


if __name__ == "__main__":
    _serve()
