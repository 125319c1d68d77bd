"""The RepeatedParagraphs stage: remove repeated paragraphs within a document."""

from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.stages.base import Rules, Transform, below
from etl.stages.transforms.rewrite import Ignore, cut_repeats


class RepeatedParagraphs(Transform):
    """Remove paragraphs that repeat an earlier paragraph of the document; a blank line ends a paragraph.

    Paragraphs are compared without white space at the ends of their lines. Paragraphs of fewer than
    ``min_paragraph_chars`` code points are kept (10 is chosen here). ``ignore`` and ``min_chars`` are as in
    ``repeated_lines``; with ``space``, a paragraph is found however it is wrapped.
    """

    kind: Literal["repeated_paragraphs"] = "repeated_paragraphs"
    example = "repeated_paragraphs: {ignore: [digits]}"
    thresholds = ("min_chars",)
    shorthand = "min_paragraph_chars"
    min_paragraph_chars: int = Field(default=10, ge=0)
    """Keep repeated paragraphs that are shorter."""
    ignore: Annotated[tuple[Ignore, ...], Field(strict=False)] = ()
    """What does not count when paragraphs are compared: ``case``, ``space``, ``digits``."""
    min_chars: int | None = None
    """Reject a document with fewer code points left; null keeps all."""

    def columns(self) -> dict[str, str]:
        """Return the columns for removed paragraphs, removed code points and remaining code points."""
        return {
            "repeated_paragraphs_paragraphs": "paragraphs removed",
            "repeated_paragraphs_chars": "code points removed, line ends included",
            "repeated_paragraphs_left": "code points left",
        }

    def rules(self) -> Rules:
        """Return the rule ``repeated_paragraphs.short``."""
        return {"short": below(pl.col("repeated_paragraphs_left"), self.min_chars)}

    def signals(self) -> list[str]:
        """Return the text and the column that the rule reads."""
        return ["text", "repeated_paragraphs_left"]

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table without repeated paragraphs; the same text buffers if there are none."""
        return cut_repeats(
            table,
            columns=tuple(self.columns()),
            paragraphs=True,
            min_chars=self.min_paragraph_chars,
            ignore=self.ignore,
        )
