"""What a worker does with one unit of work of a shuffle: split files into buckets, or sort one bucket."""

import uuid
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from etl import storage
from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.job.bucket_files import COLUMNS, BucketFile, BucketWriter, read_bucket, read_list
from etl.lake.table_specs import SHUFFLED
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.schemas import TOKENS
from etl.schemas.shuffled_files import Bucket

_SLICE_BYTES = 16 << 20  # of tokens that are copied in their order at a time


@dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """The task of the first pass: write the rows of some data files of ``tokens`` by bucket."""

    tokens: str  # URL of the table
    folder: str  # of the bucket files
    buckets: int
    seed: int
    run_bytes: int

    def __call__(self, files: tuple[LogicalFile, ...]) -> BucketFile:
        """Run the task for some data files, which may have more rows than memory holds."""
        name = f"{uuid.uuid4().hex}.bin"
        num_tokens = 0
        with storage.open_output(storage.join(self.folder, name)) as output:
            writer = BucketWriter(
                output, buckets=self.buckets, seed=self.seed, run_bytes=self.run_bytes
            )
            for file in files:
                for rows in read_live_row_groups(self.tokens, file, COLUMNS):
                    num_tokens += int(pc.sum(rows["num_tokens"]).as_py() or 0)
                    writer.append(rows)
            writer.finish_run()
        return BucketFile(
            name=name,
            tables=tuple(writer.tables),
            rows=writer.rows,
            tokens=num_tokens,
            digest=writer.digest,
        )


@dataclass(frozen=True, kw_only=True)
class SortedBucket:
    """A bucket as it was written: its data file, none if it has no rows, its rows and its tokens."""

    files: tuple[DataFile, ...]
    rows: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class SortBucket:
    """The task of the second pass: write the rows of a bucket in the order of their keys."""

    url: str  # of the table ``tokens_shuffled``
    folder: str  # of the bucket files
    files: str  # URI of their list
    buckets: int
    part: str
    row_group_bytes: int

    def __call__(self, bucket: int) -> SortedBucket:
        """Run the task for one bucket, which must fit into memory twice."""
        parts = [
            part
            for file in read_list(self.files)
            for part in read_bucket(self.folder, file, bucket)
        ]
        if not parts:
            return SortedBucket(files=(), rows=0, tokens=0)
        rows = pa.concat_tables(parts).combine_chunks()
        del parts
        order = [(name, "ascending") for name in ("key", "source", "row")]
        indices = pc.sort_indices(rows, sort_keys=order)
        rows = rows.select(list(COLUMNS))
        writer = DataFileWriter(
            self.url,
            TOKENS,
            replace(SHUFFLED.layout, row_group_bytes=self.row_group_bytes),
            name=Bucket(bucket, self.buckets).file_key(self.part),
        )
        step = max(rows.num_rows * _SLICE_BYTES // max(rows["tokens"].nbytes, 1), 1)
        for start in range(0, rows.num_rows, step):
            writer.append(rows.take(indices.slice(start, step)))
        num_tokens = int(pc.sum(rows["num_tokens"]).as_py() or 0)
        files = tuple(writer.close())
        return SortedBucket(files=files, rows=sum(file.rows for file in files), tokens=num_tokens)
