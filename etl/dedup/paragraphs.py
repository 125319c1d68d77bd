"""What stands in several documents, over the whole lake: cut out of all but the first of them.

1. The hash of each unit is brought together with its equals; all of these but the first, by address of the
   document and place in it, are repeats. Documents that were decided by an earlier run come first.
2. Repeats go to their documents, and those of which too little would stay are left out.
3. The same again without what is left out, so that nothing is cut for the sake of a document that is not
   there: then less goes than before, and no document becomes short.

What becomes of a document depends on what comes before it alone: a run that adds files gives the result
of one run over all of them if the new files come after the old ones.

Cost: the columns of ``schemas.UNITS``, read twice (once, if nothing is left out), 24 bytes a unit through
the shuffle, and 32 a repeat; all units with one hash are in one place. The driver holds 8 bytes for each
document that is left out. Text is not read.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from distributed import Client
from numpy.typing import NDArray

from etl import schemas, storage
from etl.compact_collections import SpilledList
from etl.compute import shuffle
from etl.compute.shuffle import shuffle_by_value, task_batches
from etl.compute.submit import compute_frame
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import (
    FILES_PER_FRAGMENT,
    ROW_BITS,
    NumberedFile,
    address,
    file_of,
    of_files,
    row_of,
)
from etl.dedup.stored_file_list import StoredFileList, store_file_list
from etl.delta.data_file import DataFile, DataFileWriter
from etl.kernels.lines.text_units import NOT_COMPARED
from etl.lake.dedup_decisions import RangeIndex, duplicate_rows
from etl.lake.tables import DUPLICATES


def _empty(*names: str) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype="int64") for name in names})


_KEYS = _empty("hash", "document", "ordinal")
_REPEATS = _empty("document", "ordinal", "keeper", "bucket")
_COUNT = _empty("units")
_UNITS_PER_ROW: Final = 16  # as a web page has; it says how many data files one task reads, no more
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


def find_repeated_passages(
    client: Client,
    files: SpilledList[NumberedFile],
    lake: DocumentReader,
    *,
    name: str,
    decided: Sequence[DataFile],
) -> list[DataFile]:
    """Write what is cut and what is left out, of undecided documents, to fragments of ``duplicates``.

    ``name`` is the head of the new files' names; ``decided`` are fragments that say which of these
    documents are duplicates as a whole.
    """
    lake = replace(lake, stage=None)  # first come, first kept
    with store_file_list(_ordered(files, decided), lake.duplicates, name) as numbered:
        repeats = client.persist(_repeats(client, numbered, lake, left_out=None))
        fragments, short = _written(client, repeats, _Write(numbered, lake, name, schemas.SHORT))
        if len(short) or any(file.duplicates for file in files if file.decided):
            repeats = _repeats(client, numbered, lake, left_out=short)
        cut, _ = _written(client, repeats, _Write(numbered, lake, name, schemas.CUT))
    return fragments + cut


def num_cut(fragments: Sequence[DataFile]) -> int:
    """How many documents are cut, by fragments of ``duplicates``."""
    kinds = [json.loads(fragment.statistics)["maxValues"]["kind"] for fragment in fragments]
    return sum(f.rows for f, kind in zip(fragments, kinds, strict=True) if kind == schemas.CUT)


def _ordered(
    files: SpilledList[NumberedFile], fragments: Sequence[DataFile]
) -> Iterator[NumberedFile]:
    """The files numbered anew, decided ones first; undecided ones with what has just been written."""
    named = ((json.loads(f.statistics), f.path) for f in fragments)
    spans = RangeIndex(
        (s["minValues"]["source"], s["maxValues"]["source"], path) for s, path in named
    )
    numbers = count()
    for file in files:
        if file.decided:
            yield replace(file, number=next(numbers))
    for file in files:
        if not file.decided:
            yield replace(file, number=next(numbers), duplicates=spans.files_around(file.source))


def _repeats(
    client: Client,
    files: StoredFileList,
    lake: DocumentReader,
    *,
    left_out: NDArray[np.int64] | None,
) -> dd.DataFrame:
    """The units of undecided documents that stand in others before, as ``_REPEATS``.

    ``left_out`` are undecided documents that count for nothing, and then neither do decided ones that
    are left out; with None all do.
    """
    numbers, rows = files.chosen(lambda _: True)
    read = task_batches(numbers, rows * _UNITS_PER_ROW)
    counted = files.frame(
        read, read=partial(_count_units, lake=lake), meta=_COUNT, label="units-count"
    )
    total = int(compute_frame(client, counted["units"].sum(), label="dedup_paragraphs"))
    partitions = 1 + total // shuffle.ROWS_PER_PARTITION
    keys = files.frame(
        read,
        [None if left_out is None else of_files(left_out, part) for part in read],
        read=partial(_read_units, lake=lake),
        meta=_KEYS,
        label="dedup_paragraphs-units",
    )
    first_new = len(files.chosen(lambda file: file.decided)[0])
    repeats = shuffle_by_value(keys, "hash", partitions).map_partitions(
        repeats_of, first_new=first_new, meta=_REPEATS
    )
    return shuffle_by_value(
        repeats, "bucket", min(partitions, 1 + len(files) // FILES_PER_FRAGMENT)
    )


def _count_units(file: NumberedFile, *, lake: DocumentReader) -> pd.DataFrame:
    """How many units a data file has, by its footer."""
    with storage.open_input(storage.join(lake.documents, file.path)) as source:
        metadata = pq.read_metadata(source)
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    columns = [group.column(k) for group in groups for k in range(group.num_columns)]
    hashes = [column for column in columns if column.path_in_schema.startswith("unit_hashes.")]
    return pd.DataFrame({"units": [sum(column.num_values for column in hashes)]})


def _read_units(
    file: NumberedFile, left_out: NDArray[np.int64] | None, *, lake: DocumentReader
) -> pd.DataFrame:
    """The units of each document that are compared."""
    table, number = lake.read(file, ["unit_hashes"]), np.int64(file.number)
    documents = address(number, np.asarray(table["row"].combine_chunks()))
    if left_out is not None:
        if file.decided and file.duplicates:
            rows = duplicate_rows(
                lake.duplicates, file.duplicates, [file.path], kinds=[schemas.SHORT]
            )
            left_out = address(number, rows)
        stays = ~np.isin(documents, left_out)
        table, documents = table.filter(pa.array(stays)), documents[stays]
    lists = table["unit_hashes"].combine_chunks()
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    hashes = lists.flatten().to_numpy()
    is_compared = hashes != NOT_COMPARED
    return pd.DataFrame(
        {
            "hash": hashes[is_compared],
            "document": np.repeat(documents, sizes)[is_compared],
            "ordinal": _ordinals(sizes)[is_compared],
        }
    )


def _ordinals(sizes: NDArray[Any]) -> NDArray[np.int64]:
    """0 to size, for each of some sizes.

    >>> _ordinals(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - sizes, sizes)


