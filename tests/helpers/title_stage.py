"""A deduplication stage that only tests have: of documents with equal first lines, one is kept."""

from collections.abc import Sequence
from typing import Any, Literal
from zlib import crc32

import pyarrow as pa

from etl.stages.dedup_base import DedupStage


class DedupTitle(DedupStage):
    """Keep one of the documents whose first lines are equal."""

    kind: Literal["dedup_title"] = "dedup_title"
    kinds = ("title",)
    identity_key = "title"
    fold_case: bool = True
    min_chars: int = 1

    def document_columns(self) -> pa.Schema:
        """Return ``title_hash``."""
        return pa.schema([pa.field("title_hash", pa.int64())])

    def describe(self, texts: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
        """Return the hash of each first line."""
        lines = (None if text is None else text.split("\n")[0] for text in texts.to_pylist())
        if self.fold_case:
            lines = (None if line is None else line.lower() for line in lines)
        hashes = [None if line is None else crc32(line.encode()) for line in lines]
        return [pa.array(hashes, pa.int64())]

    def column_identity(self) -> Any:
        """Return ``fold_case``, on which the hashes depend."""
        return {"fold_case": self.fold_case}

    def plan_lines(self) -> list[str]:
        """Return one line."""
        return [f"title       first lines of {self.min_chars} characters and more"]
