"""`Outage`: how long something has not been reachable, reported and limited."""

import time
from typing import Final

from etl.compute.listener import Listener

MAX_SECONDS: Final = 300.0
"""How long a run waits for an API server: a control plane with one server is updated in less; chosen here."""

_REPORT_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 30.0
_PAUSES: Final = (0.25, 0.5, 1.0, 2.0, 4.0)  # seconds between two attempts; then the last one


class Outage:
    """The time for which something cannot be reached: none, or since a first failure.

    >>> outage = Outage("the API server", Listener())
    >>> outage.fail("refused"), outage.fail("refused")
    (0.25, 0.5)
    >>> outage.has_settled
    False
    """

    def __init__(self, what: str, listener: Listener, *, server: "Outage | None" = None) -> None:
        self._what = what
        self._listener = listener
        self._server = server  # through which it is reached
        self._since: float | None = None
        self._lost = -float("inf")  # when there was no answer
        self._reported = -float("inf")
        self._failures = 0

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def has_settled(self) -> bool:
        """Whether it has been reachable for a while.

        An API server that has just started denies permissions and does not know all kinds.
        """
        return time.monotonic() - self._lost > _SETTLE_SECONDS

    def fail(self, reason: str, *, is_lost: bool = True) -> float:
        """Note a failure, and return the seconds until the next attempt; not ``is_lost``: it responds."""
        now = time.monotonic()
        if is_lost:
            self.note_lost()
        if self._since is None:
            self._since = now
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        self._failures += 1
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._listener.note(
                f"waiting    {self._what} does not respond ({reason}), {self.seconds:.0f}s"
            )
        return pause

    def note_lost(self) -> None:
        """Note that there was no answer."""
        self._lost = time.monotonic()
        if self._server is not None:
            self._server.note_lost()

    def end(self) -> None:
        """Note that it is reachable."""
        if self._since is not None:
            self._listener.note(f"waiting    {self._what} responds again after {self.seconds:.0f}s")
        self._since, self._failures, self._reported = None, 0, -float("inf")