def repeats_of(keys: pd.DataFrame, *, first_new: int) -> pd.DataFrame:
    """All units but the first of each hash, in files from the number ``first_new`` on, as ``_REPEATS``."""
    frame = pl.DataFrame({name: keys[name].to_numpy() for name in _KEYS.columns})
    document = pl.col("document")
    found = (
        frame.filter(pl.len().over("hash") > 1)
        .sort("hash", "document", "ordinal")
        .with_columns(is_first=pl.col("hash").ne_missing(pl.col("hash").shift(1)))
        .with_columns(keeper=pl.when("is_first").then(document).forward_fill())
        .filter(~pl.col("is_first") & (document >= first_new << ROW_BITS))
    )
    bucket = file_of(found["document"].to_numpy()) // FILES_PER_FRAGMENT
    columns = {name: found[name].to_numpy() for name in ("document", "ordinal", "keeper")}
    return pd.DataFrame({**columns, "bucket": bucket})


def _written(
    client: Client, repeats: dd.DataFrame, write: "_Write"
) -> tuple[list[DataFile], NDArray[np.int64]]:
    """The fragments, and the documents that they name."""
    written = compute_frame(
        client, repeats.map_partitions(write, meta=_RESULT), label="dedup_paragraphs"
    )
    answers = written["result"]
    found: dict[str, list[Any]] = defaultdict(list)
    for answer in answers:
        for name, values in json.loads(answer).items():
            found[name] += values
    fragments = [DataFile(**fragment) for fragment in found["fragments"]]
    return fragments, np.sort(np.array(found["documents"], np.int64))


