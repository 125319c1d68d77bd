"""Batches of best-fit windows: each lane holds one unit of the table, whose documents fill its windows.

A lane reads the strands of its units into a temporary file, in the order of the table; windows are assembled
when a batch needs them. See ``order/best_fit_packing.py`` for units and windows.

Shape suffixes: B rows of a batch, S tokens of a window, R runs, U units.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from etl.loader.batches.document_boundaries import IGNORED, Batch, Format
from etl.loader.batches.lane_reader import LaneReader
from etl.loader.fetch.read_ahead import open_lanes
from etl.loader.fetch.scratch_file import PageFile
from etl.loader.fetch.selected_row_groups import open_row_groups
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_stream import MarksOf, TokenStream
from etl.loader.order.best_fit_packing import UnitWindows
from etl.loader.order.epoch import EpochStream
from etl.loader.order.unit_plan import UnitPlan

_LATE_WINDOWS = 16  # of a lane: how far a mixture takes samples out of order


@dataclass(frozen=True)
class _LaneGroups:
    """The row groups that each strand of each lane of an epoch reads; strands are lanes here."""

    plan: UnitPlan
    units: EpochStream
    groups: EpochStream

    def runs(self) -> np.ndarray:
        """Return the first row group of each run, (R,) int32, ascending."""
        return np.unique(self.plan.first_groups)

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return self.plan.lanes * self.plan.num_strands

    def lane_span(self, epoch: int, lane: int) -> tuple[int, int]:
        """Return the tokens of the row groups of a strand in the stream of row groups.

        The strand must have tokens of a unit of the lane.
        """
        # A lane reads the units of its windows. Of a strand, it reads from the first row group of the first
        # such unit with tokens in the strand to the last row group of the last one.
        plan, (number, strand) = self.plan, divmod(lane, self.plan.num_strands)
        windows = plan.lane(epoch, number)
        indices = self.units.group_indices(windows.start, windows.stop)
        units = self.units.groups[indices.start : indices.stop]
        units = units[plan.unit_tokens[units, strand] > 0]
        first, last = (dict(plan.unit_spans(int(unit)))[strand] for unit in units[[0, -1]])
        ends = plan.span_groups(first)[0], plan.span_groups(last)[-1]
        start, stop = (int(np.flatnonzero(self.groups.groups == group)[0]) for group in ends)
        return self.groups.start(start), self.groups.start(stop + 1)


class _Strand:
    """One strand of a lane: the tokens and the documents of its row groups."""

    def __init__(self, lane: int, *, reader: "BestFitReader") -> None:
        self._plan = reader.plan
        self._row_groups = open_row_groups(reader.index, reader.files.lane(lane), reader.marks)
        self._stream = TokenStream(self._row_groups, self._plan.row_groups, boundaries=False)
        self._group_starts = (-1, np.zeros(0, np.int32))  # of the last row group

    def prepare(self, span: range) -> None:
        """Prepare to read some tokens of the table, and the rest of the strand after them."""
        self._row_groups.prepare(self._plan.span_groups(span)[0])

    def document_starts(self, span: range) -> np.ndarray:
        """Return the first tokens in the table of the documents around a span, and the end, (D + 1,)."""
        parts = [np.zeros(1, np.int64)]
        for group in self._plan.span_groups(span):
            if self._group_starts[0] != group:
                starts = self._row_groups.document_starts(group).astype(np.int32)
                self._group_starts = (group, starts)
            start = self._plan.row_groups.start(group)
            # The end of a row group is the start of the next one: keep it once.
            parts = [*parts[:-1], parts[-1][:-1], start + self._group_starts[1].astype(np.int64)]
        return np.concatenate(parts)

    def copy(self, span: range, document_starts: np.ndarray, memory: np.ndarray) -> None:
        """Copy some tokens of the table, and the one after them if it is of the same document: a label."""
        is_end = document_starts[np.searchsorted(document_starts, span.stop)] == span.stop
        self._stream.copy(span.start, memory[: len(span) + (not is_end)])

    def close(self) -> None:
        """Free the memory."""
        self._stream.close()


Piece = tuple[int, int]
"""The first token of a piece in the memory of its unit, and its number of tokens."""


@dataclass(frozen=True)
class _Unit:
    """The part of a unit that is in a lane."""

    windows: range  # of the stream
    tokens: np.ndarray  # (N,) int32: the memory of the unit, see UnitWindows
    pieces: list[list[Piece]]  # of the windows, in the shuffled order
    continues: list[bool]  # whether the document of a window continues in the next one

    def end(self, num_windows: int) -> "_Unit":
        """Return a copy of the last windows."""
        pieces: list[list[Piece]] = []
        parts, size = [np.zeros(0, np.int32)], 0
        for window in self.pieces[-num_windows:]:
            pieces.append([])
            for start, count in window:
                pieces[-1].append((size, count))
                # And the token after it, the label of its last token.
                parts.append(self.tokens[start : start + count + 1])
                size += len(parts[-1])
        windows = self.windows[-num_windows:]
        return _Unit(windows, np.concatenate(parts), pieces, self.continues[-num_windows:])


class UnitLane:
    """One lane of an epoch: its current unit, and in a mixture the end of the one before it."""

    def __init__(self, lane: int, *, reader: "BestFitReader") -> None:
        self._lane = lane
        self._reader = reader
        self._plan = reader.plan
        self._windows = self._plan.lane(reader.epoch, lane)
        self._strands: dict[int, _Strand] = {}
        self._units: list[_Unit] = []  # the current one is the last

    def window(self, position: int) -> tuple[np.ndarray, list[Piece], bool]:
        """Return the tokens of a unit, the pieces of the window at a position, and whether it continues.

        Ascending positions are cheap. The tokens are valid until the next call.
        """
        window = self._windows.start + position
        for unit in self._units:
            if window in unit.windows:
                break
        else:
            unit = self._load(window)
        slot = window - unit.windows.start
        return unit.tokens, unit.pieces[slot], unit.continues[slot]

    def prepare(self, position: int) -> None:
        """Prepare to read the lane from a position."""
        index = self._reader.units.group_index(self._windows[position])
        for strand, span in self._plan.unit_spans(int(self._reader.units.groups[index])):
            self._strand(strand).prepare(span)

    def _strand(self, number: int) -> _Strand:
        if number not in self._strands:
            lane = self._lane * self._plan.num_strands + number
            self._strands[number] = _Strand(lane, reader=self._reader)
        return self._strands[number]

    def _load(self, window: int) -> _Unit:
        # Read all strands of the unit one after the other into one memory that all lanes share, and move it
        # to the file of the lane: in memory, the units of all lanes would take 32 MB and more.
        plan, stream = self._plan, self._reader.units
        index, in_lane = plan.part(stream, self._windows, window)
        self._units = [*self._ends()]
        memory, start, parts = self._reader.memory, 0, []
        for number, span in plan.unit_spans(int(stream.groups[index])):
            strand = self._strand(number)
            parts.append((strand.document_starts(span), span))
            strand.copy(span, parts[-1][0], memory[start : start + len(span) + 1])
            start += len(span) + 1
        # Which windows a unit has follows from the lengths of its documents; the lane takes its part of them
        # in the shuffled order.
        windows = UnitWindows.of(parts, plan.window_tokens)
        pieces = list(zip(windows.starts.tolist(), windows.counts.tolist(), strict=True))
        bounds, continues = windows.firsts.tolist(), windows.continues.tolist()
        order = (
            in_lane.start
            - stream.start(index)
            + plan.order(self._reader.epoch, self._lane, in_lane)
        )
        loaded = _Unit(
            in_lane,
            self._reader.unit_file.put(self._lane, memory[:start]),
            [pieces[bounds[w] : bounds[w + 1]] for w in order.tolist()],
            [continues[bounds[w + 1] - 1] for w in order.tolist()],
        )
        self._units.append(loaded)
        return loaded

    def _ends(self) -> Iterator[_Unit]:
        """Yield the last windows of the current unit, if there is one and a mixture may need them."""
        for unit in self._units[-1:] if self._reader.is_mixture else ():
            end = unit.end(_LATE_WINDOWS)
            slot = self._plan.lanes + self._lane
            yield replace(end, tokens=self._reader.unit_file.put(slot, end.tokens))

    def close(self) -> None:
        """Free the memory."""
        self._units.clear()
        for strand in self._strands.values():
            strand.close()


class BestFitReader(LaneReader[UnitLane]):
    """A reader of batches of an epoch's best-fit windows."""

    def __init__(
        self,
        index: TableIndex,
        plan: UnitPlan,
        *,
        epoch: int,
        batch_format: Format,
        is_mixture: bool = False,
        world_size: int = 1,
    ) -> None:
        self.index = index
        self.plan = plan
        self.epoch = epoch
        self.units = plan.stream(epoch)
        groups = plan.group_stream(epoch)
        lane_groups = _LaneGroups(plan, self.units, groups)
        files = open_lanes(index, lane_groups, epoch, groups, world_size=world_size)
        super().__init__(files, plan.lanes)
        self.marks = MarksOf(index)
        self.is_mixture = is_mixture
        most = int(plan.unit_tokens.sum(axis=1).max()) + plan.num_strands
        self.memory = np.empty(most, np.int32)  # of the unit that a lane reads
        self.unit_file = PageFile(2 * plan.lanes, self.memory.nbytes)  # and the ends before them
        self._format = replace(batch_format, ignore_boundaries=False)  # they always are

    def batch(self, samples: Iterable[int]) -> Batch:
        """Return samples as int64 tensors (B, S): ``input_ids``, ``labels``, and tensors of the format."""
        found, size = self._find(samples), self.plan.window_tokens
        tokens = np.full((len(found), size + 1), self._format.pad_id or 0, np.int32)
        # Offsets in ``tokens`` where a piece or the padding starts, and columns where the pieces of a row
        # end.
        starts, ends = [], []
        for row, (lane, position) in enumerate(found):
            memory, pieces, continues = lane.window(position)
            row_tokens, column = tokens[row], 0
            for start, count in pieces:
                row_tokens[column : column + count] = memory[start : start + count]
                starts.append(row * (size + 1) + column)
                column += count
            # The label of the last token is the next token of its document, if there is one. Otherwise a
            # start there marks that the label is to be ignored.
            if continues:
                row_tokens[size] = memory[start + count]
            else:
                starts.append(row * (size + 1) + column)
            ends.append(column)
        return self._make_batch(tokens, starts, ends)

    def _make_batch(self, tokens: np.ndarray, starts: list[int], ends: list[int]) -> Batch:
        """Return the tensors of windows (B, S + 1) int32.

        ``starts`` are the offsets at which a piece or the padding starts, ``ends`` the columns at which the
        pieces of each row end.
        """
        size = tokens.shape[1] - 1
        # The first token of a document must not be a label: the token before it is of another document.
        rows, columns = np.divmod(starts, size + 1)
        shift = int(self._format.shifted_labels)
        is_label = (columns >= shift) & (columns < size + shift)
        labels = tokens[:, shift : size + shift].astype(np.int64)
        labels[rows[is_label], columns[is_label] - shift] = IGNORED
        for row, end in enumerate(ends):
            labels[row, end:] = IGNORED
        batch: Batch = {
            "input_ids": torch.from_numpy(tokens[:, :-1].astype(np.int64)),
            "labels": torch.from_numpy(labels),
        }
        if not self._format.needs_boundaries:
            return batch
        is_start = np.zeros(tokens.shape, bool)
        is_start[rows, columns] = True
        return self._format.add_boundaries(batch, is_start)

    def _open_lane(self, number: int) -> UnitLane:
        return UnitLane(number, reader=self)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.unit_file.close()
