"""The C4 stage: clean web pages line by line with the rules of C4."""

from typing import Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from etl.kernels.bytes.one_chunk import one_chunk
from etl.stages.base import Rules, Transform, above, below
from etl.stages.transforms.rewrite import replace_text

_UNITS: Final = {
    "c4_long_word_lines": "lines",
    "c4_open_lines": "lines",
    "c4_short_lines": "lines",
    "c4_javascript_lines": "lines",
    "c4_policy_lines": "lines",
    "c4_lorem_ipsum_lines": "lines",
    "c4_brace_lines": "lines",
    "c4_sentences": "sentences",
}
"""The columns of the counts in the order of ``etl.kernels.lines.c4_cleaning.C4Counts``, and their units."""


class C4(Transform):
    """Keep the lines of a page that are sentences, and the pages that still have enough of them.

    The rules are C4's (Raffel et al. 2020, arXiv 1910.10683, section 2.2) as datatrove 0.10.1 applies
    them. A line is dropped if it has a word of more than ``max_word_chars``, does not end in . ? ! or a
    quotation mark (or ends in ...), has fewer than ``min_words_per_line`` words, or contains javascript or a
    phrase about policies. Citation marks like [1] are removed from the remaining lines. A page is rejected
    if a remaining line contains lorem ipsum or {, or if fewer than ``min_sentences`` sentences remain.
    FineWeb sets ``terminal_punctuation`` to false. Sentences are counted by spaCy's rules for the document's
    language, or for English if it is unknown. C4's list of bad words is not used. Columns such as
    ``c4_short_lines`` count the dropped lines by rule.
    """

    kind: Literal["c4"] = "c4"
    example = "c4: {min_sentences: 3}"
    counts_words = True
    thresholds = ("max_lorem_ipsum_lines", "max_brace_lines", "min_sentences")
    terminal_punctuation: bool = True
    """Whether to drop lines that do not end in . ? ! or a quotation mark."""
    min_words_per_line: int = Field(default=3, ge=0)
    """Drop lines with fewer words."""
    max_word_chars: int = Field(default=1000, ge=1)
    """Drop lines that contain a longer word."""
    drop_javascript: bool = True
    """Whether to drop lines that contain javascript."""
    drop_policies: bool = True
    """Whether to drop lines about terms of use, privacy and cookies."""
    drop_citations: bool = True
    """Whether to remove citation marks such as [1]."""
    max_lorem_ipsum_lines: int | None = 0
    """Reject a page with more lines that contain lorem ipsum; null allows any number."""
    max_brace_lines: int | None = 0
    """Reject a page with more lines that contain {; null allows any number."""
    min_sentences: int | None = 5
    """Reject a page with fewer remaining sentences; null allows any number."""

    def columns(self) -> dict[str, str]:
        """Return the columns: lines dropped by each rule, lines that reject a page, remaining sentences."""
        return _UNITS

    def rules(self) -> Rules:
        """Return the rules; the first that holds rejects the page as ``c4.<name>``."""
        return {
            "lorem_ipsum": above(pl.col("c4_lorem_ipsum_lines"), self.max_lorem_ipsum_lines),
            "curly_bracket": above(pl.col("c4_brace_lines"), self.max_brace_lines),
            "few_sentences": below(pl.col("c4_sentences"), self.min_sentences),
        }

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the table with only the remaining lines as text, and with the stage's columns."""
        from etl.kernels.bytes.utf8 import texts
        from etl.kernels.lines import c4_cleaning
        from etl.kernels.words.segment_counts import NUM_COUNTS, CountsByLine
        from etl.stages.compute_signals import WORDS_OF_LINES, WORDS_OF_TEXT
        from etl.stages.rows_by_rules import rows_by_rules

        rules = c4_cleaning.Rules(
            terminal=self.terminal_punctuation,
            min_words=self.min_words_per_line,
            max_word_chars=self.max_word_chars,
            javascript=self.drop_javascript,
            policy=self.drop_policies,
            citations=self.drop_citations,
        )
        text, lang = table["text"], table["lang"] if "lang" in table.column_names else None
        words_of_lines = None
        if WORDS_OF_LINES in table.column_names:
            words_of_lines = one_chunk(table[WORDS_OF_LINES])
        counts, result = np.zeros((len(_UNITS), len(table)), np.int64), one_chunk(text)
        words = np.zeros((len(table), NUM_COUNTS), np.int64)
        for language, rows in rows_by_rules(lang, len(table)).items():
            lines = None
            if words_of_lines is not None:
                lines = CountsByLine.from_arrow(_filter(words_of_lines, rows))
            cleaned = c4_cleaning.clean_pages(texts(_filter(text, rows)), rules, language, lines)
            index = np.flatnonzero(rows)
            counts[:, index], words[index] = cleaned.counts, cleaned.words
            if len(index) == len(table):
                result = cleaned.texts
            else:
                result = pc.replace_with_mask(result, rows, cleaned.texts.cast(result.type))
        table = replace_text(table, result, dict(zip(_UNITS, counts, strict=True)))
        if words_of_lines is None:
            return table
        return table.append_column(
            WORDS_OF_TEXT, pa.FixedSizeListArray.from_arrays(words.ravel(), NUM_COUNTS)
        )


def _filter(
    column: pa.Array | pa.ChunkedArray, rows: pa.BooleanArray
) -> pa.Array | pa.ChunkedArray:
    """Return the selected rows, without a copy if they are all rows."""
    return column if pc.all(rows).as_py() else column.filter(rows)
