"""Batches of padded documents: each lane buffers one block of whole documents.

The order is as in ``epoch.py``, with documents instead of tokens, and windows of one document. Documents
without tokens are skipped; the footers give their number, because an empty list counts as a value.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch

from etl.loader.batches.document_boundaries import Format, pad_documents
from etl.loader.batches.lane_reader import LaneReader
from etl.loader.batches.packed import IN_ORDER, BlockBudget
from etl.loader.fetch.read_ahead import open_lanes
from etl.loader.fetch.selected_row_groups import open_row_groups
from etl.loader.fetch.table_index import TableIndex
from etl.loader.fetch.token_stream import MarksOf, TokenStream
from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.shuffle_settings import ResolvedShuffle

Batch = dict[str, torch.Tensor]


def plan_documents(index: TableIndex, seed: int, shuffle: ResolvedShuffle | None) -> EpochPlan:
    """Return the order of a table's documents; settings in tokens are divided by the mean length."""
    count = int(index.group_documents.sum(dtype=np.int64))
    if shuffle is not None and count:
        mean = max(index.num_tokens // count, 1)
        shuffle = replace(
            shuffle,
            block_tokens=max(shuffle.block_tokens // mean, 1),
            run_tokens=max(shuffle.run_tokens // mean, 1),
        )
    return EpochPlan(index.group_documents, 1, seed, shuffle, overlap=0)


class DocumentLane:
    """One lane of an epoch: the documents of its current block, in the order of the stream.

    A slot is the index of a document in the shuffled order of its block.
    """

    def __init__(self, plan: EpochPlan, epoch: int, lane: int, *, reader: "PaddedReader") -> None:
        self._plan = plan
        self._epoch = epoch
        self._lane = lane
        self._reader = reader
        self._row_groups = open_row_groups(reader.index, reader.files.lane(lane), reader.marks)
        self._stream = TokenStream(self._row_groups, reader.epoch_tokens, boundaries=False)
        self._starts = (-1, np.zeros(1, np.int64))  # a row group, and where its documents begin
        # Block number -> the first slot whose document is loaded, the order, the documents.
        self._blocks: OrderedDict[int, tuple[int, np.ndarray, list[np.ndarray]]] = OrderedDict()

    def document(self, position: int) -> np.ndarray:
        """Return the document at a position of the lane, (n,) int32; ascending positions are cheap."""
        number, slot = divmod(position, self._plan.block_windows)
        if number not in self._blocks or slot < self._blocks[number][0]:
            self._load_block(number, max(slot - self._reader.budget.early_slots, 0))
        _, order, documents = self._blocks[number]
        return documents[int(order[slot])]

    def prepare(self, position: int) -> None:
        """Prepare to read the lane from a position."""
        number, slot = divmod(position, self._plan.block_windows)
        start, order = self._plan.block(self._epoch, self._lane, number)
        first = start + int(order[slot:].min())
        index = self._reader.epoch_documents.group_index(first)
        self._row_groups.prepare(int(self._reader.epoch_documents.groups[index]))

    def _load_block(self, number: int, slot: int) -> None:
        """Read a block; row groups whose documents all come before ``slot`` are not opened."""
        self._blocks.pop(number, None)
        if len(self._blocks) >= self._reader.budget.blocks:
            self._blocks.popitem(last=False)
        start, order = self._plan.block(self._epoch, self._lane, number)
        # After a resume, documents of earlier slots are not needed, but keep their places in the block: a row
        # group with no other documents is replaced by empty ones.
        needed = np.ones(len(order), bool)
        needed[order[:slot]] = False
        stream, stop = self._reader.epoch_documents, start + len(order)
        skipped = np.zeros(0, np.int32)
        documents: list[np.ndarray] = []
        for index in stream.group_indices(start, stop):
            base = stream.start(index)
            first, last = max(start, base), min(stop, stream.start(index + 1))
            if needed[first - start : last - start].any():
                documents += self._read_documents(index, first - base, last - base)
            else:
                documents += [skipped] * (last - first)
        self._blocks[number] = (slot, order, documents)

    def _read_documents(self, index: int, first: int, last: int) -> list[np.ndarray]:
        """Return the whole documents [first, last) of the row group at an index of the stream."""
        # Blocks end inside row groups, so the next block often needs the starts of the same row group.
        # ``unique`` leaves out documents without tokens: they begin where the next one begins.
        number = int(self._reader.epoch_documents.groups[index])
        if number != self._starts[0]:
            self._starts = (number, np.unique(self._row_groups.document_starts(number)))
        starts = self._starts[1]  # (documents + 1,)
        tokens = np.empty(int(starts[last] - starts[first]), np.int32)
        self._stream.copy(self._reader.epoch_tokens.start(index) + int(starts[first]), tokens)
        return np.split(tokens, starts[first + 1 : last] - starts[first])

    def close(self) -> None:
        """Free the memory."""
        self._stream.close()


class PaddedReader(LaneReader[DocumentLane]):
    """A reader of padded batches of an epoch's documents."""

    def __init__(  # noqa: PLR0913 - all that an epoch needs
        self,
        index: TableIndex,
        plan: EpochPlan,
        *,
        epoch: int,
        seq_len: int,
        batch_format: Format,
        budget: BlockBudget = IN_ORDER,
        world_size: int = 1,
    ) -> None:
        self.budget = budget
        self.index = index
        self.epoch_documents = plan.stream(epoch)
        files = open_lanes(index, plan, epoch, self.epoch_documents, world_size=world_size)
        super().__init__(files, plan.lanes)
        self.epoch_tokens = EpochStream.of(self.epoch_documents.groups, index.group_tokens)
        self.marks = MarksOf(index)
        self._plan = plan
        self._epoch = epoch
        self._seq_len = seq_len
        assert batch_format.pad_id is not None
        self._pad_id = batch_format.pad_id
        self._shifted_labels = batch_format.shifted_labels

    def batch(self, samples: Iterable[int]) -> Batch:
        """Return the documents as padded tensors, as ``Format`` describes."""
        return pad_documents(
            [lane.document(position) for lane, position in self._find(samples)],
            seq_len=self._seq_len,
            pad_id=self._pad_id,
            shifted_labels=self._shifted_labels,
        )

    def _open_lane(self, number: int) -> DocumentLane:
        return DocumentLane(self._plan, self._epoch, number, reader=self)
