"""`Waiting`: report what is awaited, and ask the API server less often the more it returns."""

import re
import time
from typing import Final

from etl.compute.listener import Listener

_POLL_SECONDS: Final = 1.0
_MAX_POLL_SECONDS: Final = 10.0
_ITEMS_PER_SECOND: Final = 100  # on average, up to 1,000 items
_REPORT_SECONDS: Final = 10.0


class Waiting:
    """Reports what is awaited when it changes, and changed numbers every ten seconds."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._started = time.monotonic()
        self._last: tuple[str, float] = ("", 0.0)

    @property
    def seconds(self) -> float:
        """How long it has been waiting."""
        return time.monotonic() - self._started

    def report(self, what: str, note: str = "") -> None:
        """Report what is awaited, with a problem that may be the reason."""
        text = f"{what}: {note}" if note else what
        kind = re.sub(r"\d[\d,]*", "0", text)
        last, reported = self._last
        if kind != last or self.seconds - reported >= _REPORT_SECONDS:
            self._last = kind, self.seconds
            self._listener.note(f"waiting    {text} ({self.seconds:.0f}s)")

    def pause(self, num_items: int) -> None:
        """Wait before the next request, which will return about as many items."""
        seconds = min(num_items / _ITEMS_PER_SECOND, _MAX_POLL_SECONDS)
        time.sleep(max(seconds, _POLL_SECONDS))
