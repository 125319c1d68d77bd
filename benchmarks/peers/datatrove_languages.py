"""datatrove's part of filters_by_language.py, which runs in a separate environment without Tokenlake.

    python datatrove_languages.py DOCUMENTS.parquet VERDICTS.parquet LIMITS.json

reads the columns id and text, and from LIMITS the code of their language in datatrove, its stop words and
its limits by filter. Writes one boolean per rule (true: the rule rejects), null where datatrove fails, and
the text that C4 keeps; prints the CPU seconds as JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.filters.c4_filters import C4QualityFilter
from datatrove.pipeline.filters.fineweb_quality_filter import FineWebQualityFilter
from datatrove.pipeline.filters.gopher_quality_filter import GopherQualityFilter
from datatrove.pipeline.filters.gopher_repetition_filter import GopherRepetitionFilter
from datatrove_filters import FINEWEB, NO_FINEWEB, NO_QUALITY, NO_REPETITION, QUALITY, REPETITION

C4: dict[str, dict[str, Any]] = {"c4": {}, "c4 of FineWeb": {"filter_no_terminal_punct": False}}


def rules(given: dict[str, Any]) -> dict[str, Any]:
    """Return a filter for each rule with the limits of the language, and its other rules turned off."""
    words, lines, grams = (given[name] for name in ("quality", "fineweb", "repetition"))
    quality = QUALITY | {
        "short_words": {"min_avg_word_length": words["min_mean_word_length"]},
        "long_words": {"max_avg_word_length": words["max_mean_word_length"]},
        "few_alpha_words": {"max_non_alpha_words_ratio": words["min_alpha_word_ratio"]},
        "few_stop_words": {"min_stop_words": 2, "stop_words": given["stop_words"]},
    }
    repetition = {
        "duplicate_lines": {"dup_line_frac": grams["max_duplicate_line_ratio"]},
        **{
            f"top_{n}gram": {"top_n_grams": ((n, grams[f"max_top_{n}gram_char_ratio"]),)}
            for n in (2, 3, 4)
        },
        **{
            f"duplicate_{n}grams": {
                "dup_n_grams": ((n, grams[f"max_duplicate_{n}gram_char_ratio"]),)
            }
            for n in range(5, 11)
        },
    }
    assert repetition.keys() <= REPETITION.keys()
    fineweb = {
        "few_terminal_lines": {"line_punct_thr": lines["min_terminal_line_ratio"]},
        "duplicate_text": {"char_duplicates_ratio": 0.1},
        "many_newlines": {"new_line_ratio": lines["max_newline_word_ratio"]},
    }
    assert fineweb.keys() <= FINEWEB.keys()
    kinds: tuple[tuple[str, Any, dict[str, Any], dict[str, Any]], ...] = (
        ("gopher_quality", GopherQualityFilter, NO_QUALITY, quality),
        ("gopher_repetition", GopherRepetitionFilter, NO_REPETITION, repetition),
        ("fineweb_quality", FineWebQualityFilter, NO_FINEWEB, fineweb),
    )
    return {
        f"{kind}.{name}": make(**off | rule, language=given["code"])
        for kind, make, off, of_kind in kinds
        for name, rule in of_kind.items()
    }


def verdict(rule: Any, text: str) -> bool | None:
    """Return whether a rule rejects a text; None if datatrove fails."""
    try:
        return rule.filter(Document(text=text, id="")) is not True
    except (ValueError, ZeroDivisionError):
        return None


def kept_by_c4(text: str, settings: dict[str, Any]) -> str | None:
    """Return the text that C4 keeps, or None."""
    document = Document(text=text, id="")
    return document.text if C4QualityFilter(**settings).filter(document) is True else None


def main(documents: str, verdicts: str, limits: str) -> None:
    """Apply each rule to each document."""
    given = json.loads(Path(limits).read_text("utf-8"))
    texts = pq.read_table(documents, columns=["text"])["text"].to_pylist()
    filters, columns = rules(given), dict[str, list[Any]]()
    begun = time.process_time()
    for text in texts:
        for name, rule in filters.items():
            columns.setdefault(name, []).append(verdict(rule, text))
        for name, settings in C4.items():
            left = kept_by_c4(text, settings | {"language": given["code"]})
            columns.setdefault(f"{name} text", []).append(left)
    pq.write_table(pa.table(columns), verdicts)
    print(json.dumps({"seconds": time.process_time() - begun}))


if __name__ == "__main__":
    main(*sys.argv[1:4])
