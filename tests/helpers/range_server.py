"""A server of one bucket, for clients of S3 and of the web, that may answer requests for ranges wrongly."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

Answer = tuple[int, str | None, bytes]
"""The status, the Content-Range and the body of a response."""


def right(content: bytes, start: int, stop: int) -> Answer:
    stop = min(stop, len(content))
    return 206, f"bytes {start}-{stop - 1}/{len(content)}", content[start:stop]


def _shifted(content: bytes, start: int, stop: int) -> Answer:
    """Answer with as many bytes as were requested, from another position."""
    stop = min(stop, len(content))
    first = start - 1 if start else 1
    body = content[first : first + stop - start]
    return 206, f"bytes {first}-{first + len(body) - 1}/{len(content)}", body


def _short(content: bytes, start: int, stop: int) -> Answer:
    return right(content, start, start + max(1, (min(stop, len(content)) - start) // 2))


def _no_header(content: bytes, start: int, stop: int) -> Answer:
    return 206, None, content[start:stop]


FAULTS: Mapping[str, Callable[[bytes, int, int], Answer]] = {
    "whole file": lambda content, start, stop: (200, None, content),
    "other range": _shifted,
    "short": _short,
    "no Content-Range": _no_header,
    "whole file as a range": lambda content, start, stop: right(content, 0, len(content)),
    "wrong length": lambda content, start, stop: (*right(content, start, stop)[:2], content),
}
"""Ways to answer a request for a range that is not the whole file."""


@dataclass
class RangeServer:
    """The server's endpoint, its objects by name, and how it answers."""

    endpoint: str
    objects: dict[str, bytes] = field(default_factory=dict)
    answer: Callable[[bytes, int, int], Answer] = right
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, name and range of each request."""


@contextmanager
def range_server() -> Iterator[RangeServer]:
    """Serve ``s3://bucket`` and ``http://HOST:PORT/bucket`` until the context ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        state = RangeServer(f"http://127.0.0.1:{server.server_port}")
        server.state = state
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        state: RangeServer = self.server.state
        name = unquote(urlsplit(self.path).path).removeprefix("/bucket/")
        content = state.objects.get(name)
        wanted = self.headers.get("Range")
        state.requests.append((self.command, name, wanted))
        if content is None:
            self._send((404, None, b""), None)
        elif wanted is None or self.command == "HEAD":
            self._send((200, None, content), content)
        else:
            first, last = wanted.removeprefix("bytes=").split("-")
            stop = int(last) + 1 if last else len(content)
            self._send(state.answer(content, int(first), stop), content)

    do_HEAD = do_GET  # noqa: N815 - named by the base class

    def _send(self, answer: Answer, content: bytes | None) -> None:
        status, content_range, body = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if content is not None:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Accept-Ranges", "bytes")
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the client refused the response
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
