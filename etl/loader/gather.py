"""Samples of an epoch -> batches: each lane keeps one block of tokens, batches copy windows out of it.

A lane reads its blocks into the same memory, page after page. To keep the pages themselves would spare the
copy, of which no cost could be measured, and takes 8 MB more: they are of many sizes, and leave holes.

Shape suffixes: B rows of a batch, S tokens of a window.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from etl.loader.ahead import open_lanes
from etl.loader.decode import RowGroups, Tape
from etl.loader.format import Format
from etl.loader.index import Index
from etl.loader.plan import Plan

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Room:
    """How many blocks a lane keeps, and how far behind the first place asked for it begins to read.

    One block is enough where samples come in order. A mixture takes them a little out of order.
    """

    blocks: int = 1
    places: int = 0

    @staticmethod
    def for_mixture(plan: Plan) -> "Room":
        """Enough for samples that come up to a few places too early."""
        return Room(blocks=2 + _EARLY_PLACES // plan.block_windows, places=_EARLY_PLACES)


_EARLY_PLACES = 16
IN_ORDER = Room()


@dataclass
class _Block:
    """A block that is being dealt, as one array of its tokens."""

    number: int
    first: int  # the first place of it whose window is there
    starts: list[int]  # where each window begins, in tokens of the block, as they are dealt
    span: range  # its tokens in the stream, the last one's label among them
    needed: np.ndarray | None  # (windows,) bool, in the stream's order: not dealt yet; None: all
    tokens: np.ndarray  # (at least the span's,) int32
    firsts: np.ndarray | None  # (the same,) bool: where documents begin, if that was asked for
    filled: int = 0  # tokens that are read: a block is read no further than it is dealt


class Lane:
    """One lane of an epoch: the block that is being dealt, and some of those before it."""

    def __init__(self, plan: Plan, epoch: int, lane: int, *, tape: Tape, room: Room) -> None:
        self._plan = plan
        self._epoch = epoch
        self._lane = lane
        self._tape = tape
        self._room = room
        self._blocks: list[_Block] = []  # the one loaded last at the end
        self._has_begun = False
        self._block_windows, self._size = plan.block_windows, plan.seq_len + 1

    def expect(self, position: int) -> None:
        """Be told that the lane will be read from a position on."""
        number, place = divmod(position, self._block_windows)
        block = self._load(number, max(place - self._room.places, 0))
        self._tape.expect(block.span.start + min(block.starts[place:]))

    def window(self, position: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The window at a position of the lane, (S + 1,) int32, and where in it documents begin, if that
        was asked for. Both are views, good until the next call; rising positions are cheap.
        """
        number, place = divmod(position, self._block_windows)
        for block in self._blocks:
            if block.number == number and place >= block.first:
                break
        else:
            block = self._load(number, max(place - self._room.places, 0))
        start = block.starts[place]
        stop = start + self._size
        if block.filled < stop and not self._read_first(block, place):
            self._fill(block, stop)
        return block.tokens[start:stop], None if block.firsts is None else block.firsts[start:stop]

    def _read_first(self, block: _Block, place: int) -> bool:
        """Read a lane's first window alone, so that the first batch waits for a page of each lane instead of
        half a block; False if it is not the first, or not in the row group that the lane begins with.
        """
        if self._has_begun:
            return False
        self._has_begun = True
        start, stop = block.starts[place], block.starts[place] + self._size
        begin = block.span.start + min(block.starts[place:])
        if block.span.start + stop > self._tape.span(begin).stop:
            return False
        firsts = None if block.firsts is None else block.firsts[start:stop]
        self._tape.copy(block.span.start + start, block.tokens[start:stop], firsts)
        self._tape.close()  # the next lane reads its page into the same memory
        return True

    def _load(self, number: int, place: int) -> _Block:
        """Begin a block of which the windows before ``place`` have been dealt already."""
        window, order = self._plan.block(self._epoch, self._lane, number)
        needed = None
        if place:
            needed = np.ones(len(order), bool)
            needed[order[:place]] = False
        last = self._blocks[-1] if self._blocks else None
        if last is not None and last.number == number - 1 and self._room.blocks > 1:
            self._fill(last, len(last.span))  # while the tape stands there
        start, size = window * self._plan.seq_len, len(order) * self._plan.seq_len + 1
        starts = (order * self._plan.seq_len).tolist()
        tokens, firsts = self._memory(number)
        block = _Block(number, place, starts, range(start, start + size), needed, tokens, firsts)
        self._blocks.append(block)
        return block

    def _memory(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Room for a block: of the same one begun elsewhere, of the oldest, or new."""
        places = [at for at, block in enumerate(self._blocks) if block.number == number]
        if places or len(self._blocks) >= self._room.blocks:
            block = self._blocks.pop(places[0] if places else 0)
            return block.tokens, block.firsts
        windows = self._plan.lane_start(self._lane + 1) - self._plan.lane_start(self._lane)
        size = min(self._block_windows, windows) * self._plan.seq_len + 1
        return np.empty(size, np.int32), np.empty(size, bool) if self._tape.boundaries else None

    def _fill(self, block: _Block, stop: int) -> None:
        """Read a block up to its token ``stop``; row groups of which nothing is needed stay closed."""
        while block.filled < stop:
            token = block.span.start + block.filled
            if block.needed is not None:
                end = min(self._tape.span(token).stop, block.span.stop) - block.span.start
                # A token may be the label of the window before its own.
                before = max(block.filled - 1, 0) // self._plan.seq_len
                if not block.needed[before : (end - 1) // self._plan.seq_len + 1].any():
                    block.filled = end
                    continue
            tokens, firsts = self._tape.read(token)
            size = min(len(tokens), len(block.span) - block.filled)
            read = slice(block.filled, block.filled + size)
            block.tokens[read] = tokens[:size]
            if block.firsts is not None and firsts is not None:
                block.firsts[read] = firsts[:size]
            block.filled += size

    def close(self) -> None:
        """Close the file that is open."""
        self._tape.close()


class Gatherer:
    """Makes batches of an epoch's samples; opens the lanes that they lie in."""

    def __init__(
        self,
        index: Index,
        plan: Plan,
        *,
        epoch: int,
        batch_format: Format,
        room: Room = IN_ORDER,
    ) -> None:
        self._index = index
        self._plan = plan
        self._stream = plan.stream(epoch)
        self._files = open_lanes(index, plan, self._stream)
        self._epoch = epoch
        self._room = room
        self._format = batch_format
        self._lanes: dict[int, Lane] = {}

    def batch(self, samples: Iterable[int]) -> Batch:
        """The samples as int64 tensors (B, S): ``input_ids``, ``labels``, and what the format adds."""
        places = [divmod(sample, self._plan.lanes) for sample in samples]
        for position, number in places:
            if number not in self._lanes:
                self._open(number).expect(position)
        # Narrow rows first: when they are widened, they are in the cache.
        windows = np.empty((len(places), self._plan.seq_len + 1), np.int32)
        firsts = np.zeros(windows.shape, bool) if self._format.needs_boundaries else None
        for row, (position, number) in enumerate(places):
            windows[row], begins = self._lanes[number].window(position)
            if firsts is not None and begins is not None:
                firsts[row] = begins
        batch = {
            "input_ids": torch.from_numpy(windows[:, :-1].astype(np.int64)),
            "labels": torch.from_numpy(windows[:, 1:].astype(np.int64)),
        }
        return batch if firsts is None else self._format.add_boundaries(batch, firsts)

    def _open(self, number: int) -> Lane:
        boundaries = self._format.needs_boundaries
        row_groups = RowGroups(self._index, self._files.lane(number))
        tape = Tape(row_groups, self._stream, boundaries=boundaries)
        lane = Lane(self._plan, self._epoch, number, tape=tape, room=self._room)
        self._lanes[number] = lane
        return lane

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._files.close()
