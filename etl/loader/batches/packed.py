"""Batches of packed windows, copied from the decoded pages of each lane, or from its block.

If a block of the shuffle is a single window, a lane holds the rest of the page it reads. If not, it reads
its blocks into the same memory, one after the other.

Shape suffixes: B rows of a batch, S tokens of a window.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from etl.loader.batches.document_boundaries import Format
from etl.loader.batches.lane_reader import Lane, LaneReader
from etl.loader.batches.reused_memory import ReusedMemory
from etl.loader.fetch.read_ahead import open_lanes
from etl.loader.fetch.selected_row_groups import open_row_groups
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_stream import MarksOf, TokenStream
from etl.loader.order.epoch import EpochPlan

Batch = dict[str, torch.Tensor]
_EARLY_SLOTS = 16  # how far a mixture takes samples out of order


@dataclass(frozen=True, kw_only=True)
class BlockBudget:
    """The buffer of a lane.

    One block is enough if samples are taken in order. A mixture takes them slightly out of order.
    """

    blocks: int = 1  # blocks to keep
    early_slots: int = 0  # slots of a block to load before the first one requested

    @staticmethod
    def for_mixture(plan: EpochPlan) -> "BlockBudget":
        """Return a buffer for samples that may come a few slots early."""
        return BlockBudget(blocks=2 + _EARLY_SLOTS // plan.block_windows, early_slots=_EARLY_SLOTS)


IN_ORDER = BlockBudget()


@dataclass
class _Block:
    """A block of windows as one array of its tokens, read only as far as needed.

    A slot is the index of a window in the shuffled order of the block.
    """

    number: int
    first_slot: int  # the first slot whose window is loaded
    window_starts: list[int]  # slot -> offset of its window in the block, in tokens
    span: range  # its tokens in the stream, including the label of the last one
    needed: np.ndarray | None  # (windows,) bool, in the order of the stream; None: all
    tokens: np.ndarray  # (at least len(span),) int32
    is_start: np.ndarray | None  # (the same,) bool: whether it begins a document, if requested
    filled: int = 0  # tokens read so far


class PackedLane(Lane, Protocol):
    """One lane of packed windows.

    Its next windows may be decoded already: ``rows`` (n, S + 1) int32 begin with the window at position
    ``first``, and ``is_start`` (n, S + 1) bool marks tokens that begin a document.
    """

    first: int
    rows: np.ndarray
    is_start: np.ndarray | None

    def window(self, position: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the window at a position of the lane, and which tokens begin a document if requested.

        The window is (S + 1,) int32. Both are views, valid until the next call. Ascending positions are
        cheap.
        """


