"""`LogFollower`: merge the lines of several logs as they arrive, also after an outage."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Final

_MAX_LINES: Final = 10_000  # that wait to be read
_MAX_FAILURES: Final = 60  # without a new line
_RETRY_SECONDS: Final = 1.0
_TIME: Final = re.compile(r"(\S{19})(?:\.(\d+))?\S*")
Line = tuple[str, str]
"""A line after the name of its pod."""
OpenLog = Callable[[str, str | None, str], AsyncIterator[str]]
"""Reads the log of a pod and a container since a time; each line starts with its time and a space."""


class LogFollower:
    """Reads logs in tasks of an event loop."""

    def __init__(self, open_log: OpenLog) -> None:
        self._open_log = open_log
        self._lines: asyncio.Queue[Line] = asyncio.Queue(_MAX_LINES)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        """Whether further lines may come."""
        return bool(self._tasks) or not self._lines.empty()

    async def add(self, pods: Mapping[str, str | None]) -> None:
        """Follow further pods, each with its container."""
        for pod, container in pods.items():
            self._tasks.add(asyncio.create_task(self._follow(pod, container)))

    async def _follow(self, pod: str, container: str | None) -> None:
        """Read a log to its end; after an outage, continue after the last line that was read."""
        import httpx
        import kr8s

        last, failures = "", 0
        while True:
            since = last
            try:
                async for text in self._open_log(pod, container, since):
                    time, _, line = text.partition(" ")
                    if not since or _order(time) > _order(since):
                        last, failures = time, 0
                        await self._lines.put((pod, line))
                return
            except (httpx.HTTPError, kr8s.ServerError, kr8s.APITimeoutError, OSError) as error:
                response = getattr(error, "response", None)
                is_refused = response is not None and response.status_code < 500
                if is_refused or failures == _MAX_FAILURES:
                    raise
            failures += 1
            await asyncio.sleep(_RETRY_SECONDS)

    async def read(self, seconds: float) -> list[Line]:
        """Return the lines that have arrived, or those that arrive next within a time.

        Raises the error of a log that cannot be read, also when it is called again.
        """
        for task in [task for task in self._tasks if task.done()]:
            task.result()
            self._tasks.discard(task)
        lines: list[Line] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                lines.append(await self._lines.get())
        while not self._lines.empty():
            lines.append(self._lines.get_nowait())
        return lines

    async def stop(self) -> None:
        """Follow no log any longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _order(time: str) -> tuple[str, str]:
    """Return a time by which times can be compared, whose fractions have no trailing zeros.

    >>> _order("2026-01-01T00:00:00.12Z") > _order("2026-01-01T00:00:00.1Z")
    True
    """
    match = _TIME.match(time)
    return (match[1], (match[2] or "").ljust(9, "0")) if match else ("", "")
