"""Batches of packed windows: each lane buffers one block of tokens, and batches copy windows out of it.

A lane reads all its blocks into the same memory, page by page. Keeping the decoded pages instead would save
a copy whose cost could not be measured, and take 8 MB more, because pages vary in size and fragment memory.

Shape suffixes: B rows of a batch, S tokens of a window.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from etl.loader.batches.batch_format import Format
from etl.loader.fetch.read_ahead import open_lanes
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_stream import RowGroups, TokenStream
from etl.loader.order.epoch import EpochPlan

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class BlockBudget:
    """The buffer of a lane.

    One block is enough if samples are taken in order. A mixture takes them slightly out of order.
    """

    blocks: int = 1  # blocks to keep
    places: int = 0  # turns to load before the first one requested

    @staticmethod
    def for_mixture(plan: EpochPlan) -> "BlockBudget":
        """Return a buffer for samples that may come a few turns too early."""
        return BlockBudget(blocks=2 + _EARLY_TURNS // plan.block_windows, places=_EARLY_TURNS)


_EARLY_TURNS = 16
IN_ORDER = BlockBudget()


@dataclass
class _Block:
    """A block of windows as one array of its tokens, read only as far as needed.

    A turn is the index of a window in the shuffled order of the block.
    """

    number: int
    first: int  # the first turn whose window is loaded
    starts: list[int]  # turn -> offset of its window in the block, in tokens
    span: range  # its tokens in the stream, including the label of the last one
    needed: np.ndarray | None  # (windows,) bool, in the order of the stream; None: all
    tokens: np.ndarray  # (at least len(span),) int32
    firsts: np.ndarray | None  # (the same,) bool: document starts, if requested
    filled: int = 0  # tokens read so far


class Lane:
    """One lane of an epoch: its current block, and some of the blocks before it."""

    def __init__(
        self, plan: EpochPlan, epoch: int, lane: int, *, tape: TokenStream, room: BlockBudget
    ) -> None:
        self._plan = plan
        self._epoch = epoch
        self._lane = lane
        self._tape = tape
        self._room = room
        self._blocks: list[_Block] = []  # in the order of loading
        self._has_begun = False
        self._block_windows, self._size = plan.block_windows, plan.seq_len + 1

    def expect(self, position: int) -> None:
        """Prepare to read the lane from a position."""
        number, turn = divmod(position, self._block_windows)
        block = self._load(number, max(turn - self._room.places, 0))
        self._tape.expect(block.span.start + min(block.starts[turn:]))

    def window(self, position: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the window at a position of the lane, and its document starts if requested.

        The window is (S + 1,) int32. Both are views, valid until the next call. Ascending positions are
        cheap.
        """
        number, turn = divmod(position, self._block_windows)
        for block in self._blocks:
            if block.number == number and turn >= block.first:
                break
        else:
            block = self._load(number, max(turn - self._room.places, 0))
        start = block.starts[turn]
        stop = start + self._size
        if block.filled < stop and not self._read_first(block, turn):
            self._fill(block, stop)
        return block.tokens[start:stop], None if block.firsts is None else block.firsts[start:stop]

    def _read_first(self, block: _Block, turn: int) -> bool:
        """Read the first window of the lane alone, and return whether this was done.

        The first batch then waits for one page of each lane instead of half a block. Does nothing for later
        windows, or if the window is not in the row group with which the lane begins.
        """
        if self._has_begun:
            return False
        self._has_begun = True
        start, stop = block.starts[turn], block.starts[turn] + self._size
        begin = block.span.start + min(block.starts[turn:])
        if block.span.start + stop > self._tape.span(begin).stop:
            return False
        firsts = None if block.firsts is None else block.firsts[start:stop]
        self._tape.copy(block.span.start + start, block.tokens[start:stop], firsts)
        self._tape.close()  # the next lane reads its page into the same memory
        return True

    def _load(self, number: int, turn: int) -> _Block:
        """Begin a block of which the windows before ``turn`` are not needed."""
        window, order = self._plan.block(self._epoch, self._lane, number)
        needed = None
        if turn:
            needed = np.ones(len(order), bool)
            needed[order[:turn]] = False
        last = self._blocks[-1] if self._blocks else None
        if last is not None and last.number == number - 1 and self._room.blocks > 1:
            self._fill(last, len(last.span))  # while the tape is at this row group
        start, size = window * self._plan.seq_len, len(order) * self._plan.seq_len + 1
        starts = (order * self._plan.seq_len).tolist()
        tokens, firsts = self._memory(number)
        block = _Block(number, turn, starts, range(start, start + size), needed, tokens, firsts)
        self._blocks.append(block)
        return block

    def _memory(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return memory for a block: that of its earlier copy, that of the oldest block, or new memory."""
        copies = [i for i, block in enumerate(self._blocks) if block.number == number]
        if copies or len(self._blocks) >= self._room.blocks:
            block = self._blocks.pop(copies[0] if copies else 0)
            return block.tokens, block.firsts
        windows = self._plan.lane_start(self._lane + 1) - self._plan.lane_start(self._lane)
        size = min(self._block_windows, windows) * self._plan.seq_len + 1
        return np.empty(size, np.int32), np.empty(size, bool) if self._tape.boundaries else None

    def _fill(self, block: _Block, stop: int) -> None:
        """Read a block up to its token ``stop``; row groups that are not needed are not opened."""
        while block.filled < stop:
            token = block.span.start + block.filled
            if block.needed is not None:
                end = min(self._tape.span(token).stop, block.span.stop) - block.span.start
                # A token may also be the label of the window before its own.
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
        """Close the open file."""
        self._tape.close()


class PackedReader:
    """A reader of batches of an epoch's samples; opens lanes on demand."""

    def __init__(
        self,
        index: TableIndex,
        plan: EpochPlan,
        *,
        epoch: int,
        batch_format: Format,
        room: BlockBudget = IN_ORDER,
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
        """Return samples as int64 tensors (B, S): ``input_ids``, ``labels``, and those of the format."""
        positions = [divmod(sample, self._plan.lanes) for sample in samples]
        for position, lane in positions:
            if lane not in self._lanes:
                self._open(lane).expect(position)
        # int32 first: the rows are still in the CPU cache when they are widened to int64.
        windows = np.empty((len(positions), self._plan.seq_len + 1), np.int32)
        firsts = np.zeros(windows.shape, bool) if self._format.needs_boundaries else None
        for row, (position, lane) in enumerate(positions):
            windows[row], window_firsts = self._lanes[lane].window(position)
            if firsts is not None and window_firsts is not None:
                firsts[row] = window_firsts
        batch = {
            "input_ids": torch.from_numpy(windows[:, :-1].astype(np.int64)),
            "labels": torch.from_numpy(windows[:, 1:].astype(np.int64)),
        }
        return batch if firsts is None else self._format.add_boundaries(batch, firsts)

    def _open(self, number: int) -> Lane:
        boundaries = self._format.needs_boundaries
        row_groups = RowGroups(self._index, self._files.lane(number))
        tape = TokenStream(row_groups, self._stream, boundaries=boundaries)
        lane = Lane(self._plan, self._epoch, number, tape=tape, room=self._room)
        self._lanes[number] = lane
        return lane

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._files.close()
