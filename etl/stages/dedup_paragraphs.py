"""Paragraphs, lines or sentences that stand in other documents, cut out of all but the first."""

from typing import Annotated, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl.kernels.bytes.spans import keep
from etl.kernels.bytes.utf8 import one_chunk
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.lines import text_units as kernel
from etl.kernels.lines.text_units import LINES, PARAGRAPHS, SENTENCES, Cutting
from etl.schemas import UNITS
from etl.stages.base import Stage
from etl.stages.transforms.rewrite import Ignore, bits_of

Unit = Literal["paragraphs", "lines", "sentences"]

_UNITS: Final[dict[Unit, int]] = {
    "paragraphs": PARAGRAPHS,
    "lines": LINES,
    "sentences": SENTENCES,
}


class DedupParagraphs(Stage):
    """Cut what stands in an earlier document, or earlier in the same one: menus, notices, quotations.

    Compared are ``paragraphs`` (a blank line ends one), ``lines`` (as in CCNet, Wenzek et al. 2019, arXiv
    1911.00359, section 3.1), or, with ``unit: sentences``, each ``span`` of sentences in a row (three in
    C4: Raffel et al. 2020, arXiv 1910.10683, section 2.2), all of which go. ``ignore`` makes equal what
    differs only in case, in the amount of white space, or in its numbers. What has less than ``min_chars``
    code points stays wherever it stands (50 is chosen here, so that headings and answers like "Thank
    you." do). The first by address stays, but what has tokens already keeps all it has. What other
    deduplication leaves out counts for nothing.

    A document that loses something and of which fewer than ``min_rest_chars`` code points stay is left out
    as ``dedup_paragraphs.short`` (200 is chosen here; datatrove 0.10.1 asks for 50 words); what it holds
    is then cut from no other one. It needs all documents at once, as `dedup_exact` does.
    """

    kind: Literal["dedup_paragraphs"] = "dedup_paragraphs"
    shorthand = "unit"
    unit: Unit = "paragraphs"
    ignore: Annotated[tuple[Ignore, ...], Field(strict=False)] = ("space",)
    min_chars: int = Field(default=50, ge=0)
    span: int = Field(default=3, ge=1)
    min_rest_chars: int = Field(default=200, ge=0)

    @property
    def joint(self) -> int:
        """How many units are compared together."""
        return self.span if self.unit == "sentences" else 1

    def units_identity(self) -> dict[str, Any]:
        """What decides the columns of ``schemas.UNITS``."""
        settings = self.model_dump(mode="json", exclude={"kind", "min_rest_chars", "span"})
        return {**settings, "ignore": sorted({*self.ignore}), "span": self.joint}

    def units(self, texts: pa.Array | pa.ChunkedArray) -> tuple[pa.ListArray, pa.ListArray]:
        r"""The columns of ``schemas.UNITS``: a hash of each unit (0: it is not compared), and its size.

        >>> hashes, chars = DedupParagraphs(min_chars=3).units(pa.array(["One.\n\nA\n\n One.", None]))
        >>> chars.to_pylist()
        [[4, 1, 4], None]
        >>> one, short, other = hashes[0].as_py()
        >>> one == other, short
        (True, 0)
        """
        documents = buffers(texts)
        found = kernel.units(documents, self._cutting)
        null = None if documents.valid is None else pa.array(~documents.valid)
        offsets = pa.array(found.first_unit, pa.int32())
        hashes, chars = (
            pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type, mask=null)
            for field, values in zip(UNITS, (found.hashes, found.chars), strict=True)
        )
        return hashes, chars

    def cut(self, texts: pa.Array | pa.ChunkedArray, cuts: pa.Array | pa.ChunkedArray) -> pa.Array:
        r"""The texts without the units of these ordinals (list<int32>, null for none).

        >>> cuts = pa.array([[1], None], pa.list_(pa.int32()))
        >>> DedupParagraphs().cut(pa.array(["one\n\ntwo\n\nthree", "four"]), cuts).to_pylist()
        ['one\n\nthree', 'four']
        """
        cuts = one_chunk(cuts)
        sizes = pc.fill_null(pc.list_value_length(cuts), 0).to_numpy()
        first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        ordinals = cuts.flatten().to_numpy().astype(np.int32, copy=False)
        documents = buffers(texts)
        return keep(documents, kernel.without(documents, self._cutting, first, ordinals))

    def pieces(self, text: str) -> list[str]:
        """The units of a text, as a reader sees them.

        >>> DedupParagraphs(unit="sentences").pieces("He left. Why? Nobody knows")
        ['He left.', 'Why?', 'Nobody knows']
        """
        documents = buffers(pa.array([text], pa.large_string()))
        spans = kernel.pieces(documents, self._cutting)
        data = documents.data.tobytes()
        return [data[a:b].decode() for a, b in zip(spans.starts, spans.ends, strict=True)]

    @property
    def _cutting(self) -> Cutting:
        unit = _UNITS[self.unit]
        return Cutting(unit, self.min_chars, self.joint, bits_of(self.ignore))
