"""An HTTP proxy in front of an object store that injects faults by a seeded schedule.

    with faulty(s3_endpoint, seeded(7, share=0.3)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)

Whether a request fails depends on the seed, on the request and on how often it was repeated, so that the
order of threads does not matter. ``proxy.requests`` lists the requests with their faults.

The proxy runs in threads of this process. delta-rs may hold the interpreter's lock while it waits for a
response (1.6 does in ``is_deltatable``), so open Delta tables through the proxy from another process.
"""

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import s3fs

Fault = Literal["500", "503", "409", "501", "stall", "cut", "slow", "drop", "unconditional"]
"""Status 500 or 503; the errors ConditionalRequestConflict (409) and NotImplemented (501) of S3; no response;
only half of the response; the response in eight parts with pauses; no response although the request is
executed; a request that is executed without If-None-Match."""

FAULTS: tuple[Fault, ...] = ("500", "503", "stall", "cut", "slow")
_S3_ERRORS = {"409": "ConditionalRequestConflict", "501": "NotImplemented"}


@dataclass(frozen=True)
class Request:
    """A request that the proxy received, and the fault that it injected."""

    method: str
    path: str
    range: str | None
    nth: int  # number of equal requests before it
    fault: Fault | None = None


Schedule = Callable[[Request], Fault | None]


def seeded(seed: int, *, share: float, kinds: Sequence[Fault] = FAULTS, most: int = 3) -> Schedule:
    """Return a schedule that fails a share of the requests, and each at most ``most`` times."""

    def fault(request: Request) -> Fault | None:
        path = request.path.lstrip("/").partition("/")[
            2
        ]  # without the bucket, which has a random name
        key = f"{seed} {request.method} {path} {request.range} {request.nth}"
        rng = random.Random(key)
        return rng.choice(kinds) if request.nth < most and rng.random() < share else None

    return fault


def always(kind: Fault, *, path: str = "") -> Schedule:
    """Return a schedule that fails every request whose path contains ``path``."""
    return lambda request: kind if path in request.path else None


@dataclass
class Proxy:
    """A running proxy: its URL, its schedule, and the requests that it has received."""

    endpoint: str
    schedule: Schedule  # may be replaced while the proxy runs
    requests: list[Request] = field(default_factory=list)

    def gets(self, ending: str) -> list[Request]:
        """Return the GET requests for paths with this ending."""
        return [r for r in self.requests if r.method == "GET" and r.path.endswith(ending)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, upstream: str, schedule: Schedule, pause_s: float, stall_s: float | None
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.pause_s = pause_s
        self.stall_s = stall_s
        self.stopped = threading.Event()
        self.proxy = Proxy(f"http://127.0.0.1:{self.server_address[1]}", schedule)
        self._counts: Counter[tuple[str, str, str | None]] = Counter()
        self._lock = threading.Lock()

    def note(self, method: str, path: str, part: str | None) -> Fault | None:
        """Record a request and return the fault to inject."""
        key = (method, path, part)
        with self._lock:
            request = Request(*key, self._counts[key])
            self._counts[key] += 1
            fault = self.proxy.schedule(request)
            self.proxy.requests.append(replace(request, fault=fault))
        return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client has disconnected
            self.close_connection = True

    def forward(self) -> None:
        fault = self.server.note(self.command, self.path, self.headers.get("Range"))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault == "stall":
            self.server.stopped.wait(self.server.stall_s)
            self.close_connection = True
        elif fault in ("500", "503"):
            self.answer(int(fault), [], b"")
        elif fault in _S3_ERRORS:
            message = f"<Error><Code>{_S3_ERRORS[fault]}</Code><Message>Injected</Message></Error>"
            self.answer(int(fault), [("Content-Type", "application/xml")], message.encode())
        elif fault == "unconditional" and "If-None-Match" in self.headers:
            # The header is signed: send another request instead of this one without it.
            store = s3fs.S3FileSystem(endpoint_url=f"http://{self.server.upstream}")
            store.pipe_file(unquote(self.path), body)
            self.answer(200, [("ETag", '"1"')], b"")
        else:
            with closing(http.client.HTTPConnection(self.server.upstream)) as connection:
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():  # including Host, which is signed
                    connection.putheader(name, value)
                connection.endheaders(body)
                response = connection.getresponse()
                headers, content = response.getheaders(), response.read()
            if fault == "drop":
                self.close_connection = True
            else:
                self.answer(response.status, headers, content, fault)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815 - names of http.server

    def answer(
        self, status: int, headers: list[Any], body: bytes, fault: Fault | None = None
    ) -> None:
        self.send_response_only(status)
        dropped = {"transfer-encoding", "connection"}
        if self.command != "HEAD":
            dropped.add("content-length")
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            if name.lower() not in dropped:
                self.send_header(name, value)
        self.end_headers()
        if fault == "cut":
            body, self.close_connection = body[: len(body) // 2], True
        step = len(body) // 8 + 1 if fault == "slow" else max(len(body), 1)
        for start in range(0, len(body), step):
            if fault == "slow":
                self.server.stopped.wait(self.server.pause_s / 8)
            self.wfile.write(body[start : start + step])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def faulty(
    upstream: str, schedule: Schedule, *, pause_s: float = 0.4, stall_s: float | None = None
) -> Iterator[Proxy]:
    """Run a proxy in front of ``upstream``.

    A slow response takes ``pause_s``; a stalled one takes ``stall_s``, or until the block ends.
    """
    with _Server(upstream, schedule, pause_s, stall_s) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.proxy
        finally:
            server.stopped.set()
            server.shutdown()
            thread.join()
