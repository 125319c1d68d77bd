"""Extract text from pages in a child process, which a page may hang or crash.

The child is a separate interpreter (not a fork, so it works in Dask workers and notebooks) that is reused
until this process ends. Pages are sent in batches of a megabyte. Answers are in an in-memory file that
survives the child. If a page ends the child, only that page is lost: a new child continues with the next.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from etl.errors import StageError
from etl.text import html_worker

Extractor = Literal["resiliparse", "trafilatura"]

_BATCH_BYTES = 1 << 20
_BATCH_PAGES = 1023  # so that the lengths fit into one write to a pipe, the buffers into one writev
_CLOSING_SECONDS = 5
_MALLOC_SETTINGS = {  # glibc keeps freed memory for the next page
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
_TIMEOUT_CODES = (-signal.SIGPROF, -signal.SIGALRM)


class ExtractedPage(NamedTuple):
    """The result for a page: its text (UTF-8), or the kind of problem and an error message."""

    text: bytes | None = None
    problem: Literal["timeout", "failed"] | None = None
    error: str = ""


def extract_pages(
    pages: Sequence[bytes | memoryview], *, extractor: Extractor, seconds: float
) -> Iterator[ExtractedPage]:
    """Yield the outcome of each page (UTF-8) in order; ``seconds`` limits the CPU time of a page.

    Raises StageError if the extractor is not installed.
    """
    return _extraction_of(os.getpid(), extractor, seconds).extract(pages)


@lru_cache(maxsize=2)
def _extraction_of(pid: int, extractor: Extractor, seconds: float) -> "_Extraction":  # noqa: ARG001
    """Return the extraction of a process; a fork has another pid and so does not share the child."""
    return _Extraction(extractor, seconds)


class _Child:
    """A running child process."""

    def __init__(self, extractor: Extractor, seconds: float) -> None:
        self._pages, self._answers = _in_memory_file(), _in_memory_file()
        files = {"pages": self._pages, "answers": self._answers}
        settings = {"extractor": extractor, "seconds": seconds, **files}
        # -P: the script's folder has a module with the name of a standard library module.
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", str(Path(html_worker.__file__)), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=list(files.values()),
            bufsize=0,
            env={**os.environ, **_MALLOC_SETTINGS, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
        )
        self.close = weakref.finalize(self, _close, self.process, list(files.values()), os.getpid())
        self.used = False  # whether it has answered for at least one page
        ready = self._read_answers()
        if not ready or ready[0].problem:
            self.close()
            why = ready[0].error if ready else f"its process exited with {self.process.returncode}"
            raise StageError(f"{extractor} cannot be used: {why}", hint=f"pip install {extractor}")

    def answers(self, pages: Sequence[bytes | memoryview]) -> list[ExtractedPage]:
        """Send pages and return their outcomes; fewer than the pages if the child has ended."""
        assert self.process.stdin is not None
        os.ftruncate(self._answers, 0)
        os.lseek(self._pages, 0, os.SEEK_SET)
        os.writev(self._pages, pages)
        lengths = array("I", map(len, pages)).tobytes()
        try:
            self.process.stdin.write(html_worker.COUNT.pack(len(pages)) + lengths)
        except BrokenPipeError:  # the child has ended already
            return []
        outcomes = self._read_answers()
        self.used = self.used or bool(outcomes)
        return outcomes

    def _read_answers(self) -> list[ExtractedPage]:
        """Wait until the child is done with a batch or has ended, then read its answers."""
        assert self.process.stdout is not None
        self.process.stdout.read(len(html_worker.DONE))
        content = os.pread(self._answers, os.fstat(self._answers).st_size, 0)
        outcomes, offset = [], 0
        while offset + html_worker.ANSWER.size <= len(content):
            kind, length = html_worker.ANSWER.unpack_from(content, offset)
            start = offset + html_worker.ANSWER.size
            offset = start + length
            if offset > len(content):  # the child ended while it was writing
                break
            text = content[start:offset]
            outcomes.append(
                ExtractedPage(text)
                if kind == html_worker.TEXT
                else ExtractedPage(None, "failed", text.decode())
            )
        return outcomes


class _Extraction:
    """Extracts pages with one child at a time and replaces it when it ends; threads take turns."""

    def __init__(self, extractor: Extractor, seconds: float) -> None:
        self._settings = (extractor, seconds)
        self._seconds = seconds
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def extract(self, pages: Sequence[bytes | memoryview]) -> Iterator[ExtractedPage]:
        start = 0
        while start < len(pages):
            stop = start + 1
            size = len(pages[start])
            while stop < min(len(pages), start + _BATCH_PAGES):
                size += len(pages[stop])
                if size > _BATCH_BYTES:
                    break
                stop += 1
            with self._lock:
                outcomes = self._extract_batch(pages[start:stop])
            yield from outcomes
            start = stop

    def _extract_batch(self, batch: Sequence[bytes | memoryview]) -> list[ExtractedPage]:
        outcomes: list[ExtractedPage] = []
        while len(outcomes) < len(batch):
            child, self._child = self._child or _Child(*self._settings), None
            # An interrupt here drops the child, as its further answers would belong to this batch.
            outcomes += child.answers(batch[len(outcomes) :])
            if len(outcomes) < len(batch):
                outcomes += self._outcome_of_end(child)
            else:
                self._child = child
        return outcomes

    def _outcome_of_end(self, child: _Child) -> list[ExtractedPage]:
        """Return the outcome of the page at which the child ended; none if the page is to be tried again.

        Unless the page exceeded its time, a fresh child tries it again, because memory left by earlier pages
        must not change the result.
        """
        code = child.process.wait()
        child.close()
        if code in _TIMEOUT_CODES:
            error = f"more than {self._seconds} s of processor time"
            if code == -signal.SIGALRM:
                error = f"more than {html_worker.WAITING * self._seconds} s"
            return [ExtractedPage(None, "timeout", error)]
        if child.used:
            return []
        return [ExtractedPage(None, "failed", f"the extractor's process ended with {code}")]


def _in_memory_file() -> int:
    """Open an anonymous file in memory, or on disk where the system does not support that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pages")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _close(process: subprocess.Popen[bytes], files: list[int], owner: int) -> None:
    """End a child process, unless this process is a fork of the process that started it."""
    if process.stdin is None or process.stdout is None or os.getpid() != owner:
        return
    for file in files:
        os.close(file)
    process.stdin.close()
    process.stdout.close()
    try:
        process.wait(_CLOSING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
