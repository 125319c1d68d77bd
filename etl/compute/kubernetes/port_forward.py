"""Forward ports of this machine to ports of a pod, over WebSockets of the API server.

The PortForward of kr8s 0.20.15 is not used: it sends requests without a pause when a pod is gone, prints a
traceback when a client is lost, and from Python 3.12 does not end while a connection is open
(``tests/k8s/test_port_forward.py`` has these cases).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from typing import TYPE_CHECKING, TypeVar

from etl.compute.kubernetes.loop_thread import LoopThread
from etl.compute.kubernetes.resumable_stream import Link
from etl.errors import ClusterError, error_line

if TYPE_CHECKING:
    import kr8s

_CHUNK = 1 << 18
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Result = TypeVar("Result")


@asynccontextmanager
async def open_port(
    api: "kr8s.asyncio.Api", namespace: str, pod: str, port: int
) -> AsyncIterator[Link]:
    """Connect to a port of a pod.

    The first message of both channels is the port; channel 0 then has data, channel 1 an error.
    """
    opening = api.open_websocket(
        namespace=namespace, url=f"pods/{pod}/portforward", params={"ports": str(port)}
    )
    async with opening as websocket:
        seen: set[int] = set()

        async def read() -> bytes:
            while True:
                message = await websocket.receive_bytes()
                channel = message[0]
                if channel in seen and channel == 1:
                    raise OSError(message[1:].decode(errors="replace"))
                if channel in seen:
                    return bytes(message[1:])
                seen.add(channel)

        async def send(data: bytes) -> None:
            await websocket.send_bytes(b"\x00" + data)

        yield Link(lambda: _as_os_error(read()), lambda data: _as_os_error(send(data)))


async def copy(
    opening: AbstractAsyncContextManager[Link],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Copy the bytes of a connection to a pod and back until one of them ends, then close both.

    The client sees that its connection is closed, whatever has failed.
    """
    with suppress(Exception, asyncio.CancelledError), closing(writer):
        async with opening as link, asyncio.TaskGroup() as both:
            both.create_task(_send(reader, link))
            both.create_task(_receive(link, writer))


@contextmanager
def listening(loop: LoopThread, serve: Serve, port: int = 0) -> Iterator[asyncio.Server]:
    """Serve connections to a port of this machine, and yield the server; 0 is any free port.

    Raises ClusterError if the port cannot be used.
    """
    try:
        server = loop.run(asyncio.start_server(serve, host="127.0.0.1", port=port))
    except OSError as error:
        raise ClusterError(
            f"the port {port} of this machine cannot be used ({error_line(error)})",
            hint="choose another one with --port",
        ) from error
    try:
        yield server
    finally:
        loop.call(server.close)


def port_of(server: asyncio.Server) -> int:
    """Return the port at which a server listens."""
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _send(reader: asyncio.StreamReader, link: Link) -> None:
    while data := await reader.read(_CHUNK):
        await link.send(data)
    raise EOFError  # which also ends the other direction


async def _receive(link: Link, writer: asyncio.StreamWriter) -> None:
    while data := await link.read():
        writer.write(data)
        await writer.drain()
    raise EOFError


async def _as_os_error(action: Awaitable[Result]) -> Result:
    """Convert the errors of a WebSocket, which are of four libraries."""
    try:
        return await action
    except Exception as error:
        raise OSError(error_line(error)) from error
