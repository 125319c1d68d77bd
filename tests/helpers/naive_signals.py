"""Gopher's counts by string methods, sets and counters."""

from collections import Counter

from etl.kernels.signals.repeated_ngrams import DUPLICATE, TOP
from etl.kernels.words.segment_counts import STOP_WORDS
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD


def naive_counts(text: str, segments: list[tuple[str, int]]) -> dict[str, int]:
    """The counts of a text, given its segments and their flags."""
    lines = text.splitlines()
    words = [segment for segment, flags in segments if flags & IS_WORD]
    return {
        "segments": len(segments),
        "words": len(words),
        "alpha_words": sum(bool(flags & HAS_LETTER) for _, flags in segments),
        "word_chars": sum(map(len, words)),
        "stop_words": len(set(words) & set(STOP_WORDS)),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "chars": len(text),
        "newlines": text.count("\n"),
        "lines": len(lines),
        "bullet_lines": sum(line.lstrip().startswith(("-", "•")) for line in lines),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines),
    }


def naive_repeated_chars(words: list[str]) -> list[int]:
    """Return the code points in the repeated n-grams of a document with these segments."""
    return [*(naive_top(words, n) for n in TOP), *(naive_duplicates(words, n) for n in DUPLICATE)]


def naive_top(words: list[str], n: int) -> int:
    counts = Counter(tuple(words[k : k + n]) for k in range(len(words) - n + 1))
    return max([0, *(len(" ".join(gram)) * count for gram, count in counts.most_common(1))])


def naive_duplicates(words: list[str], n: int) -> int:
    seen, chars, at = set(), 0, 0
    while at + n <= len(words):
        gram = tuple(words[at : at + n])
        if gram in seen:
            chars += len("".join(gram))
            at += n
        else:
            seen.add(gram)
            at += 1
    return chars
