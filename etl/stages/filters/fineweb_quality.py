"""FineWeb's own quality rules."""

from typing import Literal

from etl.stages.base import Rules, above, below
from etl.stages.limits_by_language import ByLanguage
from etl.stages.signals import (
    duplicate_text_ratio,
    newline_word_ratio,
    quoted_line_ratio,
    short_line_ratio,
    terminal_line_ratio,
)


class FinewebQuality(ByLanguage):
    """Keep pages whose lines are sentences: the rules that FineWeb adds to Gopher's and C4's (Penedo et al.
    2024, arXiv 2406.17557, section 3.6).

    All thresholds are the paper's; None switches a rule off. ``languages`` gives languages limits of their
    own, as ``{de: {min_terminal_line_ratio: null}}``, or names a table of them: ``fineweb2``, whose limits
    of line feeds (German: 0.152) expect one line feed between paragraphs, as trafilatura writes them.

    Lines are those that are not blank; what ends
    a sentence is Unicode's ``Sentence_Terminal``, as in datatrove 0.10.1. ``quotes_end_lines`` counts
    straight quotation marks too, as C4 does and as the first versions of datatrove did.
    """

    kind: Literal["fineweb_quality"] = "fineweb_quality"
    min_terminal_line_ratio: float | None = 0.12
    quotes_end_lines: bool = False
    max_short_line_ratio: float | None = 0.67  # lines of at most 30 characters
    max_duplicate_text_ratio: float | None = 0.01  # characters in lines that were there before
    max_newline_word_ratio: float | None = 0.3  # line feeds per segment

    def rules(self) -> Rules:
        """The first rule that holds rejects the document, as ``fineweb_quality.<name>``."""
        ends = quoted_line_ratio if self.quotes_end_lines else terminal_line_ratio
        limit = self.limits()
        return {
            "few_terminal_lines": below(ends, limit["min_terminal_line_ratio"]),
            "short_lines": above(short_line_ratio, limit["max_short_line_ratio"]),
            "duplicate_text": above(duplicate_text_ratio, limit["max_duplicate_text_ratio"]),
            "many_newlines": above(newline_word_ratio, limit["max_newline_word_ratio"]),
        }
