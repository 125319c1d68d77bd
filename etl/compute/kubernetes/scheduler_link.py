"""`SchedulerLink`: a run's connections to the scheduler, which outlive its links through the API server."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Final

from etl.compute.kubernetes.api_failure import Failure
from etl.compute.kubernetes.link_relay import KEY_BYTES, greet
from etl.compute.kubernetes.outage import MAX_SECONDS, Outage
from etl.compute.kubernetes.resumable_stream import Link, LostLinkError, ResumableStream
from etl.errors import ClusterError, error_line

_GREET_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 35.0  # the other end sends a frame at least every ten
_LOOK_SECONDS: Final = 1.0
_END_SECONDS: Final = 5.0

OpenLink = Callable[[], AbstractAsyncContextManager[Link]]


@dataclass
class _Connection:
    """A connection of a program of this machine, and its key at the relay."""

    stream: ResumableStream
    key: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES))
    is_known: bool = False  # to the relay


class SchedulerLink:
    """Connects programs of this machine to the relay in the pod of a scheduler.

    When a link is lost, its connection stays open and continues over the next one: Dask sees a pause. After
    five minutes, or if the pod is gone, ``error`` says why, and all connections are closed.
    """

    def __init__(self, pod: str, open_link: OpenLink, outage: Outage) -> None:
        self.error: ClusterError | None = None
        self.server: asyncio.Server | None = None  # which calls ``serve``
        self._pod = pod
        self._open = open_link
        self._outage = outage
        self._serving: set[asyncio.Task[None] | None] = set()

    async def has_relay(self) -> bool:
        """Return whether the relay responds."""
        async with self._open() as link:
            with suppress(LostLinkError, TimeoutError):
                async with asyncio.timeout(_GREET_SECONDS):
                    await greet(link, os.urandom(KEY_BYTES), 0, is_new=False)
                return True
        return False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection of this machine until it ends."""
        task = asyncio.current_task()
        self._serving.add(task)
        connection = _Connection(ResumableStream(reader, writer))
        try:
            await self._carry(connection)
        finally:
            connection.stream.close()
            self._serving.discard(task)

    async def close(self) -> None:
        """Wait a moment until the relay knows that the connections, which Dask has closed, have ended."""
        if serving := {task for task in self._serving if task is not None}:
            await asyncio.wait(serving, timeout=_END_SECONDS)

    async def _carry(self, connection: _Connection) -> None:
        """Carry a connection over one link after another."""
        while self.error is None:
            reason = await self._attempt(connection)
            if reason is None or (connection.stream.is_closed_here and not connection.is_known):
                return
            pause = self._outage.fail(reason)
            if self._outage.seconds > MAX_SECONDS:
                self._give_up(
                    f"the scheduler was not reachable for {self._outage.seconds:.0f} seconds ({reason})",
                    "check the network and `kubectl cluster-info`, and run again: committed work is kept; "
                    "the driver of `etl submit` does not need the API server",
                )
            await asyncio.sleep(pause)

    def _give_up(self, what: str, hint: str) -> None:
        """Close all connections; before, stop to listen: Dask's client expects that it cannot connect."""
        self.error = self.error or ClusterError(what, where=f"pod {self._pod}", hint=hint)
        if self.server is not None:
            self.server.close()

    async def _attempt(self, connection: _Connection) -> str | None:
        """Carry a connection over a new link, and return why it was lost; None if the connection ended.

        A link that is silent is left behind: to close it may take as long as to use it.
        """
        loop = asyncio.get_running_loop()
        connection.stream.heard = loop.time()
        using = asyncio.create_task(self._use_link(connection))
        try:
            while self.error is None:
                await asyncio.wait([using], timeout=_LOOK_SECONDS)
                if using.done():
                    return using.result()
                if loop.time() - connection.stream.heard > _SILENT_SECONDS:
                    return f"no answer for {_SILENT_SECONDS:.0f}s"
        finally:
            using.cancel()
        return None

    async def _use_link(self, connection: _Connection) -> str | None:
        try:
            async with self._open() as link:
                return await self._use(link, connection)
        except Exception as error:  # noqa: BLE001 - of four libraries: each means that there is no link
            failure = Failure.of(error)
            if failure is not None and failure.kind() == "missing":
                self._give_up(
                    "the scheduler was lost, and with it the work in progress",
                    "run again: committed work is kept, and the rest is done then",
                )
            return error_line(error)

    async def _use(self, link: Link, connection: _Connection) -> str | None:
        """Do as ``_use_link``; an error that left the block of a link would be wrapped there."""
        stream = connection.stream
        try:
            async with asyncio.timeout(_GREET_SECONDS):
                confirmed = await greet(
                    link, connection.key, stream.received, is_new=not connection.is_known
                )
            if confirmed is None:  # the scheduler was started again
                return None
            connection.is_known = True
            self._outage.end()
            await stream.carry(link, confirmed)
        except (LostLinkError, TimeoutError) as error:
            return error_line(error)
        return None
