"""Keep documents that are neither too short nor too long."""

from typing import Literal

from etl.stages.base import Filter, Rules, above, below
from etl.stages.signals import num_chars, num_words


class Length(Filter):
    """Keep documents of so many code points and words, both limits included; None is no limit."""

    kind: Literal["length"] = "length"
    min_chars: int | None = None
    max_chars: int | None = None
    min_words: int | None = None
    max_words: int | None = None

    def rules(self) -> Rules:
        """The first rule that holds rejects the document, as ``length.<name>``."""
        return {
            "few_chars": below(num_chars, self.min_chars),
            "many_chars": above(num_chars, self.max_chars),
            "few_words": below(num_words, self.min_words),
            "many_words": above(num_words, self.max_words),
        }
