"""The HTTPS server of the stand-in kubelet, which the API server asks for logs and port-forwards.

Port-forwards are over WebSockets, as kr8s asks for them; kubectl asks Kubernetes 1.20 for SPDY.
"""

import asyncio
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

from aiohttp import WSMsgType, web

from tests.k8s.lab.pod import Pod

_PROTOCOL = "v4.channel.k8s.io"
Find = Callable[[str, str], Pod | None]


async def serve(certificate: Path, find: Find) -> tuple[web.AppRunner, int]:
    """Start the server on a free port of loopback, and return it with the port."""

    async def logs(request: web.Request) -> web.StreamResponse:
        return await _logs(request, _pod(request, find))

    async def port_forward(request: web.Request) -> web.StreamResponse:
        return await _port_forward(request, _pod(request, find))

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    app.router.add_get("/portForward/{namespace}/{pod}", port_forward)
    app.router.add_get("/portForward/{namespace}/{pod}/{uid}", port_forward)
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    return runner, int(runner.addresses[0][1])


def _pod(request: web.Request, find: Find) -> Pod:
    pod = find(request.match_info["namespace"], request.match_info["pod"])
    if pod is None:
        raise web.HTTPNotFound
    return pod


async def _logs(request: web.Request, pod: Pod) -> web.StreamResponse:
    name = request.match_info["container"]
    path = next((run.log for run in pod.runs if run.spec["name"] == name), None)
    if path is None or not path.exists():
        raise web.HTTPNotFound
    response = web.StreamResponse()
    await response.prepare(request)
    follow = request.query.get("follow") == "true"
    with path.open("rb") as file:
        if lines := request.query.get("tailLines"):
            await response.write(b"".join(file.read().splitlines(keepends=True)[-int(lines) :]))
        stamp = b"2000-01-01T00:00:00Z " if request.query.get("timestamps") == "true" else b""
        while True:
            is_over = not follow or pod.stopped.is_set() or _has_ended(pod)
            data = file.readline()
            if data.endswith(b"\n") or (data and is_over):
                await response.write(stamp + data)
            elif is_over:
                break
            else:
                file.seek(-len(data), os.SEEK_CUR)  # a line that is not complete
                await asyncio.sleep(0.2)
    return response


def _has_ended(pod: Pod) -> bool:
    return all(run.running is None and not run.waiting[0] for run in pod.runs)


async def _port_forward(request: web.Request, pod: Pod) -> web.StreamResponse:
    """Connect a WebSocket to a port: channel 0 has its data, channel 1 errors, each after its number."""
    port = int(request.query.get("port") or request.query["ports"])
    socket = web.WebSocketResponse(protocols=[_PROTOCOL])
    await socket.prepare(request)
    for channel in (0, 1):
        await socket.send_bytes(bytes([channel]) + struct.pack("<H", port))
    try:
        reader, writer = await asyncio.open_connection(pod.address, port)
    except OSError as error:
        await socket.send_bytes(b"\x01" + str(error).encode())
        await socket.close()
        return socket

    async def send() -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await socket.send_bytes(b"\x00" + data)
        await socket.close()

    sender = asyncio.create_task(send())
    async for message in socket:
        if message.type == WSMsgType.BINARY and message.data[:1] == b"\x00":
            writer.write(message.data[1:])
            await writer.drain()
    writer.close()
    sender.cancel()
    return socket
