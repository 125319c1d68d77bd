"""Batches of padded documents: each lane buffers one block of whole documents.

The order is that of ``plan.py`` with documents instead of tokens, and windows of one document. Documents
without tokens are skipped; the footers give their number, because an empty list counts as a value.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Self

import numpy as np
import torch

from etl.loader.batches.batch_format import pad
from etl.loader.batches.packed import IN_ORDER, BlockBudget
from etl.loader.fetch.read_ahead import open_lanes
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_stream import RowGroups, TokenStream
from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.shuffle import Shuffle

Batch = dict[str, torch.Tensor]


def document_plan(index: TableIndex, seed: int, shuffle: Shuffle | None) -> EpochPlan:
    """Return the order of a table's documents; settings in tokens are divided by the mean length."""
    count = int(index.group_documents.sum(dtype=np.int64))
    if shuffle is not None and count:
        mean = max(index.num_tokens // count, 1)
        run_tokens = shuffle.resolved(index.num_tokens).run_tokens or 1
        shuffle = Shuffle(
            lanes=shuffle.lanes,
            block_tokens=max(shuffle.block_tokens // mean, 1),
            run_tokens=max(run_tokens // mean, 1),
        )
    return EpochPlan(index.group_documents, 1, seed, shuffle, overlap=0)


class DocumentLane:
    """One lane of an epoch: the documents of its current block, in the order of the stream.

    A turn is the index of a document in the shuffled order of its block.
    """

    def __init__(self, plan: EpochPlan, epoch: int, lane: int, *, reader: "PaddedReader") -> None:
        self._plan = plan
        self._epoch = epoch
        self._lane = lane
        self._reader = reader
        self._row_groups = RowGroups(reader.index, reader.files.lane(lane))
        self._tape = TokenStream(self._row_groups, reader.tokens, boundaries=False)
        # Block number -> the first turn whose document is loaded, the order, the documents.
        self._blocks: OrderedDict[int, tuple[int, np.ndarray, list[np.ndarray]]] = OrderedDict()

    def document(self, position: int) -> np.ndarray:
        """Return the document at a position of the lane, (n,) int32; ascending positions are cheap."""
        number, turn = divmod(position, self._plan.block_windows)
        if number not in self._blocks or turn < self._blocks[number][0]:
            self._load(number, max(turn - self._reader.room.places, 0))
        _, order, documents = self._blocks[number]
        return documents[int(order[turn])]

    def expect(self, position: int) -> None:
        """Prepare to read the lane from a position."""
        number, turn = divmod(position, self._plan.block_windows)
        start, order = self._plan.block(self._epoch, self._lane, number)
        first = start + int(order[turn:].min())
        group = self._reader.stream.place(first)
        self._row_groups.expect(int(self._reader.stream.groups[group]))

    def _load(self, number: int, turn: int) -> None:
        """Read a block; row groups whose documents all come before ``turn`` are not opened."""
        self._blocks.pop(number, None)
        if len(self._blocks) >= self._reader.room.blocks:
            self._blocks.popitem(last=False)
        start, order = self._plan.block(self._epoch, self._lane, number)
        needed = np.ones(len(order), bool)
        needed[order[:turn]] = False
        stream, stop = self._reader.stream, start + len(order)
        skipped = np.zeros(0, np.int32)
        documents: list[np.ndarray] = []
        for group in stream.places(start, stop):
            base = stream.start(group)
            first, last = max(start, base), min(stop, stream.start(group + 1))
            if needed[first - start : last - start].any():
                documents += self._read(group, first - base, last - base)
            else:
                documents += [skipped] * (last - first)
        self._blocks[number] = (turn, order, documents)

    def _read(self, group: int, first: int, last: int) -> list[np.ndarray]:
        """Return the whole documents [first, last) of a row group of the stream."""
        number = int(self._reader.stream.groups[group])
        begins = np.unique(self._row_groups.begins(number))  # (documents + 1,)
        tokens = np.empty(int(begins[last] - begins[first]), np.int32)
        self._tape.copy(self._reader.tokens.start(group) + int(begins[first]), tokens)
        return np.split(tokens, begins[first + 1 : last] - begins[first])

    def close(self) -> None:
        """Close the open file."""
        self._tape.close()


class PaddedReader:
    """A reader of padded batches of an epoch's documents; opens lanes on demand."""

    def __init__(
        self,
        index: TableIndex,
        plan: EpochPlan,
        *,
        epoch: int,
        seq_len: int,
        pad_id: int,
        room: BlockBudget = IN_ORDER,
    ) -> None:
        self.room = room
        self.index = index
        self.stream = plan.stream(epoch)
        self.files = open_lanes(index, plan, self.stream)
        self.tokens = EpochStream.of(self.stream.groups, index.group_tokens)
        self._plan = plan
        self._epoch = epoch
        self._seq_len = seq_len
        self._pad_id = pad_id
        self._lanes: dict[int, DocumentLane] = {}

    def batch(self, samples: Iterable[int]) -> Batch:
        """Return the documents as padded tensors, as ``Format`` describes."""
        positions = [divmod(sample, self._plan.lanes) for sample in samples]
        for position, lane in positions:
            if lane not in self._lanes:
                self._open(lane).expect(position)
        documents = [self._lanes[lane].document(position) for position, lane in positions]
        return pad(documents, seq_len=self._seq_len, pad_id=self._pad_id)

    def _open(self, number: int) -> DocumentLane:
        self._lanes[number] = DocumentLane(self._plan, self._epoch, number, reader=self)
        return self._lanes[number]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes.values():
            lane.close()
        self.files.close()
