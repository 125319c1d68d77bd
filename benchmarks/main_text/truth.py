"""Truth by block: which blocks of a labelled page are main text."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from main_text.pages import OPEN, WANTED, Page

Labels = NDArray[np.float32]

# Scripts without spaces are compared by character.
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+")
GRAM = 4


def grams(text: str) -> Counter[tuple[str, ...]]:
    """Count the runs of four words; a shorter text is one run."""
    words = WORD.findall(text)
    runs = range(max(1, len(words) - GRAM + 1)) if words else ()
    return Counter(tuple(words[start : start + GRAM]) for start in runs)


def labels(page: Page, blocks: Sequence[str]) -> Labels:
    """Return 1 for each block of main text, 0 for others, NaN where the truth does not say."""
    if page.text is not None:
        return labels_by_text(blocks, page.text)
    found = np.full(len(blocks), np.nan, np.float32)
    for index, block in enumerate(blocks):
        if any(segment in block for segment in page.forbidden):
            found[index] = 0
        elif any(segment in block for segment in page.required):
            found[index] = 1
    return found


def labels_by_mark(blocks: Sequence[str]) -> Labels:
    """Return the labels of the blocks of a marked page."""
    return np.array([1 if WANTED in b else np.nan if OPEN in b else 0 for b in blocks], np.float32)


def labels_by_text(blocks: Sequence[str], text: str) -> Labels:
    """Label the blocks that the text contains: by runs of four words, short ones by whole lines."""
    known, lines = grams(text), {_plain(line) for line in text.split("\n")}
    found = np.zeros(len(blocks), np.float32)
    for index, block in enumerate(blocks):
        words = WORD.findall(block)
        if len(words) < GRAM + 2:
            found[index] = _plain(block) in lines
        else:
            runs = [tuple(words[i : i + GRAM]) in known for i in range(len(words) - GRAM + 1)]
            found[index] = sum(runs) > len(runs) / 2
    return found


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().lower()
