"""Labelled pages: what each set knows of a page's main text."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

WANTED, OPEN = "\ue000", "\ue001"
"""Characters in made pages: a block with the first is main text, one with the second may be either."""

KINDS = {
    "forum": r"/forums?\b|forum\.|thread|/discussion/|showpost|viewtopic|reddit|spiceworks",
    "shop": r"shop\.|/products?/|/produkte?/|produkt_kateg|bookwalker|elecom|sanwa",
    "documentation": r"wiki|docs\.|/docs?/|developer\.|lexikon|/help/|github\.com|clinicaltrials|jvndb",
    "recipe": r"rezept|recipe|kochen|backen",
    "blog": r"blog|wordpress|tumblr|typepad",
}


@dataclass(frozen=True)
class Page:
    """A page and its truth: a text, or texts that must and must not occur, or marks in the HTML itself."""

    source: str
    kind: str
    language: str
    group: str
    """The host or template. Pages of a group are trained on or measured, never both."""
    html: bytes
    text: str | None = None
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    optional: str = ""
    """Text that counts neither way."""
    marked: bytes | None = None
    """The same page with ``WANTED`` and ``OPEN`` in its blocks."""
    key: str = ""


def host(url: str) -> str:
    """Return the host of an address without ``www.``, or the address if it has none."""
    return (urlsplit(url).hostname or url).removeprefix("www.")


def fold(group: str, folds: int) -> int:
    """Return which fold a host or template is in."""
    return hashlib.sha256(group.encode()).digest()[1] % folds


def is_held_back(host_name: str) -> bool:
    """Return whether pages of the host may be in the half that is held back for the last measurement."""
    return bool(hashlib.sha256(host_name.encode()).digest()[0] & 1)


def as_utf8(html: bytes) -> bytes:
    """Return a page in UTF-8, whose charset is detected if it is another."""
    try:
        html.decode()
    except UnicodeDecodeError:
        return bytes_to_str(html, detect_encoding(html) or "utf-8").encode("utf-8", "replace")
    return html


def kind_of(url: str) -> str:
    """Guess the kind of a page from its address."""
    found = (kind for kind, pattern in KINDS.items() if re.search(pattern, url.lower()))
    return next(found, "news")


def language_of(html: bytes, url: str) -> str:
    """Return the language that a page states, else that of its host's country, else ``en``."""
    stated = re.search(rb"<html[^>]*?\slang\s*=\s*[\"']?([a-zA-Z]{2})", html[:20_000])
    if stated:
        return stated.group(1).decode().lower()
    country = host(url).rsplit(".", 1)[-1]
    return {"de": "de", "at": "de", "ch": "de", "fr": "fr", "jp": "ja", "cn": "zh"}.get(
        country, "en"
    )


def articles(folder: Path) -> Iterator[Page]:
    """Read the pages of the article-extraction-benchmark."""
    for row in pq.read_table(folder / "articles.parquet").to_pylist():
        html, url = as_utf8(row["html"]), row["url"] or row["key"]
        where = (kind_of(url), language_of(html, url), host(url))
        yield Page("articles", *where, html, text=row["text"], key=url)


def segments(folder: Path) -> Iterator[Page]:
    """Read the pages of trafilatura's evaluation set."""
    for row in pq.read_table(folder / "segments.parquet").to_pylist():
        html, url = as_utf8(row["html"]), row["url"]
        where = (kind_of(url), language_of(html, url), host(url))
        required, forbidden = tuple(row["with"]), tuple(row["without"])
        yield Page("segments", *where, html, required=required, forbidden=forbidden, key=url)


LANGUAGES = {
    "chinese_article_001": "zh", "test_bbc_chinese": "zh", "japanese_article2": "ja", "thai_article": "th",
    "arabic_article": "ar", "test_cnn_arabic": "ar", "burmese_article": "my", "spanish_article": "es",
}  # fmt: skip


def newspapers(folder: Path) -> Iterator[Page]:
    """Read newspaper4k's test pages that have a text, in several languages."""
    for row in pq.read_table(folder / "languages.parquet").to_pylist():
        if row["kind"] == "newspaper4k" and row["expected"]:
            language, key, html = LANGUAGES.get(row["key"], "en"), row["key"], as_utf8(row["html"])
            yield Page("newspapers", "news", language, key, html, text=row["expected"], key=key)
