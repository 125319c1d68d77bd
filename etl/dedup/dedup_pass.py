"""`DedupPass`: the work of a deduplication stage over the whole lake, its input and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import address
from etl.dedup.pairs import Pairs, PairWriter, collect_pairs, join_pairs
from etl.dedup.stored_file_list import StoredFileList
from etl.delta.data_file import DataFile
from etl.lake.keys_table import KeyFile


@dataclass(frozen=True)
class PassInput:
    """What the passes of a run share."""

    client: Client
    lake: DocumentReader
    files: StoredFileList  # all data files to compare, those of other lakes first
    settled: NDArray[np.int64]  # numbers of the decided files among those of the arrival, ascending
    keys: Sequence[KeyFile]  # with the keys of the files that are marked as keyed
    name: str  # prefix of the names of new data files

    def has_kind(self, kind: str) -> bool:
        """Return whether a stage of the recipe writes rows of a kind."""
        return any(kind in stage.kinds for stage in self.lake.stages)


@dataclass(frozen=True)
class PassResult:
    """The decisions of a pass and of all passes before it.

    Pairs are written after the last pass that may drop their keepers. Those of the first pass stay on the
    workers until another pass needs them.
    """

    pairs: Pairs | None = None
    data_files: tuple[DataFile, ...] = ()  # of ``duplicates``

    def collect(self, client: Client) -> Self:
        """Return the result with its pairs on the driver."""
        return (
            self if self.pairs is None else replace(self, pairs=collect_pairs(client, self.pairs))
        )

    def dropped(self) -> NDArray[np.int64]:
        """Return the addresses of the dropped documents, ascending; the pairs must be on the driver."""
        if self.pairs is None:
            return np.empty(0, np.int64)
        return np.sort(address(self.pairs["file"].to_numpy(), self.pairs["row"].to_numpy()))

    def join(self, client: Client, pairs: Pairs) -> Self:
        """Return the result with the pairs of another pass, which left out the dropped documents."""
        if self.pairs is None:
            return replace(self, pairs=pairs)
        earlier, later = (collect_pairs(client, each) for each in (self.pairs, pairs))
        return replace(self, pairs=join_pairs(earlier, later))

    def write(self, inputs: PassInput) -> Self:
        """Write the pairs, and return the result with their data files instead."""
        if self.pairs is None:
            return self
        writer = PairWriter(inputs.files, inputs.lake, inputs.name)
        written = writer.write(inputs.client, self.pairs)
        return replace(self, pairs=None, data_files=(*self.data_files, *written))


class DedupPass(Protocol):
    """The work of one deduplication stage over the whole lake, once all documents are stored."""

    def __call__(self, inputs: PassInput, stage: Any, earlier: PassResult, /) -> PassResult:
        """Return the decisions of the earlier passes with those of this one, for undecided documents.

        A pass returns pairs (``PassResult.join``) or, if it writes rows of other kinds, first writes the
        earlier pairs (``PassResult.write``). It leaves out the documents that earlier passes drop.
        """
        ...
