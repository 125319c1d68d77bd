"""Find the words of Chinese, Japanese and Korean text with dictionaries: the extra ``segmenters``.

The libraries are as in datatrove 0.10.1, with the same settings: jieba for Chinese (MIT licence, 0.4 MB of
text per second), SudachiPy with its dictionary ``core`` in mode A for Japanese (Apache-2.0, 1 MB/s) and Kiwi
with its model ``sbg`` for Korean (LGPL-3.0, 0.07 MB/s). Their versions are part of the identity of a stage.

Texts are read in pieces of at most MAX_CHARS, where possible whole lines: SudachiPy accepts 49,149 bytes,
and the time of jieba and Kiwi grows with the square of a run of characters that is in no dictionary.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from etl.errors import RecipeError

MAX_CHARS: Final = 10_000
"""The most characters that a library reads at once."""

PACKAGES: Final = {
    "ja": ("sudachipy", "sudachidict_core"),
    "ko": ("kiwipiepy", "kiwipiepy_model"),
    "zh": ("jieba",),
}
"""Language (ISO 639-1) -> the packages that find its words: a library and its dictionary."""

_LONG_NUMBER: Final = re.compile("[0-9,]{20,}")  # Kiwi's words are wrong after one, says datatrove

_Segmenter = Callable[[str], list[tuple[int, int]]]


def identity() -> dict[str, str]:
    """Return the version of each package, which determine the words.

    Raises RecipeError if one is not installed.
    """
    try:
        return {name: version(name) for names in PACKAGES.values() for name in names}
    except PackageNotFoundError as error:
        raise RecipeError(
            f"words of Chinese, Japanese and Korean need the package {error.name}, which is not installed",
            hint="pip install 'tokenlake[segmenters]', or set `words: segments`",
        ) from error


def are_installed() -> bool:
    """Return whether the packages of all languages are installed."""
    with suppress(RecipeError):
        return bool(identity())
    return False


def find_words(text: str, language: str) -> NDArray[np.int64]:
    """Return the words of a text: int64 (n, 2), the first character of each and the one after its last.

    Words are in order and hold no white space at their ends, except for some of Japanese symbols. Morphemes
    of Korean may overlap, if both are in one syllable.

    Raises RecipeError if the packages of the language are not installed.
    """
    segmenter = _segmenter(language)
    words = [
        (start + first, start + last)
        for start, end in _pieces(text)
        for first, last in segmenter(text[start:end])
    ]
    return np.array(words, np.int64).reshape(-1, 2)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most MAX_CHARS that end, if possible, after a line feed or else a blank."""
    start = 0
    while len(text) - start > MAX_CHARS:
        limit = start + MAX_CHARS
        end = max(text.rfind("\n", start, limit) + 1, 0)
        if end <= start:
            end = text.rfind(" ", start, limit) + 1
        end = end if end > start else limit
        yield start, end
        start = end
    yield start, len(text)


@cache
def _segmenter(language: str) -> _Segmenter:
    """Load a segmenter; once per process, in 1 to 5 seconds and 150 to 500 MB of memory."""
    identity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba is from 2020
        return {"ja": _japanese, "ko": _korean, "zh": _chinese}[language]()


def _chinese() -> _Segmenter:
    import jieba

    jieba.setLogLevel("ERROR")
    cut = jieba.Tokenizer().cut

    def words(text: str) -> list[tuple[int, int]]:
        return _ranges(cut(text))

    return words


def _ranges(words: Any) -> list[tuple[int, int]]:
    """Return the ranges of the words, which together are the text, without white space."""
    ranges, at = [], 0
    for word in words:
        if not word.isspace():
            ranges.append((at, at + len(word)))
        at += len(word)
    return ranges


def _japanese() -> _Segmenter:
    from sudachipy import Dictionary, SplitMode

    tokenizer = Dictionary().tokenizer(mode=SplitMode.A)

    def words(text: str) -> list[tuple[int, int]]:
        ranges = ((word.begin(), word.end()) for word in tokenizer.tokenize(text))
        return [(a, b) for a, b in ranges if a < b and not text[a:b].isspace()]

    return words


def _korean() -> _Segmenter:
    from kiwipiepy import Kiwi

    tokenize = Kiwi(num_workers=1, model_type="sbg").tokenize

    def words(text: str) -> list[tuple[int, int]]:
        prepared = _LONG_NUMBER.sub(lambda number: " " * len(number[0]), text)
        ranges = ((word.start, word.end) for word in tokenize(prepared))
        return [(a, b) for a, b in ranges if a < b]

    return words
