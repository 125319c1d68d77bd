"""Lines that a document has twice, cut out of it."""

from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.stages.base import Rules, Transform, below
from etl.stages.transforms.rewrite import Ignore, cut_repeats


class RepeatedLines(Transform):
    """Cut each line that stands in the document before: menus, footers, headings of every page.

    Lines are compared without white space at their ends. Those of less than ``min_line_chars`` code points
    are left alone, so that braces, list marks and rows of a table stay (10 is chosen here). ``ignore``
    makes lines equal that differ only in case, in the amount of white space, or in their numbers
    ("Page 1", "Page 22"). A document of which fewer than ``min_chars`` code points stay is rejected.

    Where a line goes, of the blank lines around it one run stays.
    """

    kind: Literal["repeated_lines"] = "repeated_lines"
    thresholds = ("min_chars",)
    shorthand = "min_line_chars"
    min_line_chars: int = Field(default=10, ge=0)
    ignore: Annotated[tuple[Ignore, ...], Field(strict=False)] = ()
    min_chars: int | None = None

    def columns(self) -> dict[str, str]:
        """What was cut, and what stays."""
        return {
            "repeated_lines_lines": "lines cut",
            "repeated_lines_chars": "code points cut, line ends included",
            "repeated_lines_left": "code points that stay",
        }

    def rules(self) -> Rules:
        """``repeated_lines.short``."""
        return {"short": below(pl.col("repeated_lines_left"), self.min_chars)}

    def signals(self) -> list[str]:
        """The text, and what the rule reads."""
        return ["text", "repeated_lines_left"]

    def apply(self, table: pa.Table) -> pa.Table:
        """The table without repeated lines; the same text buffers if there are none."""
        return cut_repeats(
            table,
            columns=tuple(self.columns()),
            paragraphs=False,
            min_chars=self.min_line_chars,
            ignore=self.ignore,
        )
