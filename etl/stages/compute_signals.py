"""Compute groups of signals, each group in one pass over the texts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes.one_chunk import one_chunk
from etl.kernels.bytes.utf8 import Texts, texts
from etl.kernels.signals import line_counts as paragraphs
from etl.kernels.signals import quality_counts, repeated_ngrams, stop_words
from etl.kernels.signals.quality_counts import QualityCounts, WordCounts
from etl.kernels.words.given_words import byte_ranges
from etl.kernels.words.segment_counts import NUM_COUNTS
from etl.stages.rows_by_rules import rows_by_rules
from etl.stages.signals import DICTIONARY, SIGNALS, SPACED, Columns, with_needs
from etl.text import language_id, segmenters
from etl.text.language_id import Labels

_REPEATED: Final = (
    *(f"top_{n}gram_char_ratio" for n in repeated_ngrams.TOP),
    *(f"duplicate_{n}gram_char_ratio" for n in repeated_ngrams.DUPLICATE),
)

_OF_WORDS: Final = ("num_words", "mean_word_length", "alpha_word_ratio", "num_stop_words")

_OF_PARAGRAPHS: Final = frozenset({"duplicate_paragraph_ratio", "duplicate_paragraph_char_ratio"})

_MARKED: Final = (
    *("symbol_word_ratio", "ellipsis_word_ratio"),
    *("num_lines", "bullet_line_ratio", "ellipsis_line_ratio"),
)


WORDS_OF_LINES: Final = "words_of_lines"
"""A column with the counts of words of each line, as ``segment_counts.to_arrow`` returns them."""

WORDS_OF_TEXT: Final = "words_of_text"
"""A column with the counts of words of each text, if they are known without splitting it."""


def compute_signals(
    table: pa.Table, names: Sequence[str], *, labels: Labels = "fasttext"
) -> pa.Table:
    """Compute signals of the column ``text`` and append them to the table, replacing existing columns.

    Signals are float64, ``lang`` is a string; null where the text is null. Each group is computed once.
    ``WORDS_OF_LINES`` may be one of the names, beside signals of the group words. If the table has the column
    ``WORDS_OF_TEXT``, only n-grams and ``WORDS_OF_LINES`` require that texts are split. ``labels`` selects
    how ``lang`` is determined.

    >>> table = pa.table({"text": ["To be, or not to be?", None]})
    >>> compute_signals(table, ["num_words", "num_stop_words"]).select([1, 2]).to_pylist()[0]
    {'num_words': 6.0, 'num_stop_words': 2.0}
    """
    wanted = [name for name in with_needs(names) if name in names or name not in table.column_names]
    groups = {SIGNALS[name].group for name in wanted}
    columns: Columns = {name: table[name] for name in table.column_names if name not in wanted}
    by_line = [WORDS_OF_LINES] if WORDS_OF_LINES in names else []
    as_asked = GROUPS | {"language": partial(_language, labels=labels)}
    for group, compute_group in as_asked.items():
        if group in groups:
            columns |= compute_group(columns, [*wanted, *by_line])
    for name in names:
        index = table.column_names.index(name) if name in table.column_names else None
        if index is None:
            table = table.append_column(name, columns[name])
        else:
            table = table.set_column(index, name, columns[name])
    return table


def need_no_ngrams(names: Iterable[str]) -> bool:
    """Return whether ``WORDS_OF_TEXT`` is enough for the signals of the group words among some names.

    Returns False if none of them is of that group.
    """
    words = {name for name in with_needs(names) if SIGNALS[name].group == "words"}
    return len(words) > 0 and words.isdisjoint(_REPEATED)


def _words(columns: Columns, names: Sequence[str], prefix: str = "") -> Columns:
    documents = texts(columns["text"])
    asked = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    repeated, is_by_line = not asked.isdisjoint(_REPEATED), WORDS_OF_LINES in asked
    count_words = partial(
        quality_counts.count_words,
        words=not asked.isdisjoint(_OF_WORDS),
        marks=not asked.isdisjoint(_MARKED),
        repeated=repeated,
    )
    if prefix == SPACED:
        counted = count_words(documents, by_space=True)
    elif not repeated and not is_by_line and prefix == "" and WORDS_OF_TEXT in columns:
        known = one_chunk(columns[WORDS_OF_TEXT]).flatten().to_numpy().reshape(-1, NUM_COUNTS)
        counted = count_words(documents, known=known)
    else:
        segmented = segmenters.PACKAGES if prefix == DICTIONARY else ()
        rows = rows_by_rules(columns.get("lang"), len(columns["text"]), segmented)
        if is_by_line:
            count_words = partial(count_words, by_line=True)
        counted = _count_by_rules(columns["text"], rows, count_words)
    count = {name: n.astype(np.float64) for name, n in counted.quality._asdict().items()}
    segments, lines, chars = count["segments"], count["lines"], count["chars"]
    values = {
        "num_chars": chars,
        "num_lines": lines,
        "num_segments": segments,
        "num_words": count["words"],
        "mean_word_length": _per(count["word_chars"], count["words"]),
        "symbol_word_ratio": _per(count["hashes"], segments),
        "ellipsis_word_ratio": _per(count["ellipses"], segments),
        "bullet_line_ratio": _per(count["bullet_lines"], lines),
        "ellipsis_line_ratio": _per(count["ellipsis_lines"], lines),
        "alpha_word_ratio": _per(count["alpha_words"], segments),
        "newline_word_ratio": _per(count["newlines"], segments),
        "num_stop_words": count["stop_words"],
    }
    if repeated:
        ratios = _per(counted.repeated_chars.astype(np.float64), chars)
        values |= dict(zip(_REPEATED, ratios, strict=True))
    signals = {prefix + name: array for name, array in _columns(values, documents).items()}
    return signals if counted.lines is None else signals | {WORDS_OF_LINES: counted.lines}


def _count_by_rules(
    column: pa.Array | pa.ChunkedArray,
    rows_of: Mapping[str, pa.BooleanArray],
    count_words: Callable[..., WordCounts],
) -> WordCounts:
    """Count the words of each group of rows by its rules, or by its dictionary."""
    if len(rows_of) == 1 and not segmenters.PACKAGES.keys() & rows_of:
        (rules,) = rows_of
        return count_words(texts(column), rules=rules)
    quality = np.zeros((len(quality_counts.COUNTS), len(column)), np.int64)
    repeated = np.zeros((len(_REPEATED), len(column)), np.int64)
    lines: list[pa.Array] = []
    order = np.zeros(len(column), np.int64)  # of rows among the rows of all groups
    num = 0
    for rules, rows in rows_of.items():
        part = one_chunk(column.filter(rows))
        if rules in segmenters.PACKAGES:
            found = [segmenters.find_words(text or "", rules) for text in part.to_pylist()]
            given = byte_ranges(texts(part), found)
            counted = count_words(texts(part), given=given)
        else:
            counted = count_words(texts(part), rules=rules)
        # Counts go to the rows of the group. Lists of lines cannot be written into place: they are
        # appended, and put in order at the end.
        index = np.flatnonzero(rows)
        order[index] = np.arange(num, num := num + len(index))
        lines += [] if counted.lines is None else [counted.lines]
        quality[:, index] = counted.quality
        repeated[: len(counted.repeated_chars), index] = counted.repeated_chars
    of_lines = pa.concat_arrays(lines).take(pa.array(order)) if lines else None
    return WordCounts(QualityCounts(*quality), repeated, of_lines)


def _spaced(columns: Columns, names: Sequence[str]) -> Columns:
    return _words(columns, names, SPACED)


def _dictionary(columns: Columns, names: Sequence[str]) -> Columns:
    return _words(columns, names, DICTIONARY)


def _lines(columns: Columns, names: Sequence[str]) -> Columns:
    documents, folds = texts(columns["text"]), not _OF_PARAGRAPHS.isdisjoint(names)
    line_counts = paragraphs.count_lines(documents, paragraphs=folds)
    chars, full = line_counts.chars, line_counts.full_lines
    values = {
        "duplicate_line_ratio": _per(line_counts.duplicate_lines, line_counts.lines),
        "duplicate_line_char_ratio": _per(line_counts.duplicate_line_chars, chars),
        "duplicate_paragraph_ratio": _per(line_counts.duplicate_paragraphs, line_counts.paragraphs),
        "duplicate_paragraph_char_ratio": _per(line_counts.duplicate_paragraph_chars, chars),
        "terminal_line_ratio": _per(line_counts.terminal_lines, full),
        "quoted_line_ratio": _per(line_counts.quoted_lines, full),
        "short_line_ratio": _per(line_counts.short_lines, full),
        "duplicate_text_ratio": _per(
            line_counts.duplicate_full_line_chars, chars - line_counts.feeds
        ),
    }
    return _columns(values, documents)


def _columns(values: dict[str, NDArray[np.float64]], documents: Texts) -> Columns:
    null = None if documents.valid is None else ~documents.valid
    return {name: pa.array(array, pa.float64(), mask=null) for name, array in values.items()}


def _per(
    count: NDArray[np.float64 | np.int64], whole: NDArray[np.float64 | np.int64]
) -> NDArray[np.float64]:
    """Return the ratio, 0 where ``whole`` is 0."""
    return count / np.maximum(whole, 1)


def _language(columns: Columns, _: Sequence[str], labels: Labels = "fasttext") -> Columns:
    languages, scores = language_id.identify_languages(columns["text"], labels)
    return {"lang": languages, "lang_score": scores}


def _stop_words(columns: Columns, _: Sequence[str]) -> Columns:
    documents = texts(columns["text"])
    num_words = stop_words.count_stop_words(documents, one_chunk(columns["lang"]))
    return _columns({"num_lang_stop_words": num_words.astype(np.float64)}, documents)


GROUPS: Final[dict[str, Callable[[Columns, Sequence[str]], Columns]]] = {
    "language": _language,  # first, since a document is split into words by the rules of its language
    "words": _words,
    "spaced": _spaced,
    "lines": _lines,
    "stop_words": _stop_words,
    "dictionary": _dictionary,
}
"""Group -> the function that computes its signals, at least those named, in one pass; run in this order."""
