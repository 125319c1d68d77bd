"""Join the pairs (dropped document, keeper) of two passes, and write them to `duplicates`, on the workers."""

import json
from dataclasses import asdict, dataclass

import dask.dataframe as dd
import pandas as pd
from distributed import Client

from etl.compute.compute_frames import compute_frame
from etl.compute.frame_shuffles import shuffle_by_value
from etl.compute.frame_tasks import map_frames
from etl.dedup.document_reader import DocumentReader
from etl.dedup.file_groups import group_of
from etl.dedup.group_shuffle import shuffle_by_group
from etl.dedup.pair_rows import PAIRS, replace_dropped_keepers, write_pairs
from etl.dedup.stored_file_list import StoredFileList
from etl.parquet.data_file import DataFile

_BUCKETS = PAIRS.assign(bucket=pd.Series(dtype="int64"))
_WRITTEN = pd.DataFrame({"data_files": pd.Series(dtype=object)})


def join_pairs(earlier: dd.DataFrame, later: dd.DataFrame) -> dd.DataFrame:
    """Return the pairs of two passes; ``later`` leaves out the documents that ``earlier`` drops.

    If the later pass drops the keeper of an earlier pair, its document gets the keeper, similarity and kind
    of that later pair: its text is that of the dropped keeper. So no keeper is a duplicate itself. Both are
    shuffled by the document that a pair of each may share: the earlier keeper, which the later pass drops.
    """
    partitions = max(earlier.npartitions, later.npartitions)
    earlier = shuffle_by_value(earlier, "keeper", partitions)
    later = shuffle_by_value(later, "document", partitions)
    return map_frames("pairs.join", replace_dropped_keepers, earlier, later, meta=PAIRS)


@dataclass(frozen=True)
class PairWriter:
    """Partition task that writes pairs, one data file per group of neighbouring files."""

    files: StoredFileList
    reader: DocumentReader
    name: str  # prefix of the names of new data files

    def write(self, client: Client, pairs: dd.DataFrame) -> list[DataFile]:
        """Write all pairs on the workers and return the new data files."""
        pairs = map_frames("pairs.group", _with_buckets, pairs, meta=_BUCKETS)
        pairs = shuffle_by_group(pairs, self.files)
        results = map_frames("pairs.write", self, pairs, meta=_WRITTEN)
        written = compute_frame(client, results, label="duplicates")
        return [DataFile(**fields) for text in written["data_files"] for fields in json.loads(text)]

    def __call__(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Write the pairs of some buckets and return the fields of the new data files as JSON."""
        written = map(asdict, write_pairs(pairs, self.files, self.reader, self.name))
        return pd.DataFrame({"data_files": [json.dumps([*written])]})


def _with_buckets(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs.assign(bucket=group_of(pairs["document"].to_numpy()))
