"""The end of a run's link in the pod of the scheduler: it keeps the run's connections while the link is lost.

It is a preload of ``dask scheduler``. A forwarded port ends with the API server; without a relay, Dask's
scheduler would then forget all work of the run. Like a forwarded port, it carries encrypted bytes and holds
no certificates. The first frame of a link names a connection: HELLO has the bytes received so far, and is
followed by the key, and by 1 if the connection is new.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from etl.compute.kubernetes.outage import MAX_SECONDS
from etl.compute.kubernetes.resumable_stream import Kind, Link, LostLinkError, ResumableStream

if TYPE_CHECKING:
    from distributed import Scheduler

LINK_PORT: Final = 8785
KEY_BYTES: Final = 16
_READ: Final = 1 << 18
_KEPT_SECONDS: Final = MAX_SECONDS + 30.0  # without a link: a little longer than the run tries


async def dask_setup(scheduler: "Scheduler") -> None:
    """Listen in the process of a scheduler, until it ends."""
    await Relay(lambda: scheduler.address).listen(LINK_PORT)


async def greet(link: Link, key: bytes, received: int, *, is_new: bool) -> int | None:
    """Begin or resume a connection, and return the bytes that the relay has received; None if it ended."""
    await link.send_frame(Kind.HELLO, received, key + bytes([is_new]))
    kind, number = await link.take_frame()
    return number if kind is Kind.HELLO else None


class _Connection:
    """A connection to the scheduler, which one link at a time carries."""

    def __init__(self, stream: ResumableStream) -> None:
        self.stream = stream
        self.expiry: asyncio.TimerHandle | None = None
        self._link: asyncio.WriteTransport | None = None
        self._is_carried = asyncio.Lock()

    async def carry(self, link: Link, confirmed: int, transport: asyncio.WriteTransport) -> None:
        """Carry bytes over a link, also if the link before has not noticed yet that it is lost."""
        if self._link is not None:
            self._link.abort()
        self._link = transport
        async with self._is_carried:
            if self.expiry is not None:
                self.expiry.cancel()
            await link.send_frame(Kind.HELLO, self.stream.received)
            await self.stream.carry(link, confirmed)


class Relay:
    """Relays connections from links to the scheduler that is at an address then."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._address = address
        self._connections: dict[bytes, _Connection] = {}  # by key

    async def listen(self, port: int, host: str | None = None) -> asyncio.Server:
        """Listen for links."""
        return await asyncio.start_server(self.serve, host, port)

    def close(self) -> None:
        """Close all connections to the scheduler."""
        for connection in self._connections.values():
            connection.stream.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection over a new link."""

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        with suppress(LostLinkError), closing(writer):
            await self._serve(Link(lambda: reader.read(_READ), send), writer.transport)

    async def _serve(self, link: Link, transport: asyncio.WriteTransport) -> None:
        kind, confirmed = await link.take_frame()
        key, is_new = await link.take(KEY_BYTES), await link.take(1)
        connection = self._connections.get(key)
        if connection is None and kind is Kind.HELLO and any(is_new):
            connection = await self._open(key)
        if connection is None:
            await link.send_frame(Kind.UNKNOWN)
            return
        try:
            await connection.carry(link, confirmed, transport)
        except LostLinkError:
            if not connection.stream.has_delivered_all:
                loop = asyncio.get_running_loop()
                connection.expiry = loop.call_later(_KEPT_SECONDS, self._forget, key)
                return
        self._forget(key)

    async def _open(self, key: bytes) -> _Connection | None:
        parts = urlsplit(self._address())
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            return None
        connection = self._connections[key] = _Connection(ResumableStream(reader, writer))
        return connection

    def _forget(self, key: bytes) -> None:
        self._connections.pop(key).stream.close()
