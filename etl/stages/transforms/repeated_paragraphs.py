"""Paragraphs that a document has twice, cut out of it."""

from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.stages.base import Rules, Transform, below
from etl.stages.transforms.rewrite import Ignore, cut_repeats


class RepeatedParagraphs(Transform):
    """Cut each paragraph that stands in the document before; a blank line ends a paragraph.

    Paragraphs are compared line by line, without white space at the ends of lines. Those of less than
    ``min_paragraph_chars`` code points are left alone (10 is chosen here). ``ignore`` and ``min_chars`` are
    those of ``repeated_lines``.
    """

    kind: Literal["repeated_paragraphs"] = "repeated_paragraphs"
    thresholds = ("min_chars",)
    shorthand = "min_paragraph_chars"
    min_paragraph_chars: int = Field(default=10, ge=0)
    ignore: Annotated[tuple[Ignore, ...], Field(strict=False)] = ()
    min_chars: int | None = None

    def columns(self) -> dict[str, str]:
        """What was cut, and what stays."""
        return {
            "repeated_paragraphs_paragraphs": "paragraphs cut",
            "repeated_paragraphs_chars": "code points cut, line ends included",
            "repeated_paragraphs_left": "code points that stay",
        }

    def rules(self) -> Rules:
        """``repeated_paragraphs.short``."""
        return {"short": below(pl.col("repeated_paragraphs_left"), self.min_chars)}

    def signals(self) -> list[str]:
        """The text, and what the rule reads."""
        return ["text", "repeated_paragraphs_left"]

    def apply(self, table: pa.Table) -> pa.Table:
        """The table without repeated paragraphs; the same text buffers if there are none."""
        return cut_repeats(
            table,
            columns=tuple(self.columns()),
            paragraphs=True,
            min_chars=self.min_paragraph_chars,
            ignore=self.ignore,
        )
