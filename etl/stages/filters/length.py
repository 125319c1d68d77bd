"""The Length stage: filter documents by their number of characters and words."""

from typing import Literal

from etl.stages.base import Filter, Rules, above, below
from etl.stages.signals import num_chars, num_words


class Length(Filter):
    """Keep documents whose numbers of code points and words are within limits (inclusive; None: no limit)."""

    kind: Literal["length"] = "length"
    example = "length: {min_words: 50, max_chars: 1000000}"
    min_chars: int | None = None
    """Fewest code points of a document."""
    max_chars: int | None = None
    """Most code points of a document."""
    min_words: int | None = None
    """Fewest words of a document."""
    max_words: int | None = None
    """Most words of a document."""

    def rules(self) -> Rules:
        """Return the rules; the first that holds rejects the document as ``length.<name>``."""
        return {
            "few_chars": below(num_chars, self.min_chars),
            "many_chars": above(num_chars, self.max_chars),
            "few_words": below(num_words, self.min_words),
            "many_words": above(num_words, self.max_words),
        }
