"""Exact duplicates, found by a hash of the text."""

from itertools import pairwise
from typing import Any, ClassVar, Literal

import pyarrow as pa
import xxhash

from etl.kernels.bytes import whitespace
from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages.base import Stage
from etl.stages.reference_list import Against

Normalize = Literal["whitespace", "none"]


class DedupExact(Stage):
    """Keep one of the documents whose texts are equal, up to white space unless asked otherwise.

    It needs all documents at once: the runner compares the column ``content_hash`` over the whole table.
    What the lakes in ``against`` keep goes as well: a URL, or ``{lake: URL, version: N}`` (of the lake's
    ``documents``; the newest, if not said), or a list of them. What such a lake has not decided yet does
    not count.
    """

    paths: ClassVar[tuple[str, ...]] = ("against",)

    kind: Literal["dedup_exact"] = "dedup_exact"
    normalize: Normalize = "whitespace"
    against: Against = ()

    def identity(self) -> dict[str, Any]:
        """The settings; ``against`` as it is written, if it is."""
        return self.model_dump(mode="json", exclude=set() if self.against else {"against"})


def content_hash(texts: pa.Array | pa.ChunkedArray, normalize: Normalize) -> pa.Array:
    r"""XXH3's 128 bits of each text: binary, 16 bytes; null for null.

    With ``whitespace``, runs of white space (``str.isspace``) count as one blank and those at the ends
    not at all.

    >>> one, two = content_hash(pa.array(["a  b", " a\nb "]), "whitespace")
    >>> one == two, len(one.as_py())
    (True, 16)
    """
    documents = buffers(texts)
    offsets, data = documents.offsets, documents.data
    if normalize == "whitespace":
        offsets, data = whitespace.collapse(documents)
    view, ends = data.data, offsets.tolist()
    digests = [  # 0.1 us a document, and 0.01 us a kilobyte
        xxhash.xxh3_128_digest(view[start:end]) for start, end in pairwise(ends)
    ]
    null = None if documents.valid is None else ~documents.valid
    return pa.array(digests, pa.binary(), mask=null)
