"""`ResumableStream`: a connection that outlives the links that carry it.

Each end keeps what it has sent until the other end has confirmed it. After a link is lost, both continue over
the next one where the other end is. A link carries frames: a kind, a number, and for data that many bytes.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from typing import Final

_CHUNK: Final = 1 << 18
_MAX_KEPT: Final = 1 << 26  # bytes that are not confirmed; then the program at this end waits
_PING_SECONDS: Final = 10.0
_HEADER: Final = struct.Struct(">BQ")


class LostLinkError(Exception):
    """A link does not carry bytes any more."""


class Kind(IntEnum):
    """What a frame is, and its number."""

    DATA = 0  # the number of bytes that follow
    CONFIRM = 1  # the number of bytes received since the connection began
    PING = 2  # 0; the other end confirms
    END = 3  # 0; the program at the other end has closed the connection
    HELLO = 4  # the first frame of a link: see `link_relay`
    UNKNOWN = 5  # 0; the other end does not have this connection


class Link:
    """A way to the other end: ``read`` returns some bytes, none at its end; both raise OSError."""

    def __init__(
        self, read: Callable[[], Awaitable[bytes]], send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self.read = read
        self._send = send
        self._rest = bytearray()

    async def take(self, count: int) -> bytes:
        """Return the next bytes, exactly so many; raise LostLinkError if there are fewer."""
        while len(self._rest) < count:
            try:
                data = await self.read()
            except OSError as error:
                raise LostLinkError(str(error)) from error
            if not data:
                raise LostLinkError("the other end is gone")
            self._rest += data
        taken = bytes(self._rest[:count])
        del self._rest[:count]
        return taken

    async def take_frame(self) -> tuple[Kind, int]:
        """Return the kind and number of the next frame."""
        kind, number = _HEADER.unpack(await self.take(_HEADER.size))
        try:
            return Kind(kind), number
        except ValueError as error:
            raise LostLinkError(f"{kind} is not a kind of frame") from error

    async def send(self, data: bytes) -> None:
        """Send bytes; raise LostLinkError if they cannot be sent."""
        try:
            await self._send(data)
        except OSError as error:
            raise LostLinkError(str(error)) from error

    async def send_frame(self, kind: Kind, number: int = 0, data: bytes = b"") -> None:
        """Send a frame."""
        await self.send(_HEADER.pack(kind, number) + data)


class ResumableStream:
    """One end of a connection between two programs: the one at this end is read and written."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received = 0
        self.heard = 0.0  # when the last frame came, by the clock of the event loop
        self._reader, self._writer = reader, writer
        self._kept = bytearray()
        self._confirmed = 0  # bytes that the other end has, which precede those kept
        self._is_closed_here = self._is_over = self._is_asked = False
        self._changed, self._has_room = asyncio.Event(), asyncio.Event()
        self._filling = asyncio.create_task(self._fill())

    @property
    def is_closed_here(self) -> bool:
        """Whether the program at this end has closed the connection."""
        return self._is_closed_here

    @property
    def has_delivered_all(self) -> bool:
        """Whether the connection is closed and the other end has all its bytes."""
        return self._is_closed_here and not self._kept

    def close(self) -> None:
        """Close the connection to the program at this end."""
        self._filling.cancel()
        self._writer.close()

    async def carry(self, link: Link, confirmed: int) -> None:
        """Carry bytes both ways until the connection ends; the other end has ``confirmed`` bytes.

        Raises LostLinkError if the link is lost.
        """
        self.heard = asyncio.get_running_loop().time()
        self._confirm(confirmed)
        both = [asyncio.create_task(task) for task in (self._send(link), self._receive(link))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in both:
                task.cancel()
            ends = await asyncio.gather(*both, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not self._is_over:
                raise end

    async def _fill(self) -> None:
        """Keep what the program at this end sends, until it closes its connection."""
        with suppress(OSError):
            while data := await self._reader.read(_CHUNK):
                self._kept += data
                self._changed.set()
                while len(self._kept) > _MAX_KEPT:
                    self._has_room.clear()
                    await self._has_room.wait()
        self._is_closed_here = True
        self._changed.set()

    async def _send(self, link: Link) -> None:
        sent, reported, has_said_end = self._confirmed, self.received, False
        while not self._is_over:
            self._changed.clear()
            if self._is_asked or self.received != reported:
                self._is_asked, reported = False, self.received
                await link.send_frame(Kind.CONFIRM, reported)
            start = sent - self._confirmed
            if data := bytes(self._kept[start : start + _CHUNK]):
                sent += len(data)
                await link.send_frame(Kind.DATA, len(data), data)
            elif self._is_closed_here and not has_said_end:
                has_said_end = True
                await link.send_frame(Kind.END)
            else:
                await self._wait_for_change(link)
        await link.send_frame(Kind.END)

    async def _wait_for_change(self, link: Link) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), _PING_SECONDS)
        except TimeoutError:
            await link.send_frame(Kind.PING)

    async def _receive(self, link: Link) -> None:
        while not self._is_over:
            kind, number = await link.take_frame()
            self.heard = asyncio.get_running_loop().time()
            if kind is Kind.DATA:
                data = await link.take(number)
                self._writer.write(data)
                self.received += number
                self._changed.set()
                with suppress(OSError):  # the program is gone, which `_fill` reports
                    await self._writer.drain()
            elif kind is Kind.CONFIRM:
                self._confirm(number)
            elif kind is Kind.PING:
                self._is_asked = True
            elif kind is Kind.END:
                self._is_over = True
            self._changed.set()

    def _confirm(self, number: int) -> None:
        del self._kept[: number - self._confirmed]
        self._confirmed = number
        self._has_room.set()
