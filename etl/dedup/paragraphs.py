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

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from distributed import Client
from numpy.typing import NDArray

from etl import schemas
from etl.compute.compute_frames import compute_frame, hold_frame
from etl.compute.frame_shuffles import (
    partitions_for,
    range_of,
    shuffle_by_range,
    shuffle_by_value,
    task_batches,
)
from etl.compute.frame_tasks import map_frames
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import SHORT_CHECK, StoredKeys, units_of
from etl.dedup.numbered_files import (
    FILES_PER_DUPLICATES_FILE,
    NumberedFile,
    address,
    file_of,
    row_of,
)
from etl.dedup.stored_file_list import StoredFileList
from etl.delta.live_rows import live_rows
from etl.kernels.hashing.sorted_sets import among, distinct
from etl.lake.table_specs import DUPLICATES
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.stages.dedup_paragraphs import DedupParagraphs


def _empty(*names: str) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype="int64") for name in names})


_UNITS = _empty("hash", "document", "ordinal")
_REPEATS = _empty("document", "ordinal", "keeper", "bucket")
_COUNT = _empty("units")
_UNITS_PER_ROW: Final = 16  # of a typical web page; only decides how many data files a task reads
_WRITTEN = pd.DataFrame({name: pd.Series(dtype=object) for name in ("data_files", "short")})
_QUESTIONS = _empty("document", "range", "bucket")
_ANSWERS = _empty("document", "range")

DECIDED: Final = -1
"""The ordinal of all units of a decided document: they are kept, so their positions do not matter."""

DECIDED_SHORT: Final = -2
"""The ordinal of all units of a decided document that was dropped as short."""


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
    units = hold_frame(client, _shared_units(inputs, earlier), label="dedup_paragraphs")
    earlier = earlier.write(inputs)
    write = _WriteRows(inputs.files, inputs.reader, stage, inputs.name, schemas.SHORT)
    repeats = _repeats(units, inputs.files)
    written = map_frames("cuts.write", write, repeats, meta=_WRITTEN)
    written = hold_frame(client, written, label="dedup_paragraphs")
    short = map_frames("cuts.short", _short_documents, written, meta=_empty("document"))
    repeats = _repeats(_leave_out_short(units, short), inputs.files)
    cut = map_frames("cuts.write", replace(write, kind=schemas.CUT), repeats, meta=_WRITTEN)
    new = _data_files(client, written) + _data_files(client, cut)
    return replace(earlier, data_files=(*earlier.data_files, *new))


def _shared_units(inputs: PassInput, earlier: PassResult) -> dd.DataFrame:
    """Return the units of all documents whose hash occurs more than once, with the columns of ``_UNITS``.

    Documents that earlier passes drop are left out.
    """
    client, files, reader = inputs.client, inputs.files, inputs.reader
    stored = StoredKeys.of(inputs.keys, files, "cut", reader)
    numbers, rows = files.chosen(lambda f: "cut" in f.kinds and "cut" not in f.keyed)
    file_parts = task_batches(numbers, rows * _UNITS_PER_ROW)
    counts = files.frame(
        file_parts, read=partial(_count_units, reader=reader), meta=_COUNT, label="cuts.count"
    )
    num_units = int(compute_frame(client, counts, label="dedup_paragraphs")["units"].sum())
    units = files.frame(
        file_parts, read=partial(_read_units, reader=reader), meta=_UNITS, label="cuts.units"
    )
    units = earlier.leave_out(units, file_parts, "document")
    units = shuffle_by_range(units, "hash", partitions_for(num_units, stored.rows))
    return map_frames("cuts.shared", _ShareUnits(stored), units, meta=_UNITS)


