"""Write the rows of `duplicates` for documents that lose passages: those that stay and those that do not."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from distributed import Client
from numpy.typing import NDArray

from etl import schemas
from etl.compute.compute_frames import compute_frame, hold_frame
from etl.compute.frame_tasks import map_frames
from etl.dedup.dedup_pass import PassInput
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile, address, file_of, row_of
from etl.dedup.short_documents import empty_numbers
from etl.dedup.stored_file_list import StoredFileList
from etl.delta.live_rows import live_rows
from etl.lake.table_specs import DUPLICATES
from etl.parquet.data_file import DataFile, DataFileWriter

_WRITTEN: Final = pd.DataFrame({name: pd.Series(dtype=object) for name in ("data_files", "short")})


_COUNT: Final = empty_numbers("values")


def count_values(inputs: PassInput, file_parts: Sequence[NDArray[np.int64]], column: str) -> int:
    """Return the number of elements in a column of lists in some files, read from the footers."""
    count = partial(_count_values, reader=inputs.reader, column=column)
    counts = inputs.files.frame(file_parts, read=count, meta=_COUNT, label="cuts.count")
    return int(compute_frame(inputs.client, counts, label="duplicates")["values"].sum())


def _count_values(file: NumberedFile, *, reader: DocumentReader, column: str) -> pd.DataFrame:
    count = 0
    for part in file.files:
        with live_rows(reader.table_of(file), part) as opened:
            groups = [opened.footer.row_group(k) for k in opened.groups]
        columns = [group.column(k) for group in groups for k in range(group.num_columns)]
        count += sum(c.num_values for c in columns if c.path_in_schema.startswith(f"{column}."))
    return pd.DataFrame({"values": [count]})


class CutDocuments(NamedTuple):
    """Documents of a file that lose passages, by row."""

    rows: NDArray[np.int64]  # (n,)
    ids: pa.Array  # (n,)
    keepers: NDArray[np.int64]  # (n,) addresses
    cuts: pa.ListArray  # (n,) as the column ``cut``
    cut_chars: NDArray[np.int64]  # (n,) code points cut
    all_chars: NDArray[np.int64]  # (n,) code points in all


class DescribeCuts(Protocol):
    """A function that returns the documents of a file that lose passages, given the repeats in them."""

    def __call__(self, file: NumberedFile, repeats: pd.DataFrame, /) -> CutDocuments:
        """Return the documents; repeats have the columns ``document``, ``keeper`` and the pass's own."""
        ...


@dataclass(frozen=True)
class CutRowWriter:
    """Partition task that writes rows of one kind, one data file per group of neighbouring data files.

    The partitions of repeats are by ``bucket``, the number of the group.
    """

    files: StoredFileList
    reader: DocumentReader
    name: str  # prefix of the names of new data files
    min_rest_chars: int
    describe: DescribeCuts
    kind: str = schemas.SHORT  # or CUT

    def write_short(self, client: Client, repeats: dd.DataFrame, label: str) -> "WrittenRows":
        """Write the rows of the documents of which too little remains."""
        written = map_frames(
            "cuts.write", replace(self, kind=schemas.SHORT), repeats, meta=_WRITTEN
        )
        return WrittenRows(client, hold_frame(client, written, label=label), label)

    def write_cut(self, client: Client, repeats: dd.DataFrame, label: str) -> "WrittenRows":
        """Write the rows of the documents that stay."""
        written = map_frames("cuts.write", replace(self, kind=schemas.CUT), repeats, meta=_WRITTEN)
        return WrittenRows(client, written, label)

    def __call__(self, repeats: pd.DataFrame) -> pd.DataFrame:
        """Write the rows of a partition; return the data files and the short documents."""
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
                rows = self._rows(file, self.describe(file, part), sources)
                writer.append(rows)
                if self.kind == schemas.SHORT:
                    row_numbers = rows["row"].combine_chunks().to_numpy()
                    short.append(address(np.int64(file.number), row_numbers))
            data_files.extend(asdict(data_file) for data_file in writer.close())
        documents = np.concatenate([np.empty(0, np.int64), *short]).tobytes()
        return pd.DataFrame({"data_files": [json.dumps(data_files)], "short": [documents]})

    def _rows(
        self, file: NumberedFile, documents: CutDocuments, sources: "pd.Series[str]"
    ) -> pa.Table:
        """Return the rows of ``duplicates`` for one file: its documents that are of the kind.

        ``sources`` has the source of each keeper's data file, by the number of the file.
        """
        # A document without any rest is short, even if the stage has no minimum.
        rest = documents.all_chars - documents.cut_chars
        is_short = rest < max(self.min_rest_chars, 1)
        is_of_kind = is_short if self.kind == schemas.SHORT else ~is_short
        keepers, size = documents.keepers, len(documents.rows)
        columns = {
            "source": pa.array([file.source] * size),
            "row": pa.array(documents.rows),
            "id": documents.ids,
            "keeper_source": pa.array(sources.loc[file_of(keepers).tolist()]),
            "keeper_row": pa.array(row_of(keepers)),
            "kind": pa.array([self.kind] * size),
            "similarity": pa.array(documents.cut_chars / np.maximum(documents.all_chars, 1)),
            "unit": pa.array([file.unit] * size),
            "is_estimate": pa.nulls(size, pa.bool_()),
            "keeper_lake": pa.nulls(size, pa.string()),  # passages are compared within the lake
            "cut": documents.cuts,
            "cut_chars": pa.array(documents.cut_chars),
        }
        schema = self.reader.duplicates_schema
        rows = pa.table([columns[name] for name in schema.names], schema.names).cast(schema)
        return rows.filter(pa.array(is_of_kind))


@dataclass(frozen=True)
class WrittenRows:
    """What the tasks of ``CutRowWriter`` have written."""

    client: Client
    frame: dd.DataFrame
    label: str

    def data_files(self) -> list[DataFile]:
        """Return the data files."""
        name = "data_files"  # the driver needs no more
        column = map_frames("cuts.write", itemgetter([name]), self.frame, meta=_WRITTEN[[name]])
        texts = compute_frame(self.client, column, label=self.label)[name]
        return [DataFile(**fields) for text in texts for fields in json.loads(text)]

    def short(self) -> dd.DataFrame:
        """Return the addresses of the short documents, in the partitions of their repeats."""
        return map_frames("cuts.short", _short, self.frame, meta=empty_numbers("document"))


def _short(written: pd.DataFrame) -> pd.DataFrame:
    parts = [np.frombuffer(short, np.int64) for short in written["short"]]
    return pd.DataFrame({"document": np.concatenate([np.empty(0, np.int64), *parts])})
