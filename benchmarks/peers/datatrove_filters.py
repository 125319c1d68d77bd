"""datatrove's part of filters_vs_peers.py, which runs in a separate environment without Tokenlake.

    python datatrove_filters.py DOCUMENTS.parquet VERDICTS.parquet

reads the columns id and text, writes one boolean per rule (true: the rule rejects) and the text that C4
keeps, and prints as JSON the CPU seconds of each filter alone, of all four together, and of splitting words.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.filters.c4_filters import C4QualityFilter
from datatrove.pipeline.filters.fineweb_quality_filter import FineWebQualityFilter
from datatrove.pipeline.filters.gopher_quality_filter import GopherQualityFilter
from datatrove.pipeline.filters.gopher_repetition_filter import GopherRepetitionFilter
from datatrove.utils.text import split_into_parts, split_into_words

QUALITY: dict[str, dict[str, Any]] = {
    "short": {"min_doc_words": 50},
    "long": {"max_doc_words": 100_000},
    "short_words": {"min_avg_word_length": 3},
    "long_words": {"max_avg_word_length": 10},
    "symbols or ellipses": {"max_symbol_word_ratio": 0.1},
    "bullet_lines": {"max_bullet_lines_ratio": 0.9},
    "ellipsis_lines": {"max_ellipsis_lines_ratio": 0.3},
    "few_alpha_words": {"max_non_alpha_words_ratio": 0.8},
    "few_stop_words": {"min_stop_words": 2},
}
REPETITION: dict[str, dict[str, Any]] = {
    "duplicate_paragraphs": {"dup_para_frac": 0.3},
    "duplicate_paragraph_chars": {"dup_para_char_frac": 0.2},
    "duplicate_lines": {"dup_line_frac": 0.3},
    "duplicate_line_chars": {"dup_line_char_frac": 0.2},
    **{f"top_{n}gram": {"top_n_grams": ((n, t),)} for n, t in ((2, 0.2), (3, 0.18), (4, 0.16))},
    **{f"duplicate_{n}grams": {"dup_n_grams": ((n, 0.2 - n / 100),)} for n in (5, 6, 7, 8, 9, 10)},
}
FINEWEB: dict[str, dict[str, Any]] = {
    "few_terminal_lines": {"line_punct_thr": 0.12},
    "short_lines": {"short_line_thr": 0.67},
    "duplicate_text": {"char_duplicates_ratio": 0.01},
    "many_newlines": {"new_line_ratio": 0.3},
}
NO_QUALITY = {name: None for rule in QUALITY.values() for name in rule}
NO_REPETITION = {
    **{name: None for rule in REPETITION.values() for name in rule},
    "top_n_grams": (),
    "dup_n_grams": (),
}
NO_FINEWEB = {
    **{name: float("inf") for rule in FINEWEB.values() for name in rule},
    "line_punct_thr": 0,
}


def rules() -> dict[str, Any]:
    """Return a filter for each rule, with its other rules turned off."""
    return {
        **{
            f"gopher_quality.{n}": GopherQualityFilter(**NO_QUALITY | r) for n, r in QUALITY.items()
        },
        **{
            f"gopher_repetition.{n}": GopherRepetitionFilter(**NO_REPETITION | r)
            for n, r in REPETITION.items()
        },
        **{
            f"fineweb_quality.{n}": FineWebQualityFilter(**NO_FINEWEB | r)
            for n, r in FINEWEB.items()
        },
    }


def c4(text: str, **settings: Any) -> tuple[str | None, str | None]:
    """Return the text that C4 keeps, and the reason if it keeps none."""
    document = Document(text=text, id="")
    found = C4QualityFilter(**settings).filter(document)
    return (document.text, None) if found is True else (None, found[1])


def verdicts(texts: Sequence[str]) -> pa.Table:
    """Return a column for each rule, and columns for C4 as published and as in FineWeb."""
    columns: dict[str, list[Any]] = {}
    filters = rules()
    for text in texts:
        for name, rule in filters.items():
            found = rule.filter(Document(text=text, id=""))
            columns.setdefault(name, []).append(found is not True)
        for name, settings in (("c4", {}), ("c4 of FineWeb", {"filter_no_terminal_punct": False})):
            left, reason = c4(text, **settings)
            columns.setdefault(f"{name} text", []).append(left)
            columns.setdefault(f"{name} reason", []).append(reason)
    return pa.table(columns)


def seconds(work: Callable[[str], object], texts: Sequence[str]) -> float:
    """Return the CPU seconds of one function over all texts, with empty caches."""
    work(texts[0])
    split_into_parts.cache_clear()
    begun = time.process_time()
    for text in texts:
        work(text)
    return time.process_time() - begun


def timings(texts: Sequence[str]) -> dict[str, float]:
    """Time each filter with its defaults, and all four on each document, whatever their verdicts."""
    filters = {
        "gopher_quality": GopherQualityFilter(),
        "gopher_repetition": GopherRepetitionFilter(),
        "c4": C4QualityFilter(filter_no_terminal_punct=False),
        "fineweb_quality": FineWebQualityFilter(),
    }

    def all_four(text: str) -> None:
        for each in filters.values():
            each.filter(Document(text=text, id=""))

    def alone(each: Any) -> float:
        return seconds(lambda text: each.filter(Document(text=text, id="")), texts)

    return {
        **{name: alone(each) for name, each in filters.items()},
        "all four": seconds(all_four, texts),
        "words": seconds(split_into_words, texts),
    }


if __name__ == "__main__":
    documents, out = sys.argv[1:3]
    texts = pq.read_table(documents, columns=["text"])["text"].to_pylist()
    pq.write_table(verdicts(texts), out)
    print(json.dumps(timings(texts[: int(sys.argv[3])])))
