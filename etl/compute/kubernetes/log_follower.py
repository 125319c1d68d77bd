"""`LogFollower`: merge the lines of several logs as they arrive."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Final

_MAX_LINES: Final = 10_000  # that wait to be read
Line = tuple[str, str]
"""A line after the name of its pod."""


class LogFollower:
    """Reads logs in tasks of an event loop; ``open_log`` reads the log of a pod and a container."""

    def __init__(self, open_log: Callable[[str, str | None], AsyncIterator[str]]) -> None:
        self._open_log = open_log
        self._lines: asyncio.Queue[Line] = asyncio.Queue(_MAX_LINES)
        self._tasks: dict[asyncio.Task[None], tuple[str, str | None]] = {}
        self._counts: Counter[str] = Counter()  # lines of each pod

    @property
    def is_active(self) -> bool:
        """Whether further lines may come."""
        return bool(self._tasks) or not self._lines.empty()

    async def add(self, pods: Mapping[str, str | None]) -> None:
        """Follow further pods, each with its container."""
        for pod, container in pods.items():
            self._start(pod, container)

    def _start(self, pod: str, container: str | None) -> None:
        task = asyncio.create_task(self._follow(pod, container))
        self._tasks[task] = pod, container

    async def _follow(self, pod: str, container: str | None) -> None:
        known, number = self._counts[pod], 0
        async for line in self._open_log(pod, container):
            number += 1
            if number > known:
                self._counts[pod] = number
                await self._lines.put((pod, line))

    async def read(self, seconds: float) -> list[Line]:
        """Return the lines that have arrived, or those that arrive next within a time.

        Raises the error of a log that could not be read, after its lines were returned; the next call
        continues it.
        """
        for task in [task for task in self._tasks if task.done()]:
            log = self._tasks.pop(task)
            if task.exception() is not None:
                self._start(*log)
            task.result()
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
