"""Read ahead in a remote table: threads fetch parts of files into a temporary file, as lanes need them.

Each lane reads its parts from front to back (see ``request_parts.py``). When a lane takes one, the budget
that this frees goes to the lanes that will run out first. All lanes advance at the same rate, so these are
the lanes whose requests end earliest in their share of the stream. A part that is needed but that no thread
has started is fetched by the caller, so the order of requests cannot cause a deadlock.

One thread takes parts; the other threads only fetch.
"""

import heapq
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

import numpy as np

from etl.loader.fetch.range_requests import Ranges
from etl.loader.fetch.request_parts import RequestPart, RequestParts
from etl.loader.fetch.row_group_files import Lanes, LocalFiles
from etl.loader.fetch.scratch_file import PageFile, ScratchFile
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochStream, LanePlan

# Requests that run at once: one stream of an object store delivers about 50 to 90 MB/s, after 30 ms or more.
_THREADS = (4, 16)
_IN_FLIGHT_BYTES = 32 << 20
_MIN_PART_BYTES = 1 << 16  # smaller requests cost more than the memory that they save
_HEADER_BYTES = 256  # a page header is read at once
_Result = TypeVar("_Result")


class _Request(NamedTuple):
    """A part that is fetched, or waits to be fetched, by a thread."""

    part: RequestPart
    future: "Future[int]"  # its slot in the scratch file


_Jobs = SimpleQueue[_Request | None]  # None ends a thread


