"""Samples of an epoch -> batches: each lane keeps one block of tokens, batches copy windows out of it.

Shape suffixes: B rows of a batch, S tokens of a window.
"""

from collections.abc import Iterable
from typing import Self

import numpy as np
import torch

from etl.loader.decode import RowGroups, Tape
from etl.loader.format import Format
from etl.loader.index import Index
from etl.loader.plan import Plan, Stream

Batch = dict[str, torch.Tensor]


class Lane:
    """One lane of an epoch: the block that is being dealt, as one contiguous array of tokens."""

    def __init__(self, plan: Plan, epoch: int, lane: int, *, tape: Tape, boundaries: bool) -> None:
        self._plan = plan
        self._epoch = epoch
        self._lane = lane
        self._tape = tape
        self._number = -1  # of the block that is loaded
        self._first = 0  # the first place of it whose window is there
        self._order = np.zeros(0, np.int64)
        self._stop = plan.lane_start(lane + 1)
        size = min(plan.block_windows, self._stop - plan.lane_start(lane))
        self._tokens = np.zeros(size * plan.seq_len + 1, np.int32)
        self._firsts = np.zeros(size * plan.seq_len + 1, bool) if boundaries else None

    def window(self, position: int) -> slice:
        """Where in ``tokens`` the window at a position of the lane stands; rising positions are cheap."""
        number, place = divmod(position, self._plan.block_windows)
        if number != self._number or place < self._first:
            self._load(number, place)
        start = int(self._order[place]) * self._plan.seq_len
        return slice(start, start + self._plan.seq_len + 1)

    @property
    def tokens(self) -> np.ndarray:
        """The tokens of the block, (windows * S + 1,) int32; good until another block is asked for."""
        return self._tokens

    @property
    def firsts(self) -> np.ndarray | None:
        """Where documents begin in ``tokens``, the same shape, if that was asked for."""
        return self._firsts

    def _load(self, number: int, place: int) -> None:
        """Read a block of which the windows before ``place`` have been dealt already."""
        seq_len = self._plan.seq_len
        window, order = self._plan.block(self._epoch, self._lane, number)
        start, size = window * seq_len, len(order) * seq_len
        needed = np.ones(len(order) + 1, bool)
        needed[order[:place]] = False
        needed[-1] = window + len(order) < self._stop  # the next block begins with our last token

        def is_needed(first: int, end: int) -> bool:
            before, last = max(first - start - 1, 0) // seq_len, (end - start - 1) // seq_len
            return bool(needed[before : last + 1].any())

        # Blocks share one token; it is there already when one block follows the other.
        known = int(number == self._number + 1 and self._number >= 0)
        if known:
            self._tokens[0] = self._tokens[-1]
            if self._firsts is not None:
                self._firsts[0] = self._firsts[-1]
        span = slice(known, size + 1)
        firsts = None if self._firsts is None else self._firsts[span]
        self._tape.copy(start + known, self._tokens[span], firsts, is_needed if place else None)
        self._number, self._first, self._order = number, place, order

    def close(self) -> None:
        """Close the file that is open."""
        self._tape.close()


class Gatherer:
    """Makes batches of an epoch's samples; opens the lanes that they lie in."""

    def __init__(
        self, index: Index, plan: Plan, stream: Stream, *, epoch: int, batch_format: Format
    ) -> None:
        self._row_groups = RowGroups(index)
        self._plan = plan
        self._stream = stream
        self._epoch = epoch
        self._format = batch_format
        self._lanes: dict[int, Lane] = {}

    def batch(self, samples: Iterable[int]) -> Batch:
        """The samples as int64 tensors (B, S): ``input_ids``, ``labels``, and what the format adds."""
        samples = list(samples)
        shape = (len(samples), self._plan.seq_len)
        input_ids, labels = np.empty(shape, np.int64), np.empty(shape, np.int64)
        firsts = None
        if self._format.needs_boundaries:
            firsts = np.zeros((shape[0], shape[1] + 1), bool)
        for row, sample in enumerate(samples):
            position, number = divmod(sample, self._plan.lanes)
            lane = self._lanes.get(number) or self._open(number)
            window = lane.window(position)
            tokens = lane.tokens[window]
            input_ids[row] = tokens[:-1]
            labels[row] = tokens[1:]
            if firsts is not None and lane.firsts is not None:
                firsts[row] = lane.firsts[window]
        batch = {"input_ids": torch.from_numpy(input_ids), "labels": torch.from_numpy(labels)}
        return batch if firsts is None else self._format.add_boundaries(batch, firsts)

    def _open(self, number: int) -> Lane:
        boundaries = self._format.needs_boundaries
        tape = Tape(self._row_groups, self._stream, boundaries=boundaries)
        lane = Lane(self._plan, self._epoch, number, tape=tape, boundaries=boundaries)
        self._lanes[number] = lane
        return lane

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            lane.close()
