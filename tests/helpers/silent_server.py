"""Servers that never answer: one accepts connections, one does not even that."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def silent_server(*, accepts: bool) -> Iterator[str]:
    """Listen on a loopback port without ever sending a byte, and yield the endpoint."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(128 if accepts else 0)
        if accepts:
            stopped = threading.Event()
            thread = threading.Thread(target=_accept, args=(server, stopped))
            thread.start()
            stack.callback(thread.join)
            stack.callback(stopped.set)
        else:
            for _ in range(8):  # they fill its queue, and so the next one waits
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def _accept(server: socket.socket, stopped: threading.Event) -> None:
    server.settimeout(0.1)
    with ExitStack() as connections:
        while not stopped.is_set():
            try:
                connections.enter_context(server.accept()[0])
            except TimeoutError:
                continue
