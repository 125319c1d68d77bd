"""Deduplicate paragraphs, lines or sentences (units): cut them from all documents but the first.

1. The hashes of all units are shuffled. Of equal units, all but the first are repeats: the order is by the
   arrival of their documents, then by address, then by position in the document.
2. The repeats are sent to their documents, and documents that would become too short are dropped.
3. Repeats are determined again without the dropped documents, because a unit must not be cut when the
   document that keeps it is dropped. This cuts less than before, so no further document becomes short.

Documents that earlier runs have dropped as short take part in step 1 as well. So the result for a document
depends only on the documents before it: a run that adds files gives the result of one run over all files if
the new files come after the old ones. The first document with a unit, for step 1 and for step 3, is looked up
in the table ``keys`` (``etl.dedup.key_lookup``): documents of earlier runs are not read again.

Cost: the hashes of new documents are read once, but no text; the shuffles move 24 bytes per unit and, for
each of steps 2 and 3, 32 per repeat; all units with the same hash are in one partition. The workers keep the
units whose hash occurs more than once, 24 bytes each. Between steps 2 and 3, partitions of hashes ask
partitions of documents which are short: 24 bytes for each document and partition that has units of it.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl.compute.compute_frames import hold_frame
from etl.compute.frame_tasks import map_frames
from etl.dedup.cut_rows import CutDocuments, CutRowWriter
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.file_groups import group_of
from etl.dedup.group_shuffle import shuffle_by_group
from etl.dedup.key_lookup import SHORT_CHECK, StoredKeys, units_of
from etl.dedup.numbered_files import (
    NumberedFile,
    address,
    row_of,
)
from etl.dedup.shared_passages import Passages, shared_passages
from etl.dedup.short_documents import (
    DECIDED,
    DECIDED_SHORT,
    decided_ordinals,
    empty_numbers,
    leave_out_short,
)
from etl.dedup.stored_file_list import StoredFileList
from etl.stages.dedup_paragraphs import DedupParagraphs

_UNITS = empty_numbers("hash", "document", "ordinal")
_REPEATS = empty_numbers("document", "ordinal", "keeper", "bucket")


def find_repeated_passages(
    inputs: PassInput, stage: DedupParagraphs, earlier: PassResult
) -> PassResult:
    """Cut the passages that occur in an earlier document; drop documents that become too short.

    Of several new documents, the first by address keeps a passage. Documents that other stages drop are not
    compared.
    """
    client = inputs.client
    # Repeats are determined twice. Of ``a``, ``a b`` and ``b c d``, the second document loses ``a``. If
    # ``b`` alone is too short, it is dropped, and then ``b`` must not be cut from the third document, as
    # it was the first time.
    units = shared_passages(inputs, _units(inputs.reader), earlier)
    units = hold_frame(client, units, label=stage.kind)
    earlier = earlier.write(inputs)
    describe = _DescribeUnits(inputs.reader, stage.joint)
    writer = CutRowWriter(inputs.files, inputs.reader, inputs.name, stage.min_rest_chars, describe)
    short = writer.write_short(client, _repeats(units, inputs.files), stage.kind)
    remaining = leave_out_short(units, short.short())
    cut = writer.write_cut(client, _repeats(remaining, inputs.files), stage.kind)
    new = (*short.data_files(), *cut.data_files())
    return replace(earlier, data_files=(*earlier.data_files, *new))


def _units(reader: DocumentReader) -> Passages:
    """Return how the units of documents are read, with the columns of ``_UNITS``."""
    return Passages(
        meta=_UNITS,
        column="unit_hashes",
        per_row=16,
        label="cuts.units",
        read=partial(_read_units, reader=reader),
        share=_ShareUnits,
    )


def _read_units(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    """Return the units of a file that are compared, with the columns of ``_UNITS``."""
    units = units_of(reader.read(file, ["unit_hashes"]))
    documents = address(np.int64(file.number), units.rows)
    ordinals = decided_ordinals(file, units.rows, reader) if file.decided else units.ordinals
    return pd.DataFrame({"hash": units.hashes, "document": documents, "ordinal": ordinals})


@dataclass(frozen=True)
class _ShareUnits:
    """Partition task that adds the units of decided documents, and returns those that may be repeats."""

    stored: StoredKeys

    def __call__(self, units: pd.DataFrame) -> pd.DataFrame:
        matches = self.stored.matching(units["hash"].to_numpy())
        decided = pd.DataFrame(
            {
                "hash": matches["key"],
                "document": matches["address"],
                "ordinal": np.where(matches["check"] == SHORT_CHECK, DECIDED_SHORT, DECIDED),
            }
        )
        return shared_units(pd.concat([units[_UNITS.columns], decided], ignore_index=True))


def shared_units(units: pd.DataFrame) -> pd.DataFrame:
    """Return the units whose hash occurs more than once, at least once in an undecided document."""
    frame = pl.DataFrame({name: units[name].to_numpy() for name in _UNITS.columns})
    # A hash that only decided documents have cuts nothing.
    shared = frame.filter(pl.len().over("hash") > 1, pl.col("ordinal").max().over("hash") >= 0)
    return pd.DataFrame({name: shared[name].to_numpy() for name in _UNITS.columns})


def _repeats(units: dd.DataFrame, files: StoredFileList) -> dd.DataFrame:
    """Return the repeats among units, with neighbouring data files in the same partition."""
    repeats = map_frames("cuts.repeats", repeats_of, units, meta=_REPEATS)
    return shuffle_by_group(repeats, files)


def repeats_of(units: pd.DataFrame) -> pd.DataFrame:
    """Return the undecided units but the first of each hash, with the columns of ``_REPEATS``."""
    frame = pl.DataFrame({name: units[name].to_numpy() for name in _UNITS.columns})
    # Addresses are numbered by arrival, so the first row of a hash is the unit that stays. It may be of
    # a decided document; units of these (negative ordinals) are never cut.
    repeats = (
        frame.sort("hash", "document", "ordinal")
        .with_columns(is_first=pl.col("hash").ne_missing(pl.col("hash").shift(1)))
        .with_columns(keeper=pl.when("is_first").then(pl.col("document")).forward_fill())
        .filter(~pl.col("is_first") & (pl.col("ordinal") >= 0))
    )
    bucket = group_of(repeats["document"].to_numpy())
    columns = {name: repeats[name].to_numpy() for name in ("document", "ordinal", "keeper")}
    return pd.DataFrame({**columns, "bucket": bucket})


class _CutUnits(NamedTuple):
    """Units to cut, by document and position, each once."""

    documents: NDArray[np.int64]  # (n,) addresses
    ordinals: NDArray[np.int64]  # (n,) positions of the units in their documents
    keepers: NDArray[np.int64]  # (n,) addresses of the documents that keep the units

    @classmethod
    def of(cls, repeats: pd.DataFrame, span: int) -> Self:
        """Return all units of the repeated spans; a span is ``span`` units that are compared together."""
        documents, ordinals, keepers = (
            np.repeat(repeats[name].to_numpy(), span) for name in ("document", "ordinal", "keeper")
        )
        # Spans of 3 sentences that begin at 4 and 5 overlap. Repeated, their ordinals are 4 4 4 5 5 5,
        # here 4 5 6 5 6 7, and at the end 4 5 6 7: each sentence is cut once.
        ordinals = ordinals + np.arange(len(ordinals)) % span
        order = np.lexsort((ordinals, documents))  # stable: the first span decides the keeper
        documents, ordinals, keepers = documents[order], ordinals[order], keepers[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (documents[1:] != documents[:-1]) | (ordinals[1:] != ordinals[:-1])
        return cls(documents[is_new], ordinals[is_new], keepers[is_new])


class _Chars(NamedTuple):
    """Code points of documents."""

    total: NDArray[np.int64]  # (n,) in all units
    cut: NDArray[np.int64]  # (n,) in the units to cut


def _count_chars(
    unit_chars: pa.ListArray, ordinals: NDArray[np.int64], offsets: NDArray[np.int64]
) -> _Chars:
    """Return the code points of each document, given the code points of each of its units.

    The units to cut from document ``k`` are ``ordinals[offsets[k] : offsets[k + 1]]``, at least one.
    """
    chars = unit_chars.flatten().to_numpy().astype(np.int64)  # of all units
    starts = unit_chars.offsets.to_numpy()
    starts = starts - starts[0]  # (n + 1,) the first unit of each document in ``chars``
    # Documents of 2 and 3 units of 10 code points have ``starts`` 0 2 5 and in total 20 and 30. The
    # units 1 of the first and 0 of the second are numbers 1 and 2 among all.
    chars_before = np.concatenate([[0], np.cumsum(chars)])
    cut_units = np.repeat(starts[:-1], np.diff(offsets)) + ordinals
    return _Chars(
        total=np.diff(chars_before[starts]), cut=np.add.reduceat(chars[cut_units], offsets[:-1])
    )


@dataclass(frozen=True)
class _DescribeUnits:
    """The documents of a file that lose units, and these units."""

    reader: DocumentReader
    span: int  # units that are compared together

    def __call__(self, file: NumberedFile, repeats: pd.DataFrame) -> CutDocuments:
        cuts = _CutUnits.of(repeats, self.span)
        documents, first = np.unique(cuts.documents, return_index=True)
        offsets = np.append(first, len(cuts.documents))  # of each document's units in ``cuts``
        rows = row_of(documents)
        table = self.reader.read_all(file, ["row", "id", "unit_chars"])
        indices = pc.index_in(pa.array(rows), table["row"].combine_chunks())
        assert indices.null_count == 0, f"rows are missing from {file.files}"
        table = table.take(indices)
        chars = _count_chars(table["unit_chars"].combine_chunks(), cuts.ordinals, offsets)
        ordinals = pa.array(cuts.ordinals, pa.int32())
        listed = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordinals)
        ids, keepers = table["id"].combine_chunks(), cuts.keepers[first]
        return CutDocuments(rows, ids, keepers, listed, chars.cut, chars.total)