@dataclass(frozen=True)
class _Write:
    """Repeats -> rows of ``duplicates`` of one kind, a fragment per group of neighbouring data files."""

    files: StoredFileList
    lake: DocumentReader
    name: str
    kind: str  # CUT or SHORT

    def __call__(self, repeats: pd.DataFrame) -> pd.DataFrame:
        fragments: list[dict[str, Any]] = []
        documents: list[int] = []
        keepers = np.unique(file_of(repeats["keeper"].to_numpy()))
        sources = self.files.fields(keepers, ["source"])["source"]
        for _, group in repeats.groupby("bucket"):
            writer = DataFileWriter(
                self.lake.duplicates, self.lake.schema, DUPLICATES.layout, name=self.name
            )
            numbers = file_of(group["document"].to_numpy())
            files = self.files.take(np.unique(numbers))
            for file, (_, part) in zip(files, group.groupby(numbers), strict=True):
                rows = self._rows(file, part, sources)
                writer.append(rows)
                if self.kind == schemas.SHORT:
                    numbers = rows["row"].combine_chunks().to_numpy()
                    documents += address(np.int64(file.number), numbers).tolist()
            fragments.extend(asdict(fragment) for fragment in writer.close())
        answer = json.dumps({"fragments": fragments, "documents": documents})
        return pd.DataFrame({"result": pd.Series([answer], dtype=object)})

    def _rows(
        self, file: NumberedFile, repeats: pd.DataFrame, sources: "pd.Series[str]"
    ) -> pa.Table:
        """The documents of one file that are of the kind; ``sources`` of keepers by their file's number."""
        document, ordinal, keeper = self._spread(repeats)
        documents, first = np.unique(document, return_index=True)
        sizes = np.diff([*first, len(document)])
        table = self._documents(file, row_of(documents))
        chars = table["unit_chars"].combine_chunks()
        flat, starts = chars.flatten().to_numpy().astype(np.int64), chars.offsets.to_numpy()
        ends = np.concatenate([[0], np.cumsum(flat)])
        total = np.diff(ends[starts - starts[0]])
        places = np.repeat(starts[:-1] - starts[0], sizes) + ordinal
        cut = np.add.reduceat(flat[places], first)
        stage = self.lake.paragraphs
        assert stage is not None
        is_short = total - cut < max(stage.min_rest_chars, 1)
        chosen = is_short if self.kind == schemas.SHORT else ~is_short
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        size = len(documents)
        rows = {
            "source": pa.array([file.source] * size),
            "row": table["row"],
            "id": table["id"],
            "keeper_source": pa.array(sources.loc[file_of(keeper[first]).tolist()]),
            "keeper_row": pa.array(row_of(keeper[first])),
            "kind": pa.array([self.kind] * size),
            "similarity": pa.array(cut / np.maximum(total, 1)),
            "file": pa.array([file.path] * size),
            "keeper_lake": pa.nulls(size, pa.string()),  # units are compared within the lake
            "cut": pa.ListArray.from_arrays(offsets, pa.array(ordinal, pa.int32())),
            "cut_chars": pa.array(cut),
        }
        found = pa.table([rows[name] for name in self.lake.schema.names], self.lake.schema.names)
        return found.cast(self.lake.schema).filter(pa.array(chosen))

    def _spread(
        self, repeats: pd.DataFrame
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Document, ordinal and keeper of each unit that goes, once: all that are compared together go."""
        stage = self.lake.paragraphs
        assert stage is not None
        document, ordinal, keeper = (
            np.repeat(repeats[name].to_numpy(), stage.joint)
            for name in ("document", "ordinal", "keeper")
        )
        ordinal = ordinal + np.arange(len(ordinal)) % stage.joint
        order = np.lexsort((ordinal, document))  # stable: of several keepers that of the first span
        document, ordinal, keeper = document[order], ordinal[order], keeper[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (document[1:] != document[:-1]) | (ordinal[1:] != ordinal[:-1])
        return document[is_new], ordinal[is_new], keeper[is_new]

    def _documents(self, file: NumberedFile, rows: NDArray[np.int64]) -> pa.Table:
        """``row``, ``id`` and ``unit_chars`` of some rows of a data file, in their order."""
        with storage.open_input(storage.join(self.lake.documents, file.path)) as source:
            table = pq.read_table(source, columns=["row", "id", "unit_chars"], use_threads=False)
        places = pc.index_in(pa.array(rows), table["row"].combine_chunks())
        assert places.null_count == 0, "a row is not where it was"
        return table.take(places)
