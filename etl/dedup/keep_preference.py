"""Rank duplicates by the setting `keep`: the one of the lowest rank is kept."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.dedup.numbered_files import NumberedFile
from etl.stages.dedup_base import DedupStage, find_dedup_stage
from etl.stages.dedup_minhash import DedupMinhash, KeepRule


@dataclass(frozen=True)
class KeepPreference:
    """Which of several duplicates is kept: the first by address, or as ``keep`` of dedup_minhash says."""

    stage: DedupMinhash | None

    @classmethod
    def of(cls, stages: Iterable[DedupStage]) -> Self:
        """Return the preference of a recipe with these deduplication stages."""
        return cls(find_dedup_stage(stages, DedupMinhash))

    def text_columns(self) -> list[str]:
        """Return the columns of ``texts`` that ``rank`` reads."""
        return ["signature"] if self.stage is not None and self.stage.keep == "longest" else []

    def columns(self) -> list[str]:
        """Return the columns of ``documents`` that ``rank`` reads."""
        column = None if self.stage is None else self.stage.keep_column
        return [] if column is None else [column]

    def rank(self, file: NumberedFile, table: pa.Table) -> NDArray[np.float64]:
        """Return the rank of each row of a file; documents of earlier arrivals have rank -inf.

        Documents of the same rank are kept in the order of their addresses.
        """
        size = len(table)
        if file.earlier:
            return np.full(size, -np.inf)
        if self.stage is None or self.stage.keep == "first":
            return np.zeros(size)
        keep = self.stage.keep
        if not isinstance(keep, KeepRule):
            return -_lengths(self.stage, table["signature"].combine_chunks())
        if keep.sources is not None:
            matches = [fnmatchcase(file.source, pattern) for pattern in keep.sources]
            return np.full(size, float([*matches, True].index(True)))
        column = table[str(self.stage.keep_column)].combine_chunks()
        sign = -1.0 if keep.highest is not None else 1.0
        values: NDArray[np.float64] = sign * column.to_numpy(zero_copy_only=False)
        values[np.isnan(values)] = np.inf
        return np.maximum(values, -np.finfo(np.float64).max)  # -inf is for earlier ones


def _lengths(stage: DedupMinhash, signatures: pa.Array) -> NDArray[np.float64]:
    """Return the length of each document in words or characters, 0 without a signature.

    The first number of a signature is the length.
    """
    lengths = np.zeros(len(signatures))
    is_signed = signatures.is_valid().to_numpy(zero_copy_only=False)
    lengths[is_signed] = stage.numbers(signatures.drop_null())[:, 0]
    return lengths
