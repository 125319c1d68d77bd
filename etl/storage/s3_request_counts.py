"""Count the requests that this process sends to S3, by the classes of its price list, and their bytes.

Only the client of S3 has hooks for every request, including repeated requests and listings. Requests to
other stores are not counted, nor are requests of delta-rs, which reads the logs of input tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

_WRITES: Final = ("Put", "Copy", "Post", "List", "Create", "Upload", "Complete")
_FREE: Final = ("Delete", "Abort")


@dataclass(frozen=True)
class StoreUsage:
    """Requests to S3 and their bytes: ``write`` requests cost as PUT and LIST do, ``read`` as GET."""

    read_requests: int = 0
    write_requests: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def __add__(self, other: "StoreUsage") -> "StoreUsage":
        return StoreUsage(
            self.read_requests + other.read_requests,
            self.write_requests + other.write_requests,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )

    def __sub__(self, other: "StoreUsage") -> "StoreUsage":
        return StoreUsage(
            self.read_requests - other.read_requests,
            self.write_requests - other.write_requests,
            self.read_bytes - other.read_bytes,
            self.written_bytes - other.written_bytes,
        )


class _Counter:
    """The sums of this process; the client's threads add to them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.total = StoreUsage()

    def add(self, usage: StoreUsage) -> None:
        with self._lock:
            self.total += usage


_counter = _Counter()


def store_usage() -> StoreUsage:
    """Return what this process has sent to S3 and received since it started."""
    return _counter.total


def counting_session() -> Any:
    """Return a new session for a client of S3, which counts its requests."""
    from aiobotocore.session import AioSession

    session = AioSession()
    session.register("before-send.s3", _count_request)
    session.register("after-call.s3", _count_answer)
    return session


def _count_request(request: Any, event_name: str, **_others: Any) -> None:
    operation = event_name.rpartition(".")[2]
    if operation.startswith(_FREE):
        return
    is_write = operation.startswith(_WRITES)
    sent = int(request.headers.get("Content-Length", 0) or 0)
    _counter.add(StoreUsage(int(not is_write), int(is_write), 0, sent))


def _count_answer(parsed: Mapping[str, Any], event_name: str, **_others: Any) -> None:
    if event_name.endswith(".GetObject"):
        _counter.add(StoreUsage(read_bytes=int(parsed.get("ContentLength", 0))))
