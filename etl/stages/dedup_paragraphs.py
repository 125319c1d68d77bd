"""The DedupParagraphs stage: remove paragraphs, lines or sentences repeated across documents."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl.kernels.bytes.one_chunk import one_chunk
from etl.schemas import CUT, SHORT, UNITS
from etl.stages.dedup_base import DedupStage
from etl.stages.transforms.rewrite import Ignore, ignore_bits

if TYPE_CHECKING:
    from etl.kernels.lines.text_units import Cutting

Unit = Literal["paragraphs", "lines", "sentences"]


class DedupParagraphs(DedupStage):
    """Remove text that occurs in an earlier document or earlier in the same one, such as menus and notices.

    The units compared are ``paragraphs`` (ended by a blank line), ``lines`` (as in CCNet, Wenzek et al.
    2019, arXiv 1911.00359, section 3.1) or, with ``unit: sentences``, each run of ``span`` sentences (three
    in C4: Raffel et al. 2020, arXiv 1910.10683, section 2.2), all of which are removed. ``ignore`` compares
    units without regard to case, the amount of white space (so that a paragraph is found however it is
    wrapped), or numbers. Units of fewer than ``min_chars`` code points are always kept (50 is chosen here, to
    keep headings and answers like "Thank you."); what is ignored does not count. The first occurrence by
    address is kept, and documents that already have tokens keep all their text. Documents rejected by other
    deduplication stages are not compared.

    A document that loses text is rejected as ``dedup_paragraphs.short`` if fewer than ``min_rest_chars``
    code points remain (200 is chosen here; datatrove 0.10.1 requires 50 words); its units are then not
    removed from other documents. All documents are compared at once, as in `dedup_exact`.
    """

    kind: Literal["dedup_paragraphs"] = "dedup_paragraphs"
    example = "dedup_paragraphs: {unit: paragraphs, min_chars: 100}"
    shorthand = "unit"
    kinds = (CUT, SHORT)
    identity_key = "units"
    unit: Unit = "paragraphs"
    """What is compared: paragraphs, lines, or runs of sentences."""
    ignore: Annotated[tuple[Ignore, ...], Field(strict=False)] = ("space",)
    """What does not count when units are compared: ``case``, ``space``, ``digits``."""
    min_chars: int = Field(default=50, ge=0)
    """Shorter units are always kept."""
    span: int = Field(default=3, ge=1)
    """How many sentences are compared together, with ``unit: sentences``; three as in C4."""
    min_rest_chars: int = Field(default=200, ge=0)
    """Reject a document that loses text if fewer code points remain."""

    @property
    def joint(self) -> int:
        """How many units are compared together."""
        return self.span if self.unit == "sentences" else 1

    def document_columns(self) -> pa.Schema:
        """Return the columns of ``schemas.UNITS``."""
        return UNITS

    def describe(self, texts: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
        """Return the units of each text."""
        return self.units(texts)

    def column_identity(self) -> dict[str, Any]:
        """Return the settings that determine the columns of ``schemas.UNITS``."""
        settings = self.model_dump(mode="json", exclude={"kind", "min_rest_chars", "span"})
        return {**settings, "ignore": sorted({*self.ignore}), "span": self.joint}

    def units(self, texts: pa.Array | pa.ChunkedArray) -> tuple[pa.ListArray, pa.ListArray]:
        r"""Return the columns of ``schemas.UNITS``: a hash of each unit (0: not compared) and its size.

        >>> hashes, chars = DedupParagraphs(min_chars=3).units(pa.array(["One.\n\nA\n\n One.", None]))
        >>> chars.to_pylist()
        [[4, 1, 4], None]
        >>> one, short, other = hashes[0].as_py()
        >>> one == other, short
        (True, 0)
        """
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.kernels.lines import text_units

        documents = buffers(texts)
        units = text_units.hash_units(documents, self._cutting)
        null = None if documents.valid is None else pa.array(~documents.valid)
        offsets = pa.array(units.first_unit, pa.int32())
        hashes, chars = (
            pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type, mask=null)
            for field, values in zip(UNITS, (units.hashes, units.chars), strict=True)
        )
        return hashes, chars

    def cut(self, texts: pa.Array | pa.ChunkedArray, cuts: pa.Array | pa.ChunkedArray) -> pa.Array:
        r"""Return the texts without the units at these positions (list<int32>, null for none).

        >>> cuts = pa.array([[1], None], pa.list_(pa.int32()))
        >>> DedupParagraphs().cut(pa.array(["one\n\ntwo\n\nthree", "four"]), cuts).to_pylist()
        ['one\n\nthree', 'four']
        """
        from etl.kernels.bytes.spans import keep_spans
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.kernels.lines.remove_units import remove_units

        cuts = one_chunk(cuts)
        sizes = pc.fill_null(pc.list_value_length(cuts), 0).to_numpy()
        first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        ordinals = cuts.flatten().to_numpy().astype(np.int32, copy=False)
        documents = buffers(texts)
        return keep_spans(documents, remove_units(documents, self._cutting, first, ordinals))

    @property
    def cut_unit(self) -> str:
        """What it cuts: the setting ``unit``, in the singular."""
        return self.unit.removesuffix("s")

    def removed(self, text: str, cut: Sequence[int]) -> list[str]:
        r"""Return the text of the units with these ordinals.

        >>> DedupParagraphs(unit="lines").removed("one\ntwo", [1])
        ['two']
        """
        pieces = self.pieces(text)
        return [pieces[ordinal] for ordinal in cut]

    def pieces(self, text: str) -> list[str]:
        """Return the text of each unit.

        >>> DedupParagraphs(unit="sentences").pieces("He left. Why? I forget")
        ['He left.', 'Why?', 'I forget']
        """
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.kernels.lines import text_units

        documents = buffers(pa.array([text], pa.large_string()))
        spans = text_units.locate_units(documents, self._cutting)
        data = documents.data.tobytes()
        return [data[a:b].decode() for a, b in zip(spans.starts, spans.ends, strict=True)]

    @property
    def _cutting(self) -> "Cutting":
        from etl.kernels.lines.text_units import LINES, PARAGRAPHS, SENTENCES, Cutting

        units = {"paragraphs": PARAGRAPHS, "lines": LINES, "sentences": SENTENCES}
        unit = units[self.unit]
        return Cutting(unit, self.min_chars, self.joint, ignore_bits(self.ignore))
