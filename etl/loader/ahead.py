"""Row groups of remote files: fetched ahead by threads, in the order in which lanes will want them.

Each lane goes through its parcels from front to back. Whenever it takes one, free room of the budget goes to
the lanes that will run out first: all advance alike, so these are those that reach least far into their share
of the stream with what they have been given. What is wanted and not even begun is fetched at once by whoever
wants it, so that no order of wishes can get stuck.

One thread takes; only fetching is done by others.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.errors import LoaderError
from etl.loader.files import MAX_FOOTERS, Lanes, LocalFiles, Opened, Span
from etl.loader.index import Index
from etl.loader.parcels import Parcels
from etl.loader.plan import Plan, Stream
from etl.loader.remote import VERIFY, Ranges, read_footer

# Four requests of a few MB are under way at once: one stream of an object store gives about 50 to 90 MB/s.
_THREADS = 4
_Result = TypeVar("_Result")
_Jobs = SimpleQueue[tuple["Future[_Held]", int] | None]


@dataclass(frozen=True)
class _Held:
    """A parcel that is there: its bytes, and the footer of its file."""

    parcel: int
    span: Span
    footer: pq.FileMetaData


def open_lanes(index: Index, plan: Plan, stream: Stream) -> Lanes:
    """Where the lanes of an epoch get their files: from this machine, or fetched ahead."""
    return LocalFiles(index) if index.remote is None else ReadAhead(index, plan, stream)


class ReadAhead:
    """Fetches the parcels of an epoch for all lanes of a reader."""

    def __init__(self, index: Index, plan: Plan, stream: Stream) -> None:
        remote = index.remote
        assert remote is not None
        self._index = index
        self._plan = plan
        self._stream = stream
        self._parcels = Parcels.of(index, plan, remote.request_bytes)
        self._ranges = Ranges(remote)
        self._free_bytes = remote.ahead_bytes
        self._lanes: list[RemoteLane] = []
        self._jobs: _Jobs = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._footers: OrderedDict[int, Future[pq.FileMetaData]] = OrderedDict()
        self._lock = threading.Lock()  # of the footers

    def lane(self, number: int) -> "RemoteLane":
        """What opens the row groups of a lane."""
        plan, stream = self._plan, self._stream
        start, stop = (plan.lane_start(lane) * plan.seq_len for lane in (number, number + 1))
        places = stream.places(start, stop + plan.overlap)
        groups = stream.groups[places.start : places.stop]
        ends = np.cumsum(self._index.group_tokens[groups], dtype=np.int64)
        parcels = self._parcels.holding(groups)
        is_last = np.diff(parcels, append=-1) != 0
        reach = ends[is_last] - (start - stream.start(places.start))
        found = RemoteLane(self._index, self, parcels[is_last], reach)
        self._lanes.append(found)
        return found

    def parcel(self, group: int) -> int:
        """The parcel that holds a row group."""
        return int(self._parcels.holding(np.array([group]))[0])

    def take(self, lane: "RemoteLane", parcel: int) -> _Held:
        """A parcel for a lane, which is then the lane's own; those before it are given up."""
        future: Future[_Held] | None = None
        while lane.ahead and future is None:
            found, candidate = lane.ahead.popleft()
            self._free_bytes += self._parcels.num_bytes(found)
            if found == parcel:
                future = candidate
            else:
                candidate.cancel()
        if future is None:
            lane.begin(parcel, behind=True)
        self.fill()
        if future is None or future.cancel():  # nobody has begun it
            return self._fetch(parcel)
        return future.result()

    def fill(self) -> None:
        """Ask for parcels as far as the budget goes, for the lane that runs out first."""
        while candidates := [lane for lane in self._lanes if lane.upcoming is not None]:
            lane = min(candidates, key=lambda lane: lane.reach)
            assert lane.upcoming is not None
            size = self._parcels.num_bytes(lane.upcoming)
            if size > self._free_bytes:
                return
            self._free_bytes -= size
            self._ask(lane, lane.upcoming)

    def _ask(self, lane: "RemoteLane", parcel: int) -> None:
        future: Future[_Held] = Future()
        lane.ahead.append((parcel, future))
        lane.advance()
        self._jobs.put((future, parcel))
        if len(self._threads) < _THREADS:
            thread = threading.Thread(
                target=_work, args=(self._jobs, self._fetch), name="tokenlake-fetch", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _fetch(self, parcel: int) -> _Held:
        groups = self._parcels.groups(parcel)
        file = self._index.file(groups[0])
        path, first = self._index.group(groups[0])
        uri, size = self._index.uri(path), int(self._index.file_bytes[file])
        footer = self._footer(file, uri, size)
        start, stop = _extent(footer, range(first, first + len(groups)))
        if not 0 < start < stop <= size:
            raise LoaderError(
                f"its footer puts row group {first} at bytes {start:,} to {stop:,} of {size:,}",
                where=uri,
                hint=VERIFY,
            )
        data = self._ranges.read(uri, start, stop, size=size)
        return _Held(parcel, Span(pa.py_buffer(data), start, size), footer)

    def _footer(self, file: int, uri: str, size: int) -> pq.FileMetaData:
        """The footer of a file; of threads that want the same one, the first fetches it."""
        with self._lock:
            known = self._footers.pop(file, None)
            future = self._footers[file] = known or Future()
            if len(self._footers) > MAX_FOOTERS:
                self._footers.popitem(last=False)
        if known is None:
            _run(future, lambda: read_footer(uri, size, self._ranges))
        return future.result()

    def close(self) -> None:
        """Give up what is still to be fetched; a thread in the middle of a request ends after it."""
        self._ranges.stop()
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        for _ in self._threads:
            self._jobs.put(None)


class RemoteLane:
    """The row groups of one lane, out of the parcel that it holds."""

    def __init__(
        self, index: Index, reader: ReadAhead, parcels: np.ndarray, reach: np.ndarray
    ) -> None:
        self.ahead: deque[tuple[int, Future[_Held]]] = deque()
        self._index = index
        self._reader = reader
        self._parcels = parcels  # (n,) int64, in the order of the lane, each once
        self._reach = reach  # (n,) int64: tokens of the lane up to the end of each
        self._next: int | None = None  # its place there; None before the first wish
        self._held: _Held | None = None

    @property
    def upcoming(self) -> int | None:
        """The first parcel that is not asked for yet; None before the lane has begun, and at its end."""
        if self._next is None or self._next >= len(self._parcels):
            return None
        return int(self._parcels[self._next])

    @property
    def reach(self) -> int:
        """How many tokens of the lane there are up to the end of what has been asked for."""
        return int(self._reach[self._next - 1]) if self._next else 0

    def advance(self) -> None:
        """Note that the upcoming parcel has been asked for."""
        assert self._next is not None
        self._next += 1

    def begin(self, parcel: int, *, behind: bool) -> None:
        """Go on at a parcel of the lane, or behind it."""
        self._next = int(np.flatnonzero(self._parcels == parcel)[0]) + int(behind)

    def expect(self, group: int) -> None:
        """Begin at a row group, before it is wanted: so the first ones of all lanes come at once, as soon
        as one of them is taken. Until then no lane gets room that others have more need of.
        """
        if self._next is None:
            self.begin(self._reader.parcel(group), behind=False)

    def close(self) -> None:
        """Let go of all bytes at once: lanes and reader know each other, and would wait for the collector."""
        for _, future in self.ahead:
            future.cancel()
        self.ahead.clear()
        self._held = None

    @contextmanager
    def open(self, group: int) -> Iterator[Opened]:
        """A row group of the table, as ``LocalFiles`` opens it."""
        parcel = self._reader.parcel(group)
        if self._held is None or self._held.parcel != parcel:
            self._held = None  # its memory is free before the next one is waited for
            self._held = self._reader.take(self, parcel)
        _, number = self._index.group(group)
        held = self._held
        yield Opened(held.span, held.footer, number)


def _work(jobs: _Jobs, fetch: Callable[[int], _Held]) -> None:
    """What a thread does: parcels, until it is told to end."""
    while (job := jobs.get()) is not None:
        future, parcel = job
        if future.set_running_or_notify_cancel():
            _run(future, partial(fetch, parcel))
        del job, future


def _run(future: "Future[_Result]", call: Callable[[], _Result]) -> None:
    """Give a future what a call returns or raises."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
        future.set_exception(error)


def _extent(footer: pq.FileMetaData, groups: range) -> tuple[int, int]:
    """The bytes of a file that hold the tokens, and the counts, of row groups that follow each other."""
    starts, stops = [], []
    for number in groups:
        group: Any = footer.row_group(number)
        if group.num_rows == 0:  # its columns stand nowhere
            continue
        for column in (group.column(i) for i in range(group.num_columns)):
            if column.path_in_schema.startswith("tokens.") or column.path_in_schema == "num_tokens":
                start = column.dictionary_page_offset or column.data_page_offset
                starts.append(start)
                stops.append(start + column.total_compressed_size)
    return min(starts), max(stops)
