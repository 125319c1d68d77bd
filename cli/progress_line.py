"""The progress of a run: one line rewritten on a terminal, one line every few seconds elsewhere.

Lines that name a store which does not answer come between them. For collectors of logs, all lines are JSON.
"""

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TextIO

import typer

from etl.cli.output import exit_code, quarantined
from etl.cli.text_width import cut_text
from etl.errors import TokenlakeError
from etl.visible_text import VisibleStream, one_line

if TYPE_CHECKING:
    from etl.job.progress import Progress
    from etl.lake.quarantine import Quarantined

_CLEAR = "\x1b[K"  # the rest of the line of a terminal
_TERMINAL_SECONDS = 0.1
_PLAIN_SECONDS = 5.0


class ProgressLine:
    """A context manager that writes the progress of a run to a stream and ends its last line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = VisibleStream.of(stream)
        self._is_terminal = stream.isatty()
        self._written = -float("inf")
        self._open = False  # whether the last line has no line end yet
        self._is_status = False  # whether that line is a status, which does not stay
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def update(self, progress: "Progress") -> None:
        """Show the progress of a step; its end is always shown."""
        now = time.monotonic()
        interval = _TERMINAL_SECONDS if self._is_terminal else _PLAIN_SECONDS
        if progress.done < progress.total and now - self._written < interval:
            return
        self._written = now
        with self._lock:
            self._rewrite(line(progress), is_status=False)
            if progress.done == progress.total:
                self._end()

    def status(self, text: str) -> None:
        """Show what the run is doing; on a terminal, the next line replaces it."""
        with self._lock:
            self._rewrite(text, is_status=True)

    def _rewrite(self, text: str, *, is_status: bool) -> None:
        self._is_status = is_status
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            shown = cut_text(text, width) if is_status else _fit(text, width)
            self._stream.write_code("\r")
            self._stream.write(one_line(shown))
            self._stream.write_code(_CLEAR)
            self._open = True
        else:
            self._stream.write(f"{one_line(text)}\n")
        self._stream.flush()

    def warn(self, text: str) -> None:
        """Write a warning as a separate line."""
        self.note(f"warning: {text}")

    def quarantined(self, notes: Sequence["Quarantined"]) -> None:
        """Write a line for each error by which parts of the input could not be read."""
        counts = Counter(note.cause for note in notes)
        for note in notes:
            more = counts.pop(note.cause, 0) - 1
            if more < 0:  # one like it has been written
                continue
            self.note(quarantined(note) + (f" (and {more:,} more like this)" if more else ""))

    def note(self, text: str) -> None:
        """Write a separate line."""
        with self._lock:
            self._end()
            self._stream.write(f"{one_line(text)}\n")
            self._stream.flush()

    def _end(self) -> None:
        if self._open:
            self._stream.write_code(f"\r{_CLEAR}" if self._is_status else "\n")
            self._open = False


class JsonLines:
    """A context manager that writes progress and events as one JSON object per line.

    Each has ``time`` (UTC), ``event`` (progress, status, note, warning, quarantined, waiting or error), and
    the fields of the event.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = VisibleStream.of(stream)
        self._written = -float("inf")
        self._lock = threading.Lock()
        self._waits = ExitStack()

    def __enter__(self) -> Self:
        from etl.storage.store_time_limit import reporting_waits

        self._waits.enter_context(reporting_waits(self.waiting))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Write an error that the user can fix, and exit as the text form does."""
        self._waits.close()
        if isinstance(error, TokenlakeError):
            self.event("error", what=error.what, where=error.where, hint=error.hint)
            raise typer.Exit(exit_code(error)) from error

    def update(self, progress: "Progress") -> None:
        """Write the progress of a step; at most one line every few seconds, and always its end."""
        now = time.monotonic()
        if progress.done < progress.total and now - self._written < _PLAIN_SECONDS:
            return
        self._written = now
        self.event("progress", **asdict(progress))

    def status(self, text: str) -> None:
        """Write what the run is doing."""
        self.event("status", text=text)

    def note(self, text: str) -> None:
        """Write a line of text."""
        self.event("note", text=text)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.event("warning", text=text)

    def quarantined(self, notes: Sequence["Quarantined"]) -> None:
        """Write the notes of the parts of the input that could not be read."""
        for note in notes:
            fields = asdict(note)
            del fields["time"]  # the time of the line is as good
            self.event("quarantined", **fields)

    def waiting(self, endpoint: str, seconds: float) -> None:
        """Write that a store does not answer."""
        self.event("waiting", endpoint=endpoint, seconds=round(seconds, 1))

    def event(self, event: str, **fields: Any) -> None:
        """Write an event with its fields."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = json.dumps({"time": now, "event": event, **fields}, default=str)
        with self._lock:
            self._stream.write(f"{text}\n")
            self._stream.flush()


class WaitingLines:
    """Lines that name a store which does not answer; at most one every few seconds for all threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = VisibleStream.of(stream)
        self._written = -float("inf")
        self._lock = threading.Lock()

    def write(self, endpoint: str, seconds: float) -> None:
        """Write a line unless one has just been written."""
        with self._lock:
            now = time.monotonic()
            if now - self._written < _PLAIN_SECONDS - 1:
                return
            self._written = now
            rewrites = self._stream.isatty()  # the line of the progress, which is written again
            self._stream.write_code("\r" if rewrites else "")
            self._stream.write(
                one_line(f"waiting for {endpoint}: no answer for {duration(seconds)}")
            )
            self._stream.write_code(f"{_CLEAR}\n" if rewrites else "\n")
            self._stream.flush()


def run_lines(stream: TextIO, log_format: str) -> ProgressLine | JsonLines:
    """Return what writes the progress of a run to a stream in a format."""
    return JsonLines(stream) if log_format == "json" else ProgressLine(stream)


def line(progress: "Progress") -> str:
    """Return the progress of a step as one line.

    >>> from etl.job.progress import Progress
    >>> line(Progress("documents", done=1, total=4, rows=3000, kept=2000, text_bytes=8_000_000, seconds=2.0))
    'documents   1/4 splits  6s left  kept 2,000 of 3,000  1,500 docs/s  4.0 MB/s'
    >>> line(Progress("documents", done=1, total=4, failed=1))
    'documents   1/4 splits  failed 1'
    """
    parts = [f"{progress.step:<11} {progress.done}/{progress.total} splits"]
    if progress.failed:
        parts.append(f"failed {progress.failed:,}")
    if progress.rows and progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    if progress.rows:
        parts.append(f"kept {progress.kept:,} of {progress.rows:,}")
    if progress.rows and (seconds := progress.working_seconds) > 0:
        parts.append(f"{progress.rows / seconds:,.0f} docs/s")
        parts.append(f"{progress.text_bytes / seconds / 1e6:,.1f} MB/s")
    return "  ".join(parts)


def _fit(text: str, width: int) -> str:
    """Return the parts of a line that fit; the most important ones are first.

    >>> _fit("documents   1/4 splits  6s left  kept 2,000 of 3,000", 36)
    'documents   1/4 splits  6s left'
    """
    if len(text) <= width:
        return text
    return text[: width + 2].rpartition("  ")[0] or text[:width]


def note_dashboard(client: Any, note: Callable[[str], None]) -> None:
    """Write the address of the dashboard of a Dask client, which small runs do not start."""
    from etl.compute.local_cluster import has_dashboard

    if has_dashboard(client):
        note(f"dashboard  {client.dashboard_link}")


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