class WindowLane:
    """A lane whose windows come in the order of the stream; the windows of a page are decoded together."""

    def __init__(self, plan: EpochPlan, epoch: int, lane: int, *, stream: TokenStream) -> None:
        self._start = plan.lane(epoch, lane).start * plan.seq_len
        self._seq_len = plan.seq_len
        self._stream = stream
        self._none = np.empty((0, plan.seq_len + 1), np.int32)
        self.first, self.rows = 0, self._none
        self.is_start: np.ndarray | None = None

    def prepare(self, position: int) -> None:
        """Prepare to read the lane from a position."""
        self._stream.prepare(self._start + position * self._seq_len)

    def window(self, position: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the window at a position of the lane, as ``PackedLane`` does."""
        # A page ends inside a window: copy this one from both pages, and let ``rows`` be views of all windows
        # that the next page has entirely, which ``batch`` then takes without a call.
        self.rows, self.is_start = self._none, None  # the next page can use the memory
        start, seq_len = self._start + position * self._seq_len, self._seq_len
        tokens = np.empty(seq_len + 1, np.int32)
        is_start = np.empty(seq_len + 1, bool) if self._stream.boundaries else None
        self._stream.copy(start, tokens, is_start)
        page, page_is_start = self._stream.read(start + seq_len)
        count = (len(page) - 1) // seq_len
        self.first, self.rows = position + 1, _windows(page, count, seq_len)
        if page_is_start is not None:
            self.is_start = _windows(page_is_start, count, seq_len)
        return tokens, is_start

    def close(self) -> None:
        """Free the memory."""
        self.rows, self.is_start = self._none, None
        self._stream.close()


def _windows(values: np.ndarray, count: int, seq_len: int) -> np.ndarray:
    """Return the first windows in consecutive values, each sharing a value with the next, as views."""
    width = values.itemsize
    return np.ndarray(
        (count, seq_len + 1), values.dtype, values.data, strides=(seq_len * width, width)
    )


class BlockLane:
    """A lane that shuffles blocks: its current block, and some of the blocks before it."""

    def __init__(
        self, plan: EpochPlan, epoch: int, lane: int, *, stream: TokenStream, budget: BlockBudget
    ) -> None:
        self._plan = plan
        self._epoch = epoch
        self._lane = lane
        self._stream = stream
        self._budget = budget
        self._blocks: list[_Block] = []  # in the order of loading
        self._has_started = False
        self._block_windows, self._size = plan.block_windows, plan.seq_len + 1
        self.first = 0
        self.is_start: np.ndarray | None = None
        self.rows = np.empty((0, self._size), np.int32)  # none: windows come in another order

    def prepare(self, position: int) -> None:
        """Prepare to read the lane from a position."""
        number, slot = divmod(position, self._block_windows)
        block = self._start_block(number, max(slot - self._budget.early_slots, 0))
        self._stream.prepare(block.span.start + min(block.window_starts[slot:]))

    def window(self, position: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the window at a position of the lane, as ``PackedLane`` does."""
        # A mixture may come back to the block before, or to slots that were skipped when it began in the
        # middle of a block: that block is then read again.
        number, slot = divmod(position, self._block_windows)
        for block in self._blocks:
            if block.number == number and slot >= block.first_slot:
                break
        else:
            block = self._start_block(number, max(slot - self._budget.early_slots, 0))
        start = block.window_starts[slot]
        stop = start + self._size
        if block.filled < stop and not self._read_first(block, slot):
            self._fill(block, stop)
        is_start = None if block.is_start is None else block.is_start[start:stop]
        return block.tokens[start:stop], is_start

    def _read_first(self, block: _Block, slot: int) -> bool:
        """Read the first window of the lane alone, and return whether this was done.

        The first batch then waits for one page of each lane instead of half a block. Does nothing for later
        windows, or if the window is not in the row group with which the lane begins.
        """
        # The window is read again with its block, which is worth it only once in a lane.
        if self._has_started:
            return False
        self._has_started = True
        start, stop = block.window_starts[slot], block.window_starts[slot] + self._size
        first = block.span.start + min(block.window_starts[slot:])
        if block.span.start + stop > self._stream.group_range(first).stop:
            return False
        is_start = None if block.is_start is None else block.is_start[start:stop]
        self._stream.copy(block.span.start + start, block.tokens[start:stop], is_start)
        self._stream.close()  # the next lane reads its page into the same memory
        return True

    def _start_block(self, number: int, slot: int) -> _Block:
        """Start a block of which the windows before ``slot`` are not needed."""
        # After a resume, row groups that only have windows of earlier slots need not be read.
        window, order = self._plan.block(self._epoch, self._lane, number)
        needed = None
        if slot:
            needed = np.ones(len(order), bool)
            needed[order[:slot]] = False
        last = self._blocks[-1] if self._blocks else None
        if last is not None and last.number == number - 1 and self._budget.blocks > 1:
            self._fill(last, len(last.span))  # while the stream is at this row group
        start, size = window * self._plan.seq_len, len(order) * self._plan.seq_len + 1
        window_starts = (order * self._plan.seq_len).tolist()
        tokens, is_start = self._take_memory(number)
        span = range(start, start + size)
        block = _Block(number, slot, window_starts, span, needed, tokens, is_start)
        self._blocks.append(block)
        return block

    def _take_memory(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return memory for a block: of its earlier copy, of the oldest block, or new memory."""
        copies = [i for i, block in enumerate(self._blocks) if block.number == number]
        if copies or len(self._blocks) >= self._budget.blocks:
            block = self._blocks.pop(copies[0] if copies else 0)
            return block.tokens, block.is_start
        windows = len(self._plan.lane(self._epoch, self._lane))
        size = min(self._block_windows, windows) * self._plan.seq_len + 1
        is_start = np.empty(size, bool) if self._stream.boundaries else None
        return np.empty(size, np.int32), is_start

    def _fill(self, block: _Block, stop: int) -> None:
        """Read a block up to its token ``stop``; row groups that are not needed are not opened."""
        while block.filled < stop:
            token = block.span.start + block.filled
            # Skip the rest of a row group if no window with tokens there is needed.
            if block.needed is not None:
                end = min(self._stream.group_range(token).stop, block.span.stop) - block.span.start
                # A token may also be the label of the window before its own.
                before = max(block.filled - 1, 0) // self._plan.seq_len
                if not block.needed[before : (end - 1) // self._plan.seq_len + 1].any():
                    block.filled = end
                    continue
            tokens, is_start = self._stream.read(token)
            size = min(len(tokens), len(block.span) - block.filled)
            read = slice(block.filled, block.filled + size)
            block.tokens[read] = tokens[:size]
            if block.is_start is not None and is_start is not None:
                block.is_start[read] = is_start[:size]
            block.filled += size

    def close(self) -> None:
        """Free the memory."""
        self._stream.close()


class PackedReader(LaneReader[PackedLane]):
    """A reader of batches of an epoch's samples."""

    def __init__(
        self,
        index: TableIndex,
        plan: EpochPlan,
        *,
        epoch: int,
        batch_format: Format,
        budget: BlockBudget = IN_ORDER,
        world_size: int = 1,
    ) -> None:
        self._index = index
        self._plan = plan
        self._epoch_stream = plan.stream(epoch)
        files = open_lanes(index, plan, epoch, self._epoch_stream, world_size=world_size)
        super().__init__(files, plan.lanes)
        self._epoch = epoch
        self._budget = budget
        self._format = batch_format
        self._marks = MarksOf(index)
        self._windows = np.empty((0, plan.seq_len + 1), np.int32)
        self._memory = ReusedMemory()

    def batch(self, samples: Iterable[int]) -> Batch:
        """Return samples as int64 tensors (B, S): ``input_ids``, ``labels``, and tensors of the format."""
        found = self._find(samples)
        if len(found) > len(self._windows):
            self._windows = np.empty((len(found), self._plan.seq_len + 1), np.int32)
        # int32 first: the rows are still in the CPU cache when they are widened to int64.
        windows = self._windows[: len(found)]
        is_start = np.zeros(windows.shape, bool) if self._format.needs_boundaries else None
        for row, (lane, position) in enumerate(found):
            # Most windows are decoded already, and need no call.
            at = position - lane.first
            if 0 <= at < len(lane.rows):
                windows[row] = lane.rows[at]
                window_is_start = None if lane.is_start is None else lane.is_start[at]
            else:
                windows[row], window_is_start = lane.window(position)
            if is_start is not None and window_is_start is not None:
                is_start[row] = window_is_start
        labels = windows[:, 1:] if self._format.shifted_labels else windows[:, :-1]
        batch = {
            "input_ids": self._memory.widen(windows[:, :-1]),
            "labels": self._memory.widen(labels),
        }
        return batch if is_start is None else self._format.add_boundaries(batch, is_start)

    def _open_lane(self, number: int) -> PackedLane:
        boundaries = self._format.needs_boundaries
        row_groups = open_row_groups(self._index, self.files.lane(number), self._marks)
        stream = TokenStream(row_groups, self._epoch_stream, boundaries=boundaries)
        if self._plan.block_windows == 1:
            return WindowLane(self._plan, self._epoch, number, stream=stream)
        return BlockLane(self._plan, self._epoch, number, stream=stream, budget=self._budget)
