"""`DedupPass`: the work of a deduplication stage over the whole lake, its input and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from numpy.typing import NDArray

from etl.compute.compute_frames import hold_frame
from etl.compute.frame_shuffles import split_at
from etl.compute.frame_tasks import map_frames
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import ROW_BITS
from etl.dedup.pairs import PairWriter, join_pairs
from etl.dedup.stored_file_list import StoredFileList
from etl.kernels.hashing.sorted_sets import among
from etl.lake.keys_table import KeyFile
from etl.parquet.data_file import DataFile


@dataclass(frozen=True)
class PassInput:
    """What the passes of a run share."""

    client: Client
    reader: DocumentReader
    files: StoredFileList  # all data files to compare, other lakes first
    settled: NDArray[np.int64]  # numbers of the arrival's files that are decided, ascending
    keys: Sequence[KeyFile]  # with the keys of the files that are marked as keyed
    name: str  # prefix of the names of new data files

    def has_kind(self, kind: str) -> bool:
        """Return whether a stage of the recipe writes rows of a kind."""
        return any(kind in stage.kinds for stage in self.reader.stages)


@dataclass(frozen=True)
class PassResult:
    """The decisions of a pass and of all passes before it.

    Pairs are written after the last pass that may drop their keepers. Until then they are on the workers.
    """

    pairs: dd.DataFrame | None = None  # with the columns of ``PAIRS``
    data_files: tuple[DataFile, ...] = ()  # of ``duplicates``

    def hold(self, client: Client) -> Self:
        """Return the result with its pairs computed and held by the workers, so that each use reads them."""
        if self.pairs is None:
            return self
        return replace(self, pairs=hold_frame(client, self.pairs, label="duplicates"))

    def leave_out(
        self, frame: dd.DataFrame, file_parts: Sequence[NDArray[np.int64]], column: str
    ) -> dd.DataFrame:
        """Return the rows of a frame whose documents are not dropped.

        The frame has one partition for each part of the data files (``StoredFileList.frame``); the column
        has addresses.
        """
        if self.pairs is None or not file_parts:
            return frame
        starts = [int(part[0]) << ROW_BITS for part in file_parts]
        dropped = split_at(self.pairs, "document", starts)
        without = partial(_without, column=column)
        return map_frames("pairs.leave_out", without, frame, dropped, meta=frame._meta)

    def join(self, pairs: dd.DataFrame) -> Self:
        """Return the result with the pairs of another pass, which left out the dropped documents."""
        return replace(self, pairs=pairs if self.pairs is None else join_pairs(self.pairs, pairs))

    def write(self, inputs: PassInput) -> Self:
        """Write the pairs, and return the result with their data files instead."""
        if self.pairs is None:
            return self
        writer = PairWriter(inputs.files, inputs.reader, inputs.name)
        written = writer.write(inputs.client, self.pairs)
        return replace(self, pairs=None, data_files=(*self.data_files, *written))


class DedupPass(Protocol):
    """The work of one deduplication stage over the whole lake, once all documents are stored."""

    def __call__(self, inputs: PassInput, stage: Any, earlier: PassResult, /) -> PassResult:
        """Return the decisions of this pass and of earlier ones, for undecided documents.

        A pass returns pairs (``PassResult.join``) or, if it writes rows of other kinds, first writes the
        earlier pairs (``PassResult.write``). It leaves out the documents that earlier passes drop
        (``PassResult.leave_out``). The pairs of ``earlier`` are held by the workers.
        """
        ...


def _without(frame: pd.DataFrame, dropped: pd.DataFrame, *, column: str) -> pd.DataFrame:
    return frame[~among(frame[column].to_numpy(), dropped["document"].to_numpy())]
