"""Read ahead in a remote table: threads fetch request groups in the order lanes need them.

Each lane reads its request groups from front to back. When a lane takes one, the budget that this frees goes
to the lanes that will run out first. All lanes advance at the same rate, so these are the lanes whose
requests end earliest in their share of the stream. A request group that is needed but that no thread has
started is fetched by the caller, so the order of requests cannot cause a deadlock.

One thread takes request groups; the other threads only fetch.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.errors import LoaderError
from etl.loader.fetch.range_requests import VERIFY, Ranges, read_footer
from etl.loader.fetch.request_groups import RequestGroups
from etl.loader.fetch.row_group_files import (
    MAX_FOOTERS,
    FetchedRange,
    Lanes,
    LocalFiles,
    OpenRowGroup,
)
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochStream, LanePlan

# Four requests of a few MB run at once: one stream of an object store delivers about 50 to 90 MB/s.
_THREADS = 4
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Fetched:
    """A request group in memory: its bytes, and the footer of its file."""

    request_group: int
    span: FetchedRange
    footer: pq.FileMetaData


class _Request(NamedTuple):
    """A request group that is fetched, or waits to be fetched, by a thread."""

    request_group: int
    groups: range  # its row groups in the lane
    future: "Future[_Fetched]"


_Jobs = SimpleQueue[_Request | None]  # None ends a thread


def open_lanes(index: TableIndex, plan: LanePlan, stream: EpochStream) -> Lanes:
    """Return the source of files for the lanes of an epoch: local files, or read-ahead."""
    return LocalFiles(index) if index.remote is None else ReadAhead(index, plan, stream)


class ReadAhead:
    """Read-ahead of the request groups of an epoch, for all lanes of a reader.

    ``_free_bytes`` is the part of the budget that no request occupies. A request occupies it from the moment
    it is queued until its lane takes or skips the request group. The budget and the lanes belong to the
    thread that takes request groups. The fetching threads share with it the job queue, the futures and,
    under ``_lock``, the footers.
    """

    def __init__(self, index: TableIndex, plan: LanePlan, stream: EpochStream) -> None:
        remote = index.remote
        assert remote is not None
        self._index = index
        self._plan = plan
        self._stream = stream
        self._request_groups = RequestGroups.of(index, plan, remote.request_bytes)
        self._ranges = Ranges(remote)
        self._free_bytes = remote.ahead_bytes
        self._lanes: list[RemoteLane] = []
        self._jobs: _Jobs = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._footers: OrderedDict[str, Future[pq.FileMetaData]] = OrderedDict()
        self._lock = threading.Lock()  # guards the footers

    def lane(self, number: int) -> "RemoteLane":
        """Return the opener of the row groups of a lane."""
        stream = self._stream
        start, stop = self._plan.lane_span(number)
        indices = stream.group_indices(start, stop)
        groups = stream.groups[indices.start : indices.stop]
        group_ends = np.cumsum(self._index.group_tokens[groups], dtype=np.int64)
        request_groups = self._request_groups.containing(groups)
        is_first = np.diff(request_groups, prepend=-1) != 0
        is_last = np.diff(request_groups, append=-1) != 0
        ends = group_ends[is_last] - (start - stream.start(indices.start))
        bounds = np.stack([groups[is_first], groups[is_last] + 1], axis=1)
        lane = RemoteLane(self._index, self, request_groups[is_last], bounds, ends)
        self._lanes.append(lane)
        return lane

    def request_group_of(self, group: int) -> int:
        """Return the request group that holds a row group."""
        return int(self._request_groups.containing(np.array([group]))[0])

    def take(self, lane: "RemoteLane", request_group: int) -> _Fetched:
        """Return a request group to a lane and drop the lane's requests before it.

        Waits for the thread that fetches the request group, or fetches it here if no thread has started.
        """
        future = self._remove_requests(lane, request_group)
        if future is None:
            # It is fetched here: read ahead from the next one on.
            lane.continue_after(request_group)
        self.request_ahead()
        if future is None or future.cancel():  # cancel fails once a thread has started
            return self._fetch(request_group, lane.row_groups(request_group))
        return future.result()

    def _remove_requests(self, lane: "RemoteLane", request_group: int) -> "Future[_Fetched] | None":
        """Remove a lane's requests up to one for a request group, and release their budget.

        Returns the future of that request and cancels those before it. Without such a request, removes all
        requests of the lane and returns None.
        """
        while lane.ahead:
            request = lane.ahead.popleft()
            self._free_bytes += self._request_groups.size(request.groups)
            if request.request_group == request_group:
                return request.future
            request.future.cancel()
        return None

    def request_ahead(self) -> None:
        """Request data while the budget lasts, each time for the lane that will run out first."""
        while candidates := [
            (lane, request_group)
            for lane in self._lanes
            if (request_group := lane.next_request_group) is not None
        ]:
            lane, request_group = min(candidates, key=lambda pair: pair[0].requested_tokens)
            size = self._request_groups.size(lane.row_groups(request_group))
            if size > self._free_bytes:
                return  # a smaller request of another lane must not use up what this lane needs
            self._free_bytes -= size
            self._request(lane, request_group)

    def _request(self, lane: "RemoteLane", request_group: int) -> None:
        request = _Request(request_group, lane.row_groups(request_group), Future())
        lane.add_request(request)
        self._jobs.put(request)
        if len(self._threads) < _THREADS:
            thread = threading.Thread(
                target=_fetch_requests,
                args=(self._jobs, self._fetch),
                name="tokenlake-fetch",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def _fetch(self, request_group: int, groups: range) -> _Fetched:
        file = self._index.file(groups[0])
        path, first = self._index.locate_group(groups[0])
        uri, size = self._index.uri(path), int(self._index.file_bytes[file])
        footer = self._footer(uri, size)
        start, stop = _byte_range(footer, range(first, first + len(groups)))
        if not 0 < start < stop <= size:
            raise LoaderError(
                f"the footer places row group {first} at bytes {start:,} to {stop:,}, "
                f"but the file has {size:,} bytes",
                where=uri,
                hint=VERIFY,
            )
        data = self._ranges.read(uri, start, stop, size=size)
        return _Fetched(request_group, FetchedRange(pa.py_buffer(data), start, size), footer)

    def _footer(self, uri: str, size: int) -> pq.FileMetaData:
        """Return the footer of a file; of the threads that need the same one, the first fetches it."""
        with self._lock:
            known = self._footers.pop(uri, None)
            future = self._footers[uri] = known or Future()
            if len(self._footers) > MAX_FOOTERS:
                self._footers.popitem(last=False)
        if known is None:
            _resolve(future, lambda: read_footer(uri, size, self._ranges))
        return future.result()

    def close(self) -> None:
        """Cancel all requests; a thread in the middle of a request ends after it."""
        self._ranges.stop()
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        for _ in self._threads:
            self._jobs.put(None)


class RemoteLane:
    """The row groups of one lane, read from the request group that the lane holds.

    ``ahead`` are its requests, in the order of the lane. ``_next`` is the index of the first request group
    that has not been requested yet; None before the lane has begun.
    """

    def __init__(
        self,
        index: TableIndex,
        reader: ReadAhead,
        request_groups: np.ndarray,
        bounds: np.ndarray,
        ends: np.ndarray,
    ) -> None:
        self.ahead: deque[_Request] = deque()
        self._index = index
        self._reader = reader
        self._request_groups = request_groups  # (n,) int64, in the order of the lane, each once
        # (n, 2) int32: the first row group of each in the lane, and the one after the last.
        self._bounds = bounds
        self._ends = ends  # (n,) int64: tokens of the lane up to the end of each request group
        self._next: int | None = None
        self._held: _Fetched | None = None

    @property
    def next_request_group(self) -> int | None:
        """The first request group not requested yet; None before the lane has begun and at its end."""
        if self._next is None or self._next >= len(self._request_groups):
            return None
        return int(self._request_groups[self._next])

    @property
    def requested_tokens(self) -> int:
        """The number of tokens of the lane up to the end of its last requested request group."""
        return int(self._ends[self._next - 1]) if self._next else 0

    def add_request(self, request: _Request) -> None:
        """Record the request of the next request group."""
        assert self._next is not None
        self.ahead.append(request)
        self._next += 1

    def continue_after(self, request_group: int) -> None:
        """Continue with the request group after this one."""
        self._next = self._index_of(request_group) + 1

    def prepare(self, group: int) -> None:
        """Begin at a row group before it is read.

        The first request groups of all lanes are then requested together, as soon as one of them is taken.
        Until then the lane gets no budget that other lanes need more.
        """
        if self._next is None:
            self._next = self._index_of(self._reader.request_group_of(group))

    def row_groups(self, request_group: int) -> range:
        """Return the row groups of a request group that are in the lane: at its ends, maybe not all."""
        return range(*self._bounds[self._index_of(request_group)].tolist())

    def _index_of(self, request_group: int) -> int:
        return int(np.flatnonzero(self._request_groups == request_group)[0])

    def close(self) -> None:
        """Release all bytes now: lanes and reader form a cycle that only the garbage collector would free."""
        for request in self.ahead:
            request.future.cancel()
        self.ahead.clear()
        self._held = None

    @contextmanager
    def open(self, group: int) -> Iterator[OpenRowGroup]:
        """Open a row group of the table, as ``LocalFiles`` does."""
        request_group = self._reader.request_group_of(group)
        if self._held is None or self._held.request_group != request_group:
            self._held = None  # free its memory before waiting for the next one
            self._held = self._reader.take(self, request_group)
        _, number = self._index.locate_group(group)
        held = self._held
        yield OpenRowGroup(held.span, held.footer, number)


def _fetch_requests(jobs: _Jobs, fetch: Callable[[int, range], _Fetched]) -> None:
    """Fetch the requested request groups until None arrives; the body of a fetching thread."""
    while (request := jobs.get()) is not None:
        if request.future.set_running_or_notify_cancel():
            _resolve(request.future, partial(fetch, request.request_group, request.groups))
        del request  # the queue may stay empty for long: do not hold the bytes


def _resolve(future: "Future[_Result]", call: Callable[[], _Result]) -> None:
    """Set a future to the result or the exception of a call."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
        future.set_exception(error)


def _byte_range(footer: pq.FileMetaData, groups: range) -> tuple[int, int]:
    """Return the byte range of a file that holds the tokens and counts of consecutive row groups."""
    starts, stops = [], []
    for number in groups:
        group: Any = footer.row_group(number)
        if group.num_rows == 0:  # its columns have no offsets
            continue
        for column in (group.column(i) for i in range(group.num_columns)):
            if column.path_in_schema.startswith("tokens.") or column.path_in_schema == "num_tokens":
                start = column.dictionary_page_offset or column.data_page_offset
                starts.append(start)
                stops.append(start + column.total_compressed_size)
    return min(starts), max(stops)
