"""Pages to text in a child process, which a page that hangs or crashes takes with it, and nothing else.

The child is an interpreter of its own (no fork: it works inside Dask's workers and notebooks), kept for
as long as this process lives. Pages go to it by the megabyte. Its answers are in a file in memory, which
stays when it ends, so that a page that ends the child costs itself: the child is started anew, and goes on
with the page after it.
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
_BATCH_PAGES = 1023  # as many lengths as a pipe takes at once, and buffers as a file
_CLOSING_SECONDS = 5
_MEMORY = {  # of glibc: what a page has freed is kept for the next one
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
_LIMITS = (-signal.SIGPROF, -signal.SIGALRM)


class ExtractedPage(NamedTuple):
    """What became of a page: its text (UTF-8), or the reason's name and what went wrong in words."""

    text: bytes | None = None
    problem: Literal["timeout", "failed"] | None = None
    error: str = ""


def extract(
    pages: Sequence[bytes | memoryview], *, extractor: Extractor, seconds: float
) -> Iterator[ExtractedPage]:
    """The outcome of each page (UTF-8) in order; one may take so many seconds of processor time.

    Raises StageError if the extractor is not installed.
    """
    return _of_this_process(os.getpid(), extractor, seconds).extract(pages)


@lru_cache(maxsize=2)
def _of_this_process(pid: int, extractor: Extractor, seconds: float) -> "_Extraction":  # noqa: ARG001
    """The child of a process, which a fork must not share."""
    return _Extraction(extractor, seconds)


class _Child:
    """A running child."""

    def __init__(self, extractor: Extractor, seconds: float) -> None:
        self._pages, self._answers = _file_in_memory(), _file_in_memory()
        files = {"pages": self._pages, "answers": self._answers}
        settings = {"extractor": extractor, "seconds": seconds, **files}
        # -P: its folder has a module named as one of the standard library's.
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", str(Path(html_worker.__file__)), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=list(files.values()),
            bufsize=0,
            env={**os.environ, **_MEMORY, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
        )
        self.close = weakref.finalize(self, _close, self.process, list(files.values()), os.getpid())
        self.used = False  # whether it has answered for a page
        ready = self._answered()
        if not ready or ready[0].problem:
            self.close()
            why = ready[0].error if ready else f"its process ended with {self.process.returncode}"
            raise StageError(f"{extractor} cannot be used: {why}", hint=f"pip install {extractor}")

    def answers(self, pages: Sequence[bytes | memoryview]) -> list[ExtractedPage]:
        """What it says of the pages, as far as it came: of fewer than all if it has ended."""
        assert self.process.stdin is not None
        os.ftruncate(self._answers, 0)
        os.lseek(self._pages, 0, os.SEEK_SET)
        os.writev(self._pages, pages)
        lengths = array("I", map(len, pages)).tobytes()
        try:
            self.process.stdin.write(html_worker.COUNT.pack(len(pages)) + lengths)
        except BrokenPipeError:  # it has ended already
            return []
        found = self._answered()
        self.used = self.used or bool(found)
        return found

    def _answered(self) -> list[ExtractedPage]:
        """What stands in the file when the child is done, or has ended."""
        assert self.process.stdout is not None
        self.process.stdout.read(len(html_worker.DONE))
        content = os.pread(self._answers, os.fstat(self._answers).st_size, 0)
        found, at = [], 0
        while at + html_worker.ANSWER.size <= len(content):
            kind, length = html_worker.ANSWER.unpack_from(content, at)
            start = at + html_worker.ANSWER.size
            at = start + length
            if at > len(content):  # it has ended while it wrote
                break
            said = content[start:at]
            found.append(
                ExtractedPage(said)
                if kind == html_worker.TEXT
                else ExtractedPage(None, "failed", said.decode())
            )
        return found


class _Extraction:
    """Pages to text by one child after another; threads take turns."""

    def __init__(self, extractor: Extractor, seconds: float) -> None:
        self._settings = (extractor, seconds)
        self._seconds = seconds
        self._child: _Child | None = None
        self._turn = threading.Lock()

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
            with self._turn:
                found = self._answers(pages[start:stop])
            yield from found
            start = stop

    def _answers(self, batch: Sequence[bytes | memoryview]) -> list[ExtractedPage]:
        found: list[ExtractedPage] = []
        while len(found) < len(batch):
            child, self._child = self._child or _Child(*self._settings), None
            # If this is interrupted, the child is let go: what it still says is of this batch.
            found += child.answers(batch[len(found) :])
            if len(found) < len(batch):
                found += self._ended(child)
            else:
                self._child = child
        return found

    def _ended(self, child: _Child) -> list[ExtractedPage]:
        """The outcome of the page at which the child ended.

        If it was not the limit, a fresh child has a try: what pages before have left in memory must
        not decide.
        """
        code = child.process.wait()
        child.close()
        if code in _LIMITS:
            error = f"more than {self._seconds} s of processor time"
            if code == -signal.SIGALRM:
                error = f"more than {html_worker.WAITING * self._seconds} s"
            return [ExtractedPage(None, "timeout", error)]
        if child.used:
            return []
        return [ExtractedPage(None, "failed", f"the extractor's process ended with {code}")]


def _file_in_memory() -> int:
    """A file without a name; on disk where the system has none in memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pages")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _close(process: subprocess.Popen[bytes], files: list[int], owner: int) -> None:
    """End a child; in a fork it is not ours."""
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
