"""What commands write to stderr: the progress of a run as text or as JSON for collectors of logs."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

import typer

from etl.cli.output import exit_code, quarantined
from etl.cli.stops import stop_of
from etl.compute.listener import Listener, Progress
from etl.compute.print_listener import PrintListener
from etl.errors import TokenlakeError
from etl.visible_text import VisibleStream

if TYPE_CHECKING:
    from etl.lake.quarantine import Quarantined

_SECONDS: Final = 5.0  # between two lines of progress


class JsonLines(Listener):
    """A context manager that writes progress and events as one JSON object per line.

    Each has ``time`` (UTC), ``event`` (progress, status, note, warning, quarantined, waiting or error), and
    the fields of the event.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = VisibleStream.of(stream)
        self._written = -float("inf")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Write an error that the user can fix, and exit as the text form does."""
        if isinstance(error, TokenlakeError):
            self.event("error", what=error.what, where=error.where, hint=error.hint)
            raise typer.Exit(exit_code(error)) from error

    def progress(self, progress: Progress) -> None:
        """Write the progress of a step; at most one line every few seconds, and always its end."""
        now = time.monotonic()
        if progress.done < progress.total and now - self._written < _SECONDS:
            return
        self._written = now
        self.event("progress", **asdict(progress))

    def status(self, text: str) -> None:
        """Write what the run is doing."""
        self.event("status", text=text)

    def note(self, text: str) -> None:
        """Write a line of text."""
        self.event("note", text=text)

    def warning(self, text: str) -> None:
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


@contextmanager
def run_lines(stream: TextIO, log_format: str) -> Iterator[PrintListener | JsonLines]:
    """Yield what writes the progress of a run to a stream in a format; an interrupted run can continue."""
    from etl.storage.store_time_limit import reporting_waits

    with JsonLines(stream) if log_format == "json" else PrintListener(stream) as listener:
        try:
            with reporting_waits(listener.waiting):
                yield listener
        except KeyboardInterrupt as interrupt:
            word, code = stop_of(interrupt)
            listener.warning(f"{word}: commits are kept; run the same command to continue")
            raise typer.Exit(code) from None


def show_quarantined(listener: Listener, notes: Sequence["Quarantined"]) -> None:
    """Write a line for each error by which parts of the input could not be read; as JSON, for each part."""
    if isinstance(listener, JsonLines):
        listener.quarantined(notes)
        return
    counts = Counter(note.cause for note in notes)
    for note in notes:
        more = counts.pop(note.cause, 0) - 1
        if more < 0:  # one like it has been written
            continue
        listener.note(quarantined(note) + (f" (and {more:,} more like this)" if more else ""))
