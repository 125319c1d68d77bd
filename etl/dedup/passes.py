"""Run the deduplication passes of a recipe in order, and write their decisions."""

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

from etl import schemas, storage
from etl.compute.shuffle import shuffle_by_value
from etl.compute.submit import compute_frame, map_unordered, to_tokenlake_error
from etl.dedup import minhash
from etl.dedup.document_reader import DocumentReader
from etl.dedup.exact import find_equal
from etl.dedup.numbered_files import FILES_PER_FRAGMENT, NumberedFile
from etl.dedup.stored_file_list import StoredFileList, store_file_list
from etl.delta.data_file import DataFile, DataFileWriter
from etl.lake.keys_table import KeyFile
from etl.lake.tables import DUPLICATES

_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


def find_duplicates(
    client: Client,
    files: Iterable[NumberedFile],
    lake: DocumentReader,
    *,
    name: str,
    has_exact: bool = True,
    keys: Sequence[KeyFile] = (),
) -> list[DataFile]:
    """Write the duplicates among undecided rows to fragments of ``duplicates`` and return the fragments.

    ``name`` is the prefix of the new files' names. Near-duplicates are searched for if the lake has a stage
    for them; with ``has_exact``, equal texts are reported as exact duplicates instead of near ones. ``keys``
    are data files of the table ``keys`` with the keys of the ``files`` that are marked as keyed; the other
    files are read.
    """
    if lake.stage is None and not has_exact:
        return []
    with store_file_list(files, lake.duplicates, name) as numbered:
        equal, partitions = find_equal(numbered, lake, keys)
        writer = _WritePairs(numbered, lake, name)
        if lake.stage is None:
            groups = 1 + len(numbered) // FILES_PER_FRAGMENT
            pairs = shuffle_by_value(equal, "bucket", min(partitions, groups))
            results = pairs.map_partitions(writer.of, meta=_RESULT)
            written = compute_frame(client, results, label="dedup_exact")["result"]
            return [DataFile(**fragment) for text in written for fragment in json.loads(text)]
        # Only the best of equal texts enters the near search, so no keeper is itself a duplicate.
        equal_pairs = compute_frame(client, equal, label="dedup_exact")
        duplicates = minhash.find_similar(
            client, numbered, lake, equal=equal_pairs, has_exact=has_exact, keys=keys
        )
        return _write_pairs(client, writer, duplicates)


def _write_pairs(client: Client, writer: "_WritePairs", pairs: pd.DataFrame) -> list[DataFile]:
    pairs["bucket"] = pairs["file"] // FILES_PER_FRAGMENT
    groups = [(group,) for _, group in pairs.groupby("bucket")]
    fragments: list[DataFile] = []
    with closing(map_unordered(client, writer, groups, label="dedup_minhash-write")) as answers:
        for _, answer in answers:
            if isinstance(answer, BaseException):
                raise to_tokenlake_error(answer, "dedup_minhash") from answer
            fragments.extend(DataFile(**fragment) for fragment in json.loads(answer))
    return fragments


@dataclass(frozen=True)
class _WritePairs:
    """Task that writes pairs to ``duplicates``, one fragment per group of neighbouring data files."""

    files: StoredFileList
    lake: DocumentReader
    name: str

    def of(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Write a partition of exact pairs and return the result as a one-row frame."""
        pairs = pairs.assign(similarity=1.0, is_near=False)
        return pd.DataFrame({"result": pd.Series([self(pairs)], dtype=object)})

    def __call__(self, pairs: pd.DataFrame) -> str:
        fragments: list[dict[str, Any]] = []
        keepers = self.files.fields(np.unique(pairs["keeper_file"].to_numpy()), ["source", "lake"])
        for _, group in pairs.sort_values(["bucket", "file", "row"]).groupby("bucket"):
            url = self.lake.duplicates
            writer = DataFileWriter(url, self.lake.schema, DUPLICATES.layout, name=self.name)
            files = self.files.take(np.unique(group["file"].to_numpy()))
            for file, (_, rows) in zip(files, group.groupby("file"), strict=True):
                writer.append(self._rows(file, rows, keepers.loc[rows["keeper_file"]]))
            fragments.extend(asdict(fragment) for fragment in writer.close())
        return json.dumps(fragments)

    def _rows(self, file: NumberedFile, pairs: pd.DataFrame, keepers: pd.DataFrame) -> pa.Table:
        """Return the rows for the pairs of one file.

        ``keepers`` has, for each pair, the source and lake of its keeper's data file.
        """
        with storage.open_input(self.lake.uri(file)) as source:
            ids = pq.read_table(source, columns=["row", "id"], use_threads=False)
        rows = pa.array(pairs["row"].to_numpy())
        lakes = {"keeper_lake": pa.array(keepers["lake"])}
        size = len(rows)
        table = pa.table(
            {
                "source": pa.array([file.source] * size),
                "row": rows,
                "id": ids["id"].take(pa.compute.index_in(rows, ids["row"].combine_chunks())),
                "keeper_source": pa.array(keepers["source"]),
                "keeper_row": pa.array(pairs["keeper_row"].to_numpy()),
                "kind": pa.array(np.where(pairs["is_near"], "near", "exact").tolist()),
                "similarity": pa.array(pairs["similarity"].to_numpy()),
                "file": pa.array([file.path] * size),
                **(lakes if self.lake.has_references else {}),
            },
            schema=pa.schema([f for f in self.lake.schema if f.name not in schemas.CUTS.names]),
        )
        return pa.concat_tables([self.lake.schema.empty_table(), table], promote_options="default")
