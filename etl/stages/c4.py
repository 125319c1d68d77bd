"""C4's cleaning of web pages."""

from typing import Final, Literal

import polars as pl
import pyarrow as pa
from pydantic import Field

from etl.kernels import c4
from etl.kernels.utf8 import texts
from etl.stages.base import Rules, Transform, above, below
from etl.stages.rewritten import rewritten

_UNITS: Final = {f"c4_{name}": name.rpartition("_")[2] for name in c4.C4Counts._fields}


class C4(Transform):
    """Keep the lines of a page that are sentences, and the pages of which enough stays: C4's rules (Raffel
    et al. 2020, arXiv 1910.10683, section 2.2) as datatrove 0.10.1 applies them.

    A line goes that has a word of more than ``max_word_chars``, does not end in . ? ! or a quotation mark
    (or ends in ...), has fewer than ``min_words_per_line`` words, says javascript, or a phrase of policies;
    of the others citation marks like [1] go. A page goes where a line that may stay says lorem ipsum or
    has a {, or where fewer than ``min_sentences`` stay. FineWeb sets ``terminal_punctuation`` to false. The
    original's list of bad words is left out. What went is counted in columns, as ``c4_short_lines``.
    """

    kind: Literal["c4"] = "c4"
    thresholds = ("max_lorem_ipsum_lines", "max_brace_lines", "min_sentences")
    terminal_punctuation: bool = True
    min_words_per_line: int = Field(default=3, ge=0)
    max_word_chars: int = Field(default=1000, ge=1)
    drop_javascript: bool = True
    drop_policies: bool = True
    drop_citations: bool = True
    max_lorem_ipsum_lines: int | None = 0
    max_brace_lines: int | None = 0
    min_sentences: int | None = 5

    def columns(self) -> dict[str, str]:
        """The lines left out by each rule, those that condemn a page, and the sentences that stay."""
        return _UNITS

    def rules(self) -> Rules:
        """The first rule that holds rejects the page, as ``c4.<name>``."""
        return {
            "lorem_ipsum": above(pl.col("c4_lorem_ipsum_lines"), self.max_lorem_ipsum_lines),
            "curly_bracket": above(pl.col("c4_brace_lines"), self.max_brace_lines),
            "few_sentences": below(pl.col("c4_sentences"), self.min_sentences),
        }

    def apply(self, table: pa.Table) -> pa.Table:
        """The table with the lines that stay as text, and the stage's columns."""
        rules = c4.Rules(
            terminal=self.terminal_punctuation,
            min_words=self.min_words_per_line,
            max_word_chars=self.max_word_chars,
            javascript=self.drop_javascript,
            policy=self.drop_policies,
            citations=self.drop_citations,
        )
        cleaned = c4.clean(texts(table["text"]), rules)
        return rewritten(table, cleaned.texts, dict(zip(_UNITS, cleaned.counts, strict=True)))
