"""The RepeatedLines stage: remove repeated lines within a document."""

from typing import Annotated, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.stages.base import Rules, Transform, below
from etl.stages.transforms.rewrite import Ignore, cut_repeats


class RepeatedLines(Transform):
    """Remove lines that repeat an earlier line of the document: menus, footers, page headings.

    Lines are compared without white space at their ends. Lines of fewer than ``min_line_chars`` code points
    are kept, so braces, list markers and table rows survive (10 is chosen here). ``ignore`` compares lines
    without regard to case, the amount of white space, or numbers ("Page 1", "Page 22"); what is ignored does
    not count as code points. A document with fewer than ``min_chars`` code points left is rejected.

    Of the blank lines around a removed line, one run is kept.
    """

    kind: Literal["repeated_lines"] = "repeated_lines"
    example = "repeated_lines: {min_line_chars: 20, ignore: [case, space]}"
    thresholds = ("min_chars",)
    shorthand = "min_line_chars"
    min_line_chars: int = Field(default=10, ge=0)
    """Keep repeated lines that are shorter."""
    ignore: Annotated[tuple[Ignore, ...], Field(strict=False)] = ()
    """What does not count when lines are compared: ``case``, ``space``, ``digits``."""
    min_chars: int | None = None
    """Reject a document with fewer code points left; null keeps all."""

    def columns(self) -> dict[str, str]:
        """Return the columns for removed lines, removed code points and remaining code points."""
        return {
            "repeated_lines_lines": "lines removed",
            "repeated_lines_chars": "code points removed, line ends included",
            "repeated_lines_left": "code points left",
        }

    def rules(self) -> Rules:
        """Return the rule ``repeated_lines.short``."""
        return {"short": below(pl.col("repeated_lines_left"), self.min_chars)}

    def signals(self) -> list[str]:
        """Return the text and the column that the rule reads."""
        return ["text", "repeated_lines_left"]

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table without repeated lines; the same text buffers if there are none."""
        return cut_repeats(
            table,
            columns=tuple(self.columns()),
            paragraphs=False,
            min_chars=self.min_line_chars,
            ignore=self.ignore,
        )
