"""Deduplication in one process: all keys, pairs and decisions in memory, without partitions or shuffles.

``checked`` runs it beside the passes on the workers, and compares the rows that both write.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from distributed import Client

from etl import schemas, storage
from etl.dedup import exact, minhash, paragraphs
from etl.dedup.cut_rows import CutRowWriter
from etl.dedup.document_reader import DocumentReader
from etl.dedup.keeper_choice import choose_among
from etl.dedup.key_lookup import StoredKeys
from etl.dedup.numbered_files import NumberedFile
from etl.dedup.pair_rows import PAIRS
from etl.dedup.pairs import PairWriter, _with_buckets
from etl.dedup.short_documents import DECIDED_SHORT
from etl.dedup.similarity import SimilarityCheck
from etl.dedup.stored_file_list import StoredFileList, store_file_list
from etl.lake.keys_table import KeyFile, Kind
from etl.parquet.data_file import DataFile
from etl.stages import DedupExact, DedupMinhash, DedupParagraphs

FindDuplicates = Callable[..., list[DataFile]]


def join_in_memory(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of two passes: a keeper that the later one drops is replaced by its own keeper."""
    moved = later.rename(columns={name: f"new_{name}" for name in PAIRS.columns})
    # Int64 has nulls, as float64 has, but is exact beyond 2^53.
    moved = moved.astype({"new_keeper": "Int64", "new_kind": "Int64", "new_is_estimate": "boolean"})
    pairs = earlier.merge(moved, left_on="keeper", right_on="new_document", how="left")
    names = [name for name in PAIRS.columns if name != "document"]
    new = {name: pairs[f"new_{name}"].fillna(pairs[name]) for name in names}
    kept = pairs.assign(**new).astype(PAIRS.dtypes)
    return pd.concat([later, kept[list(PAIRS.columns)]], ignore_index=True)


class NaivePasses:
    """The passes over one list of files, with the pairs found so far."""

    def __init__(
        self, files: StoredFileList, reader: DocumentReader, keys: Sequence[KeyFile], name: str
    ) -> None:
        self._files, self._reader, self._name = files, reader, name
        self._numbered = list(files)
        self._settled = files.chosen(lambda file: file.decided and not file.earlier)[0]
        self._keys = keys
        self._pairs = PAIRS
        self.written: list[pd.DataFrame] = []

    def run(self) -> None:
        """Run the passes of all stages; write their decisions."""
        kinds = {kind for stage in self._reader.stages for kind in stage.kinds}
        for stage in self._reader.stages:
            if isinstance(stage, DedupExact):
                self._exact("exact")
            elif isinstance(stage, DedupMinhash):
                if "exact" not in kinds:
                    self._exact("near")
                self._near(stage)
            elif isinstance(stage, DedupParagraphs):
                self._cut(stage)
        writer = PairWriter(self._files, self._reader, self._name)
        self.written.append(writer(_with_buckets(self._pairs)))

    def _join(self, pairs: pd.DataFrame) -> None:
        self._pairs = join_in_memory(self._pairs, pairs[list(PAIRS.columns)])

    def _read(
        self, kind: Kind, read: Callable[..., pd.DataFrame], column: str, **settings: Any
    ) -> pd.DataFrame:
        """Return what a pass reads of the files without stored keys, without the dropped documents."""
        files = [f for f in self._numbered if kind in f.kinds and kind not in f.keyed]
        frame = pd.concat([read(file, reader=self._reader, **settings) for file in files])
        return frame[~frame[column].isin(self._pairs["document"])]

    def _stored(self, kind: Kind) -> StoredKeys:
        return StoredKeys.of(self._keys, self._files, kind, self._reader)

    def _exact(self, kind: str) -> None:
        hashes = self._read("exact", exact._read_hashes, "document")
        pair = exact.PairEqual(self._stored("exact"), self._settled, schemas.WHOLE.index(kind))
        self._join(pair(hashes))

    def _near(self, stage: DedupMinhash) -> None:
        bands = self._read("near", minhash._read_bands, "address", stage=stage)
        candidates = minhash._PairCandidates(self._stored("near"), self._settled)(bands)
        check = SimilarityCheck(self._files, self._reader, stage, 1, has_all=True)
        similar = check.estimate(check.sign(candidates))
        if stage.verify != "estimate":
            similar = check.compare_texts(similar, 0)
        self._join(choose_among(similar).assign(kind=schemas.WHOLE.index("near")))

    def _cut(self, stage: DedupParagraphs) -> None:
        units = self._read("cut", paragraphs._read_units, "document")
        units = paragraphs._ShareUnits(self._stored("cut"))(units)
        describe = paragraphs._DescribeUnits(self._reader, stage.joint)
        write = CutRowWriter(self._files, self._reader, self._name, stage.min_rest_chars, describe)
        self.written.append(write(paragraphs.repeats_of(units)))
        short = np.frombuffer(self.written[-1]["short"][0], np.int64)
        is_short = units["document"].isin(short) | (units["ordinal"] == DECIDED_SHORT)
        write = replace(write, kind=schemas.CUT)
        self.written.append(write(paragraphs.repeats_of(units[~is_short])))


def checked(find_duplicates: FindDuplicates, found: list[int]) -> FindDuplicates:
    """Return the function, which also checks that the naive passes write the same rows.

    ``found`` gets the number of rows of each call.
    """

    def find(
        client: Client,
        files: Iterable[NumberedFile],
        reader: DocumentReader,
        *,
        name: str,
        keys: Sequence[KeyFile] = (),
    ) -> list[DataFile]:
        data_files = find_duplicates(client, files, reader, name=name, keys=keys)
        with store_file_list(files, reader.duplicates, "e" * 32) as stored:
            naive = NaivePasses(stored, reader, keys, "e" * 32)
            naive.run()
        expected = [file for frame in naive.written for file in _data_files(frame)]
        rows = _rows(reader, data_files)
        assert rows == _rows(reader, expected)
        assert sum(file.rows for file in data_files) == len(rows)
        for file in expected:
            storage.remove(storage.join(reader.duplicates, file.path))
        found.append(len(rows))
        return data_files

    return find


def _data_files(written: pd.DataFrame) -> list[DataFile]:
    return [DataFile(**fields) for text in written["data_files"] for fields in json.loads(text)]


def _rows(reader: DocumentReader, data_files: Sequence[DataFile]) -> list[str]:
    """Return all values of all rows, in an order that does not depend on the files."""
    found: list[str] = []
    for data_file in data_files:
        with storage.open_input(storage.join(reader.duplicates, data_file.path)) as source:
            found += map(str, pq.read_table(source).to_pylist())
    return sorted(found)
