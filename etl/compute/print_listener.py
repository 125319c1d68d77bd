"""Print what a run does: one line that is rewritten in a terminal or a notebook, else a line now and then."""

import shutil
import sys
import threading
import time
from typing import Final, Self, TextIO

from etl.compute.listener import Listener, Progress
from etl.text_width import cut_text, text_width
from etl.visible_text import VisibleStream, one_line

_CLEAR: Final = "\x1b[K"  # the rest of the line of a terminal
_TERMINAL_SECONDS: Final = 0.1  # between two lines of progress
_NOTEBOOK_SECONDS: Final = 0.5  # each is a message to a browser
_PLAIN_SECONDS: Final = 5.0


class PrintListener(Listener):
    """Prints status, notes and progress to a stream, by default standard output.

    It is a context manager that ends the last line. In a notebook, functions that take a listener use one
    by default.

    >>> from etl.compute.listener import Progress
    >>> PrintListener().progress(Progress("documents", 4, 4, rows=3000, kept=2000, seconds=2.0))
    documents   4/4 splits  kept 2,000 of 3,000  1,500 docs/s
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = sys.stdout if stream is None else stream
        self._stream = VisibleStream.of(stream)
        self._is_terminal = stream.isatty()
        self._is_notebook = _is_notebook() and stream in (sys.stdout, sys.stderr)
        seconds = _TERMINAL_SECONDS if self._is_terminal else _PLAIN_SECONDS
        self._interval = _NOTEBOOK_SECONDS if self._is_notebook else seconds
        self._written = -float("inf")
        self._first_kernel: tuple[int, float] | None = None  # its number, and when it was begun
        self._open_width = 0  # of the last line, if it has no line end yet
        self._is_status = False  # whether that line is a status, which does not stay
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._end()

    def status(self, text: str) -> None:
        """Print a status; where lines are rewritten, the next line replaces it."""
        with self._lock:
            self._rewrite(text, is_status=True)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._end()
            self._stream.write(f"{one_line(text)}\n")
            self._stream.flush()

    def progress(self, progress: Progress) -> None:
        """Print the progress of a step every few moments, and always its end."""
        with self._lock:
            now, is_last = time.monotonic(), progress.done == progress.total
            if not is_last and now - self._written < self._interval:
                return
            self._written = now
            self._rewrite(progress_line(progress), is_status=False)
            if is_last:
                self._end()

    def compiling(self, name: str, number: int, total: int) -> None:
        """Print the next kernel, and about how long the rest takes if each takes as long as the last ones."""
        now = time.monotonic()
        first, started = self._first_kernel = self._first_kernel or (number, now)
        left = ""
        if number > first:
            seconds = (now - started) / (number - first) * (total - number + 1)
            left = f", about {duration(seconds)} left"
        self.status(f"kernel {number} of {total}{left}: {name}")

    def _rewrite(self, text: str, *, is_status: bool) -> None:
        self._is_status = is_status
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns - 1
            text = cut_text(text, columns) if is_status else _fit(text, columns)
        text = one_line(text)
        if self._is_terminal or self._is_notebook:
            self._stream.write_code(self._clear())
            self._stream.write(text)
            self._open_width = text_width(text)
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def _clear(self) -> str:
        """Return the code that clears the line. Notebooks know none, so that blanks replace its text."""
        blanks = f"{' ' * self._open_width}\r" if self._open_width else ""
        return f"\r{_CLEAR if self._is_terminal else blanks}"

    def _end(self) -> None:
        if self._open_width:
            self._stream.write_code(self._clear() if self._is_status else "\n")
            self._open_width = 0


def listener_of(listener: Listener | None) -> Listener:
    """Return a listener as it is; for None, print in a notebook and else do nothing."""
    if listener is not None:
        return listener
    return PrintListener() if _is_notebook() else Listener()


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def progress_line(progress: Progress) -> str:
    """Return the progress of a step as one line, with the rates of ``Progress``.

    >>> from etl.compute.listener import Progress
    >>> progress_line(Progress("tokens", 1, 4, rows=3000, kept=2000, text_bytes=8_000_000, seconds=2.0))
    'tokens      1/4 splits  6s left  kept 2,000 of 3,000  1,500 docs/s  4.0 MB/s'
    >>> progress_line(Progress("documents", done=1, total=4, failed=1))
    'documents   1/4 splits  failed 1'
    """
    parts = [f"{progress.step:<11} {progress.done:,}/{progress.total:,} splits"]
    if progress.failed:
        parts.append(f"failed {progress.failed:,}")
    if progress.rows and progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    if progress.rows:
        parts.append(f"kept {progress.kept:,} of {progress.rows:,}")
    if (rate := progress.per_second(progress.rows)) is not None:
        parts.append(f"{rate:,.0f} docs/s")
    if (rate := progress.per_second(progress.text_bytes)) is not None:
        parts.append(f"{rate / 1e6:,.1f} MB/s")
    return "  ".join(parts)


def _fit(text: str, width: int) -> str:
    """Return the parts of a line that fit; the most important ones are first.

    >>> _fit("documents   1/4 splits  6s left  kept 2,000 of 3,000", 36)
    'documents   1/4 splits  6s left'
    """
    if len(text) <= width:
        return text
    return text[: width + 2].rpartition("  ")[0] or text[:width]


def duration(seconds: float) -> str:
    """Return seconds in a readable form.

    >>> duration(5), duration(65), duration(3700)
    ('5s', '1m05s', '1h01m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
