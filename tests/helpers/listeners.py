"""Listeners that keep what they are given, or call a function."""

from collections.abc import Callable

from distributed import Client

from etl.compute.listener import Listener, Progress


class Recorder(Listener):
    """Keeps all lines and the progress."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seen: list[Progress] = []

    def status(self, text: str) -> None:
        """Keep a line; notes and warnings are statuses, too."""
        self.lines.append(text)

    def progress(self, progress: Progress) -> None:
        """Keep the progress."""
        self.seen.append(progress)


class Calls(Listener):
    """Calls functions."""

    def __init__(
        self,
        *,
        note: Callable[[str], object] | None = None,
        progress: Callable[[Progress], object] | None = None,
        connected: Callable[[Client], object] | None = None,
    ) -> None:
        self._note = note
        self._progress = progress
        self._connected = connected

    def note(self, text: str) -> None:
        """Call the function of notes."""
        if self._note is not None:
            self._note(text)

    def progress(self, progress: Progress) -> None:
        """Call the function of progress."""
        if self._progress is not None:
            self._progress(progress)

    def connected(self, client: Client) -> None:
        """Call the function of clients."""
        if self._connected is not None:
            self._connected(client)
