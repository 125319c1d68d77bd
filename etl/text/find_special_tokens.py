"""Find the special tokens of a tokenizer that texts spell out, such as ``<|endoftext|>`` on a web page.

Special are the added tokens with ``"special": true`` in a tokenizer.json: those that ``tokenizers`` encodes
as text with ``encode_special_tokens=True``. One with ``"normalized": true`` is found in the normalized text.
A spelling counts even if ``single_word`` prevents that it becomes the token.

Cost: 0.1 ns per byte for each first character of special tokens, of which there are one or two. If a
tokenizer normalizes them, each text is normalized by ``tokenizers``, which takes longer than the search.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers

_MAX_STRINGS: Final = 1000  # in one regular expression: RE2 refuses to compile very long ones
_FEW_STRINGS: Final = 32  # chosen here: a pattern of so few is as fast as a pattern of one


class SpecialTokenFinder:
    """The special tokens of a tokenizer."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder().values()
        special = [token for token in added if token.special and token.content]
        has_normalizer = _changes_text(tokenizer.normalizer)
        self._normalizer: Any = tokenizer.normalizer
        self._raw = _Spellings(t.content for t in special if not (has_normalizer and t.normalized))
        normalized = [t.content for t in special if has_normalizer and t.normalized]
        self._names = {self._normalizer.normalize_str(name): name for name in normalized}
        self._normalized = _Spellings(self._names)

    @property
    def are_normalized(self) -> bool:
        """Whether some are found in normalized text only."""
        return bool(self._names)

    def spelled_in(self, texts: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which texts (string or large_string without nulls) spell a special token: bool (texts,)."""
        spelled = self._raw.are_in(texts)
        if self._names and not spelled.all():
            rest = texts.filter(pa.array(~spelled)).to_pylist()
            normal = pa.array([self._normalizer.normalize_str(text) for text in rest], pa.string())
            spelled[~spelled] = self._normalized.are_in(normal)
        return spelled

    def first_in(self, text: str) -> str | None:
        """Return the first special token that a text spells, the longest if several begin there."""
        name = self._raw.first_in(text)
        if name is None and self._names:
            normal = self._normalized.first_in(self._normalizer.normalize_str(text))
            name = None if normal is None else self._names[normal]
        return name


@lru_cache(maxsize=2)
def read_special_tokens(data: bytes) -> SpecialTokenFinder:
    """Return the special tokens of a tokenizer.json, without loading its vocabulary.

    Raises ValueError if it is not a tokenizer.json.
    """
    parts = json.loads(data)
    if not isinstance(parts, dict):
        raise ValueError("not a mapping")  # noqa: TRY004  # invalid, like a syntax error
    model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    kept = {name: parts.get(name) for name in ("version", "added_tokens", "normalizer")}
    try:
        return SpecialTokenFinder(
            tokenizers.Tokenizer.from_str(json.dumps({**kept, "model": model}))
        )
    except Exception as error:  # tokenizers raises no narrower type
        raise ValueError(str(error)) from error


class _Spellings:
    """Strings to search for in texts."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = sorted({each for each in strings if each}, key=lambda s: (-len(s), s))
        self._groups = [_Group([*group]) for _, group in groupby(sorted(self._strings), _initial)]

    def are_in(self, texts: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which texts contain at least one of the strings."""
        found = np.zeros(len(texts), np.bool_)
        for group in self._groups:
            found |= group.are_in(texts)
        return found

    def first_in(self, text: str) -> str | None:
        """Return the first of the strings in a text, the longest if several begin there."""
        match = re.search("|".join(map(re.escape, self._strings)), text) if self._strings else None
        return match[0] if match else None


class _Group:
    """Strings with the same first character, for which RE2 searches ten times as fast.

    RE2 compiles a pattern at each call, so many strings are first reduced to their few prefixes.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._patterns = [
            "|".join(map(re.escape, strings[start : start + _MAX_STRINGS]))
            for start in range(0, len(strings), _MAX_STRINGS)
        ]
        prefixes = ({s[:size] for s in strings} for size in (4, 3, 2, 1))
        few = next(few for few in prefixes if len(few) <= _FEW_STRINGS)
        self._prefixes = "|".join(map(re.escape, sorted(few)))

    def are_in(self, texts: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which texts contain at least one of the strings."""
        found = _match(texts, self._prefixes)
        if found.any():
            candidates = texts.filter(pa.array(found))
            found[found] = np.any([_match(candidates, p) for p in self._patterns], axis=0)
        return found


def _initial(string: str) -> str:
    return string[0]


def _match(texts: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    return np.array(pc.match_substring_regex(texts, pattern), np.bool_)


def _changes_text(normalizer: Any) -> bool:
    """Return whether there is a normalizer; an empty sequence of them changes nothing."""
    if normalizer is None:
        return False
    return bool(json.loads(normalizer.__getstate__()).get("normalizers", True))