def open_lanes(
    index: TableIndex, plan: LanePlan, epoch: int, stream: EpochStream, *, world_size: int = 1
) -> Lanes:
    """Return the source of files for the lanes of an epoch: local files, or read-ahead.

    The lanes are divided among ``world_size`` ranks.
    """
    if index.remote is None:
        return LocalFiles(index)
    return ReadAhead(index, plan, epoch, stream, lanes=-(-plan.lanes // world_size))


class ReadAhead:
    """Read-ahead of the parts of an epoch, for all lanes of a reader.

    ``_free_bytes`` is the rest of the budget of the temporary file. A request occupies it from the moment it
    is queued until its lane takes or skips the part. The budget and the lanes belong to the thread that takes
    parts. The fetching threads share with it the job queue, the futures and the temporary file.
    """

    def __init__(
        self, index: TableIndex, plan: LanePlan, epoch: int, stream: EpochStream, *, lanes: int
    ) -> None:
        remote = index.remote
        assert remote is not None
        self._index = index
        self._stored = replace(index, group_tokens=index.stored_tokens, rows=None, transformed=None)
        self._plan = plan
        self._epoch = epoch
        self._stream = stream
        self._runs = np.append(plan.runs(), len(index.group_tokens))
        per_lane = max(remote.ahead_bytes // lanes, _MIN_PART_BYTES)
        self._part_bytes = max(min(remote.request_bytes, per_lane), _HEADER_BYTES)
        self._ranges = Ranges(remote)
        fewest, most = _THREADS
        self._max_threads = min(max(_IN_FLIGHT_BYTES // self._part_bytes, fewest), most)
        self.scratch = ScratchFile(max(self._part_bytes, _MIN_PART_BYTES))
        self.pages = PageFile(plan.lanes)
        self._free_bytes = remote.ahead_bytes
        self._lanes: list[RemoteLane] = []
        self._waiting: list[tuple[int, int]] = []  # heap of (tokens requested, number of the lane)
        self._jobs: _Jobs = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def lane(self, number: int) -> "RemoteLane":
        """Return the reader of the row groups of a lane."""
        stream, index = self._stream, self._index
        start, stop = self._plan.lane_span(self._epoch, number)
        indices = stream.group_indices(start, stop)
        groups = stream.groups[indices.start : indices.stop]
        tokens = self._stored.group_tokens[groups].astype(np.int64)
        first, last = 0, int(tokens.sum())
        if stream.group_tokens is index.group_tokens and index.has_stored_places:
            # Not of whole documents: these need whole row groups.
            first = index.stored_place(groups[0], start - stream.start(indices.start))
            end = index.stored_place(groups[-1], stop - 1 - stream.start(indices.stop - 1)) + 1
            last += end - int(tokens[-1])
        parts = RequestParts(
            self._stored, self._runs, groups, first=first, last=last, part_bytes=self._part_bytes
        )
        lane = RemoteLane(index, self, len(self._lanes), parts)
        self._lanes.append(lane)
        return lane

    def take(self, lane: "RemoteLane", group: int, start: int) -> tuple[RequestPart, int]:
        """Return the part with a byte of a row group and its slot, and drop the requests before it.

        Waits for the thread that fetches the part, or fetches it here if no thread has started.
        """
        request = self._remove_requests(lane, self._index.file(group), start)
        if request is None:
            part = lane.begin(group, start)
            self.wait(lane)
            self.request_ahead()
            return part, self._fetch(part)
        self.request_ahead()
        if request.future.cancel():  # this fails once a thread has started
            return request.part, self._fetch(request.part)
        return request.part, request.future.result()

    def request(self, file: int, start: int, stop: int) -> bytes:
        """Return bytes of a file by a request for these alone."""
        uri, size = self._index.uri(self._index.path(file)), self._index.file_bytes[file]
        return self._ranges.read(uri, start, stop, size=int(size))

    def _remove_requests(self, lane: "RemoteLane", file: int, start: int) -> _Request | None:
        """Remove a lane's requests up to the one for a byte of a file, and release their budget.

        Cancels those before it. Without such a request, removes all requests of the lane and returns None.
        """
        while lane.ahead:
            request = lane.ahead.pop(0)
            part = request.part
            self._free_bytes += part.stop - part.start
            if part.file == file and part.start <= start < part.stop:
                return request
            if not request.future.cancel():
                request.future.add_done_callback(self._free_unread)
        return None

    def _free_unread(self, future: "Future[int]") -> None:
        if future.exception() is None:
            self.scratch.free(future.result())

    def wait(self, lane: "RemoteLane") -> None:
        """Let a lane wait for budget for its next part."""
        if lane.next_part is not None:
            heapq.heappush(self._waiting, (lane.next_part.end, lane.number))

    def request_ahead(self) -> None:
        """Request parts while the budget lasts, each time for the lane that will run out first."""
        while self._waiting:
            end, number = self._waiting[0]
            lane = self._lanes[number]
            part = lane.next_part
            if part is None or part.end != end:  # the lane has moved since
                heapq.heappop(self._waiting)
                continue
            size = part.stop - part.start
            if size > self._free_bytes:
                return  # a smaller request of another lane must not use up what this lane needs
            heapq.heappop(self._waiting)
            self._free_bytes -= size
            self._request(lane, part)
            lane.advance()
            self.wait(lane)

    def _request(self, lane: "RemoteLane", part: RequestPart) -> None:
        request = _Request(part, Future())
        lane.ahead.append(request)
        self._jobs.put(request)
        if len(self._threads) < self._max_threads:
            thread = threading.Thread(
                target=_fetch_requests,
                args=(self._jobs, self._fetch),
                name="tokenlake-fetch",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def _fetch(self, part: RequestPart) -> int:
        return self.scratch.put(self.request(part.file, part.start, part.stop))

    def close(self) -> None:
        """Cancel all requests; a thread in the middle of a request ends after it."""
        self._ranges.stop()
        self.scratch.close()
        self.pages.close()
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        for _ in self._threads:
            self._jobs.put(None)


class RemoteLane:
    """The row groups of one lane, read from the parts that the lane holds.

    ``ahead`` are its requests, in the order of the lane, and ``next_part`` is the first one after them.
    """

    __slots__ = (
        "_following",
        "_held",
        "_index",
        "_parts",
        "_reader",
        "ahead",
        "next_part",
        "number",
    )

    def __init__(
        self, index: TableIndex, reader: ReadAhead, number: int, parts: RequestParts
    ) -> None:
        self.number = number
        self.ahead: list[_Request] = []  # a deque takes 0.7 kB
        self.next_part: RequestPart | None = None
        self._index = index
        self._reader = reader
        self._parts = parts
        self._following: Iterator[RequestPart] = iter(())
        self._held: list[tuple[RequestPart, int]] = []  # with their slots

    def begin(self, group: int, start: int) -> RequestPart:
        """Continue with the part after that of a byte of a row group, and return this one."""
        following = self._parts.parts(group, start)
        part, file = next(following, None), self._index.file(group)
        if part is None or part.file != file or not part.start <= start < part.stop:
            # More of the last row group is needed than estimated.
            following = chain(() if part is None else (part,), following)
            _, stop = self._column(group, start)
            part = RequestPart(file, start, min(start + _MIN_PART_BYTES, stop), 0)
        self._following = following
        self.advance()
        return part

    def advance(self) -> None:
        """Move to the next part."""
        self.next_part = next(self._following, None)

    def prepare(self, group: int) -> None:
        """Begin at a row group before it is read.

        The first parts of all lanes are then requested together, as soon as one of them is taken. Until then
        the lane gets no budget that other lanes need more.
        """
        if not self._held and self.next_part is None:
            self._following = self._parts.parts(group)
            self.advance()
            self._reader.wait(self)

    def keep(self, tokens: np.ndarray) -> np.ndarray:
        """Return the tokens of a page, kept in a file until the next one."""
        return self._reader.pages.put(self.number, tokens)

    def read(self, group: int, start: int, size: int, more: int = 0) -> bytes:
        """Return bytes of a column of a row group from an offset, as ``Files`` does."""
        is_tokens, end = self._column(group, start)
        stop = min(start + size, end)
        file = self._index.file(group)
        if not is_tokens and not self._has(file, start):
            return self._reader.request(file, start, stop)
        self._drop(file, start)
        # A page and the header after it may end in different parts.
        pieces = []
        while start < stop:
            part, slot = self._hold(group, file, start)
            last = min(stop + more, end, part.stop)
            pieces.append(self._reader.scratch.read(slot, start - part.start, last - part.start))
            start = last
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _drop(self, file: int, start: int) -> None:
        """Free the parts before a byte of a file."""
        held, self._held = self._held, []
        for part, slot in held:
            if part.file == file and part.stop > start:
                self._held.append((part, slot))
            else:
                self._reader.scratch.free(slot)

    def _hold(self, group: int, file: int, start: int) -> tuple[RequestPart, int]:
        """Return the part with a byte of a row group and its slot, and keep it."""
        for held in self._held:
            if held[0].file == file and held[0].start <= start < held[0].stop:
                return held
        self._held.append(self._reader.take(self, group, start))
        return self._held[-1]

    def _has(self, file: int, start: int) -> bool:
        """Return whether a byte of a file is in a part that the lane holds, or in the next one."""
        parts = [part for part, _ in self._held]
        if self.ahead:
            parts.append(self.ahead[0].part)
        return any(part.file == file and part.start <= start < part.stop for part in parts)

    def _column(self, group: int, start: int) -> tuple[bool, int]:
        """Return whether a byte is in the tokens of a row group, and the end of the column that has it."""
        for name in ("tokens", "num_tokens"):
            chunk = self._index.chunk(group, name)
            if chunk is not None and chunk.start <= start < chunk.start + chunk.size:
                return name == "tokens", chunk.start + chunk.size
        return False, start

    def close(self) -> None:
        """Release all bytes now: lanes and reader form a cycle that only the garbage collector would free."""
        for request in self.ahead:
            request.future.cancel()
        self.ahead.clear()
        self._held.clear()


def _fetch_requests(jobs: _Jobs, fetch: Callable[[RequestPart], int]) -> None:
    """Fetch the requested parts until None arrives; the body of a fetching thread."""
    while (request := jobs.get()) is not None:
        if request.future.set_running_or_notify_cancel():
            _resolve(request.future, partial(fetch, request.part))


def _resolve(future: "Future[_Result]", call: Callable[[], _Result]) -> None:
    """Set a future to the result or the exception of a call."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
        future.set_exception(error)
