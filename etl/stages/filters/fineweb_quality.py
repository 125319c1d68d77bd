"""The FinewebQuality stage: quality rules that FineWeb adds to Gopher's and C4's."""

from typing import Literal

from etl.stages.base import Rules, above, below
from etl.stages.limits_by_language import ByLanguage
from etl.stages.signals import (
    duplicate_text_ratio,
    newline_word_ratio,
    of_words,
    quoted_line_ratio,
    short_line_ratio,
    terminal_line_ratio,
)


class FinewebQuality(ByLanguage):
    """Keep pages whose lines are sentences: the rules that FineWeb adds to Gopher's and C4's.

    All thresholds are from the paper (Penedo et al. 2024, arXiv 2406.17557, section 3.6); None disables
    a rule. ``languages`` sets limits per language, as in ``{de: {min_terminal_line_ratio: null}}``, or names
    a table of limits: ``fineweb2``. Its limits on line feeds (German: 0.152) assume one line feed between
    paragraphs, as trafilatura writes them. ``words`` is as in ``gopher_quality``.

    Blank lines are ignored. A sentence ends in a character with Unicode's property ``Sentence_Terminal``, as
    in datatrove 0.10.1. ``quotes_end_lines`` accepts straight quotation marks too, as do C4 and the first
    versions of datatrove.
    """

    kind: Literal["fineweb_quality"] = "fineweb_quality"
    min_terminal_line_ratio: float | None = 0.12
    """Smallest share of lines that end a sentence."""
    quotes_end_lines: bool = False
    """Whether a straight quotation mark ends a sentence, too."""
    max_short_line_ratio: float | None = 0.67
    """Largest share of lines of at most 30 characters."""
    max_duplicate_text_ratio: float | None = 0.01
    """Largest share of characters in lines that repeat an earlier one."""
    max_newline_word_ratio: float | None = 0.3
    """Most line feeds per word."""

    def rules(self) -> Rules:
        """Return the rules; the first that holds rejects the document as ``fineweb_quality.<name>``."""
        ends = quoted_line_ratio if self.quotes_end_lines else terminal_line_ratio
        limit = self.limits()
        return {
            "few_terminal_lines": below(ends, limit["min_terminal_line_ratio"]),
            "short_lines": above(short_line_ratio, limit["max_short_line_ratio"]),
            "duplicate_text": above(duplicate_text_ratio, limit["max_duplicate_text_ratio"]),
            "many_newlines": above(
                of_words(newline_word_ratio, self.words), limit["max_newline_word_ratio"]
            ),
        }
