"""The DedupSubstrings stage: remove passages of any bounds that are repeated across documents."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl.kernels.bytes.one_chunk import one_chunk
from etl.schemas import ANCHORS, CUT, SHORT
from etl.stages.dedup_base import DedupStage

Snap = Literal["words", "characters"]


class DedupSubstrings(DedupStage):
    """Remove every passage of at least ``min_bytes`` bytes that an earlier document has, wherever it begins.

    A passage is also removed if the same document has it before, without overlap. Bytes are compared, so
    case and white space count. Nothing shorter is removed, and no repeat is missed: the result is that of a
    suffix array (Lee et al. 2021, arXiv 2107.06499, which removes repeats of 50 tokens), but that the first
    occurrence stays. Earlier is what arrived earlier and, of one arrival, what comes first by address.
    Passages are compared with the texts as they were before anything was cut. Each removed byte remains in an
    earlier document, but a passage may remain in pieces only: of "ABC" and "DEF", then "ABC-DEF", only "-"
    remains of the third, so that a fourth "BC-DE" is removed, too. Documents rejected by other deduplication
    stages are not compared.

    Cuts never divide a character. With ``snap: words`` they shrink to white space within 64 bytes, so that
    the words on both sides are not joined. A document that loses text is rejected as
    ``dedup_substrings.short`` if fewer than ``min_chars`` code points remain (200, as in
    `dedup_paragraphs`); its passages are then not removed from other documents.
    """

    kind: Literal["dedup_substrings"] = "dedup_substrings"
    example = "dedup_substrings: {min_bytes: 500, snap: words}"
    shorthand = "min_bytes"
    kinds = (CUT, SHORT)
    identity_key = "anchors"
    min_bytes: int = Field(default=500, ge=32, le=2000)
    """Bytes of the shortest passage that is removed, in UTF-8."""
    min_chars: int = Field(default=200, ge=0)
    """Reject a document that loses text if fewer code points remain."""
    snap: Snap = "words"
    """Where a cut may begin and end: after white space (``words``), or at any character."""

    def document_columns(self) -> pa.Schema:
        """Return the columns of ``schemas.ANCHORS``."""
        return ANCHORS

    def column_identity(self) -> dict[str, Any]:
        """Return the settings that determine the columns of ``schemas.ANCHORS``."""
        return {"min_bytes": self.min_bytes}

    def describe(self, texts: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
        """Return the columns of ``schemas.ANCHORS`` for each text.

        >>> stage, text = DedupSubstrings(min_bytes=32), "A passage of more than thirty-two bytes."
        >>> keys, chunks, windows, cores = stage.describe(pa.array([text, "short", None]))
        >>> [sum(some) if some is not None else None for some in windows.to_pylist()]
        [9, 0, None]
        """
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.kernels.hashing.window_anchors import find_anchors

        documents = buffers(texts)
        found = find_anchors(documents, self.min_bytes)
        null = None if documents.valid is None else pa.array(~documents.valid)
        offsets = pa.array(found.first, pa.int32())
        return [
            pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type, mask=null)
            for field, values in zip(ANCHORS, found[1:], strict=True)
        ]

    def cut(self, texts: pa.Array | pa.ChunkedArray, cuts: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the texts without ranges of bytes (list<int32> of first and last; null for none).

        >>> cuts = pa.array([[0, 4, 8, 9], None], pa.list_(pa.int32()))
        >>> DedupSubstrings().cut(pa.array(["one two 3", "four"]), cuts).to_pylist()
        ['two ', 'four']
        """
        from etl.kernels.bytes.spans import Spans, replace_spans
        from etl.kernels.bytes.utf8 import texts as buffers

        cuts = one_chunk(cuts)
        sizes = pc.fill_null(pc.list_value_length(cuts), 0).to_numpy() // 2
        first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        documents = buffers(texts)
        bounds = cuts.flatten().to_numpy().astype(np.int64).reshape(-1, 2)
        bounds += np.repeat(documents.offsets[:-1], sizes)[:, None]
        starts, ends = np.ascontiguousarray(bounds.T)
        return replace_spans(documents, Spans(starts, ends, first), mask=b"")

    @property
    def cut_unit(self) -> str:
        """What it removes."""
        return "passage"

    def removed(self, text: str, cut: Sequence[int]) -> list[str]:
        """Return the passages that a row of ``duplicates`` removes.

        >>> DedupSubstrings().removed("one two 3", [0, 4, 8, 9])
        ['one ', '3']
        """
        data = text.encode()
        return [data[a:b].decode() for a, b in zip(cut[::2], cut[1::2], strict=True)]

    def num_cut(self, cuts: pa.Array | pa.ChunkedArray) -> int:
        """Return how many passages these values of ``cut`` remove."""
        return super().num_cut(cuts) // 2

    def plan_lines(self) -> list[str]:
        """Return how many anchors the text has, how much is stored and shuffled for them, and of passages.

        An anchor takes 31 bytes as stored, and 36 in the shuffle; of technical documentation, 30 % was
        shuffled as passages whose bytes are compared (``benchmarks/RESULTS.md``).

        >>> DedupSubstrings().plan_lines()
        ['substrings  7.9 anchors per kB of text: 25% of its bytes stored, 29% shuffled, about 30% compared']
        """
        anchors = 2000 / (self.min_bytes - self.min_bytes // 2 + 2)  # per kB: window_anchors.py
        sizes = f"{anchors * 0.0314:.0%} of its bytes stored, {anchors * 0.036:.0%} shuffled"
        return [f"substrings  {anchors:.1f} anchors per kB of text: {sizes}, about 30% compared"]
