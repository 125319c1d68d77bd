"""`Waiting`: report what is awaited."""

from etl.compute.listener import Listener


class Waiting:
    """Reports what is awaited: when it changes, and every ten seconds."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._last: tuple[str, float] = ("", 0.0)

    def for_(self, what: str, state: str, seconds: float, note: str) -> None:
        """Report a state of what is awaited, with a note."""
        text = f"{state}: {note}" if note else state
        last, reported = self._last
        if text != last or seconds - reported >= 10:
            self._last = text, seconds
            self._listener.note(f"waiting    {what} {text} ({seconds:.0f}s)")