def _count_units(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    """Return the number of units in a file, read from the footers."""
    count = 0
    for part in file.files:
        with live_rows(reader.table_of(file), part) as opened:
            groups = [opened.footer.row_group(k) for k in opened.groups]
        columns = [group.column(k) for group in groups for k in range(group.num_columns)]
        count += sum(c.num_values for c in columns if c.path_in_schema.startswith("unit_hashes."))
    return pd.DataFrame({"units": [count]})


def _read_units(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    """Return the units of a file that are compared, with the columns of ``_UNITS``."""
    units = units_of(reader.read(file, ["unit_hashes"]))
    documents = address(np.int64(file.number), units.rows)
    ordinals = units.ordinals
    if file.decided:
        is_short = among(units.rows, reader.listed_rows(file, [schemas.SHORT]))
        ordinals = np.where(is_short, DECIDED_SHORT, DECIDED)
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


def _leave_out_short(units: dd.DataFrame, short: dd.DataFrame) -> dd.DataFrame:
    """Return the units of the documents that stay, in their partitions.

    ``short`` has the documents that are dropped, in the partitions of ``_repeats``. If there are several of
    both, each partition of units asks for its documents.
    """
    if units.npartitions > 1 and short.npartitions > 1:
        ask = partial(questions, partitions=units.npartitions)
        asked = map_frames("cuts.short", ask, units, meta=_QUESTIONS)
        asked = shuffle_by_value(asked, "bucket", short.npartitions)
        answered = map_frames("cuts.short", answers, short, asked, meta=_ANSWERS)
        short = shuffle_by_value(answered, "range", units.npartitions)
    else:
        short = short.repartition(npartitions=1)  # all partitions of units get it
    return map_frames("cuts.short", without_short, units, short, meta=_UNITS)


def questions(units: pd.DataFrame, *, partitions: int) -> pd.DataFrame:
    """Return the undecided documents of a partition of units, with a range that leads back to it."""
    documents = distinct(units["document"].to_numpy()[units["ordinal"].to_numpy() >= 0])
    # Any range of a partition leads back to it, so the first unit's is enough.
    own = range_of(units["hash"].to_numpy()[:1], partitions)
    columns = {"document": documents, "range": np.resize(own, len(documents))}
    return pd.DataFrame(columns).assign(bucket=file_of(documents) // FILES_PER_DUPLICATES_FILE)


def answers(short: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """Return the documents in ``asked`` that are short, for the partitions that asked."""
    is_short = among(asked["document"].to_numpy(), short["document"].to_numpy())
    return asked[is_short][["document", "range"]]


def without_short(units: pd.DataFrame, short: pd.DataFrame) -> pd.DataFrame:
    """Return the units of the documents that stay; ``short`` has those that are dropped."""
    goes = among(units["document"].to_numpy(), short["document"].to_numpy())
    return units[~goes & (units["ordinal"] != DECIDED_SHORT)]


def _repeats(units: dd.DataFrame, files: StoredFileList) -> dd.DataFrame:
    """Return the repeats among units, with neighbouring data files in the same partition."""
    repeats = map_frames("cuts.repeats", repeats_of, units, meta=_REPEATS)
    groups = 1 + len(files) // FILES_PER_DUPLICATES_FILE
    return shuffle_by_value(repeats, "bucket", min(repeats.npartitions, groups))


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
    bucket = file_of(repeats["document"].to_numpy()) // FILES_PER_DUPLICATES_FILE
    columns = {name: repeats[name].to_numpy() for name in ("document", "ordinal", "keeper")}
    return pd.DataFrame({**columns, "bucket": bucket})


def _data_files(client: Client, written: dd.DataFrame) -> list[DataFile]:
    """Return the data files that ``_WriteRows`` has written."""
    name = "data_files"  # the driver needs no more
    column = map_frames("cuts.write", itemgetter([name]), written, meta=_WRITTEN[[name]])
    texts = compute_frame(client, column, label="dedup_paragraphs")[name]
    return [DataFile(**fields) for text in texts for fields in json.loads(text)]


def _short_documents(written: pd.DataFrame) -> pd.DataFrame:
    """Return the addresses of the documents that ``_WriteRows`` has written as short."""
    parts = [np.frombuffer(short, np.int64) for short in written["short"]]
    return pd.DataFrame({"document": np.concatenate([np.empty(0, np.int64), *parts])})


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
class _WriteRows:
    """Partition task that writes rows of one kind, one data file per group of neighbouring data files."""

    files: StoredFileList
    reader: DocumentReader
    stage: DedupParagraphs
    name: str  # prefix of the names of new data files
    kind: str  # CUT or SHORT

    def __call__(self, repeats: pd.DataFrame) -> pd.DataFrame:
        data_files: list[dict[str, Any]] = []
        short: list[NDArray[np.int64]] = []
        keeper_files = np.unique(file_of(repeats["keeper"].to_numpy()))
        sources = self.files.fields(keeper_files, ["source"])["source"]
        # One data file for each group of neighbouring files, so that their rows in
        # ``duplicates`` are found together.
        for _, group in repeats.groupby("bucket"):
            url, schema = self.reader.duplicates, self.reader.duplicates_schema
            writer = DataFileWriter(url, schema, DUPLICATES.layout, name=self.name)
            numbers = file_of(group["document"].to_numpy())
            files = self.files.take(np.unique(numbers))
            for file, (_, part) in zip(files, group.groupby(numbers), strict=True):
                rows = self._rows(file, part, sources)
                writer.append(rows)
                if self.kind == schemas.SHORT:
                    row_numbers = rows["row"].combine_chunks().to_numpy()
                    short.append(address(np.int64(file.number), row_numbers))
            data_files.extend(asdict(data_file) for data_file in writer.close())
        documents = np.concatenate([np.empty(0, np.int64), *short]).tobytes()
        return pd.DataFrame({"data_files": [json.dumps(data_files)], "short": [documents]})

    def _rows(
        self, file: NumberedFile, repeats: pd.DataFrame, sources: "pd.Series[str]"
    ) -> pa.Table:
        """Return the rows of ``duplicates`` for one file: its documents that are of the kind.

        ``sources`` has the source of each keeper's data file, by the number of the file.
        """
        cuts = _CutUnits.of(repeats, self.stage.joint)
        documents, first = np.unique(cuts.documents, return_index=True)
        offsets = np.append(first, len(cuts.documents))  # of each document's units in ``cuts``
        table = self._documents(file, row_of(documents))
        chars = _count_chars(table["unit_chars"].combine_chunks(), cuts.ordinals, offsets)
        # A document without any rest is short, even if the stage has no minimum.
        is_short = chars.total - chars.cut < max(self.stage.min_rest_chars, 1)
        is_of_kind = is_short if self.kind == schemas.SHORT else ~is_short
        keepers = cuts.keepers[first]
        size = len(documents)
        columns = {
            "source": pa.array([file.source] * size),
            "row": table["row"],
            "id": table["id"],
            "keeper_source": pa.array(sources.loc[file_of(keepers).tolist()]),
            "keeper_row": pa.array(row_of(keepers)),
            "kind": pa.array([self.kind] * size),
            "similarity": pa.array(chars.cut / np.maximum(chars.total, 1)),
            "unit": pa.array([file.unit] * size),
            "is_estimate": pa.nulls(size, pa.bool_()),
            "keeper_lake": pa.nulls(size, pa.string()),  # units are compared within the lake
            "cut": pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), pa.array(cuts.ordinals, pa.int32())
            ),
            "cut_chars": pa.array(chars.cut),
        }
        schema = self.reader.duplicates_schema
        rows = pa.table([columns[name] for name in schema.names], schema.names).cast(schema)
        return rows.filter(pa.array(is_of_kind))

    def _documents(self, file: NumberedFile, rows: NDArray[np.int64]) -> pa.Table:
        """Return ``row``, ``id`` and ``unit_chars`` of the given rows of a file, in their order."""
        table = self.reader.read_all(file, ["row", "id", "unit_chars"])
        indices = pc.index_in(pa.array(rows), table["row"].combine_chunks())
        assert indices.null_count == 0, f"rows are missing from {file.files}"
        return table.take(indices)
