"""Pages made for kinds, scripts and templates of which the labelled sets have few.

Each template of ``templates/`` has the structure and the class names of one kind of software: forums, shops,
documentation, recipes, wikis, blogs and news with comments and lists of teasers, tables, sites of 1998.
``parts.html`` gives them one of several headers, sidebars and footers. The text is that of
``$TOKENLAKE_DATA/docs``, in twenty languages. A template marks what is main text: ``m.text(...)``; what may
be either is ``m.maybe(...)``; all else is not. The same seed makes the same page.
"""

import random
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from zlib import crc32

import pyarrow.parquet as pq
import yaml
from jinja2 import Environment, FileSystemLoader

from main_text.pages import OPEN, WANTED, Page

TEMPLATES = Path(__file__).with_name("templates")
LANGUAGES = (
    "en", "en", "en", "de", "fr", "es", "pt", "it", "pl", "tr", "vi", "uk", "ru", "ru", "zh", "zh", "zh",
    "ja", "ja", "ja", "ko", "ko", "ar", "ar", "fa", "hi", "hi", "bn", "th", "th",
)  # fmt: skip
SCRIPTS = {
    "ru": "\u0400-\u04ff", "uk": "\u0400-\u04ff", "zh": "\u4e00-\u9fff", "ja": "\u3040-\u30ff\u4e00-\u9fff",
    "ko": "\uac00-\ud7af", "ar": "\u0600-\u06ff", "fa": "\u0600-\u06ff", "hi": "\u0900-\u097f",
    "bn": "\u0980-\u09ff", "th": "\u0e00-\u0e7f",
}  # fmt: skip
SHORT = ("zh", "ja", "ko", "th")  # languages of short paragraphs
KEYS = (
    "home", "news", "about", "contact", "comments", "reply", "share", "more", "related", "search", "login",
    "privacy", "terms", "cart",
)  # fmt: skip
NAMES = (
    "anna_k", "Tom", "müller82", "Olga", "kenji", "Lee", "sara.b", "MrFix", "Nadia", "xX_wolf_Xx", "jp",
    "Aziz", "Chen Wei", "Priya", "Somchai", "René", "dora77", "admin",
)  # fmt: skip
NO_MARKUP = re.compile(r"[#|<>{}\[\]=\\$•]|\.\w+\(|https?:")
INLINE = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[*_`]+")  # of Markdown


@cache
def _words() -> dict[str, list[str]]:
    text = Path(__file__).with_name("interface_words.yaml").read_text("utf-8")
    found: dict[str, list[str]] = yaml.safe_load(text)
    return found


@cache
def _paragraphs(folder: Path) -> dict[str, list[str]]:
    """Return clean paragraphs by language, without markup and in the language's script."""
    found: dict[str, list[str]] = {}
    columns = pq.read_table(folder / "docs" / "docs-00000.parquet", columns=["text", "lang"])
    wanted = set(LANGUAGES)
    for text, language in zip(
        *(columns[name].to_pylist() for name in ("text", "lang")), strict=True
    ):
        pool = found.setdefault(language, [])
        if language not in wanted or len(pool) > 4000:
            continue
        least = 15 if language in SHORT else 40
        for raw in re.split(r"\n\s*\n", text):
            part = INLINE.sub(r"\1", " ".join(raw.split()))
            if least <= len(part) <= 900 and not NO_MARKUP.search(part) and _is_in(part, language):
                pool.append(part)
    return found


def _is_in(text: str, language: str) -> bool:
    script = SCRIPTS.get(language)
    return not script or len(re.findall(f"[{script}]", text)) > len(text.replace(" ", "")) / 2


class Maker:
    """What the templates use: text with and without marks, words, names, and choices, from a seed."""

    def __init__(self, folder: Path, language: str, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 (not for cryptography)
        self.language = language
        self._pool = _paragraphs(folder)[language]
        self._words = dict(zip(KEYS, _words().get(language, _words()["en"]), strict=True))
        self._style = self.pick("plain", "plain", "plain", "hash", "prefix", "none")

    def pick(self, *values: str) -> str:
        """Return one of the values."""
        return self._random.choice(values)

    def number(self, low: int, high: int) -> int:
        """Return an integer between both, inclusively."""
        return self._random.randint(low, high)

    def times(self, low: int, high: int) -> range:
        """Return a range of a random length."""
        return range(self.number(low, high))

    def chance(self, share: float) -> bool:
        """Return true in so large a share of the calls."""
        return self._random.random() < share

    def word(self, key: str) -> str:
        """Return a word of the user interface in the page's language."""
        return escape(self._words[key])

    def plain(self, low: int = 60, high: int = 400) -> str:
        """Return prose of about so many characters without a mark."""
        return escape(self._prose(self.number(low, high)))

    def text(self, low: int = 120, high: int = 700) -> str:
        """Return prose that is main text, sometimes with inline elements."""
        prose = escape(self._prose(self.number(low, high)))
        words = prose.split(" ")
        if len(words) > 12 and self.chance(0.3):
            at = self.number(2, len(words) - 4)
            tag = self.pick(
                "a href='/x'", "b", "em", "a href='https://example.com/y' class='ext'", "strong"
            )
            words[at] = f"<{tag}>{words[at]}"
            words[at + 2] += f"</{tag.split(' ')[0]}>"
        return WANTED + " ".join(words)

    def maybe(self, low: int = 20, high: int = 80) -> str:
        """Return prose that may be main text or not: titles, captions, reviews."""
        return OPEN + self.plain(low, high)

    def short(self, low: int = 8, high: int = 40) -> str:
        """Return the begin of some prose: a title, a label, an entry of a list."""
        return escape(self._cut(self._random.choice(self._pool), self.number(low, high)))

    def item(self, low: int = 8, high: int = 60) -> str:
        """Return a short main text: a heading, an entry, a cell."""
        return WANTED + self.short(low, high)

    def mark(self, text: str) -> str:
        """Return given text as main text."""
        return WANTED + text

    def code(self) -> str:
        """Return lines of code as main text."""
        name = self.pick("load", "fetch_all", "parse", "render", "getItem", "x", "open_file")
        lines = (
            f"import {name}\n\ndef {name}(path, limit={self.number(1, 99)}):\n    return read(path)[:limit]",
            f"$ {name} --help\nusage: {name} [-v] FILE",
            f"const {name} = await api.get('/{name}', {{ retries: {self.number(1, 9)} }});\nlog({name});",
            f'<{name} id="{self.number(1, 9)}">\n  <value/>\n</{name}>',
            f"{name}:\n  replicas: {self.number(1, 9)}\n  image: example/{name}",
        )
        return WANTED + escape(self._random.choice(lines))

    def figure(self) -> str:
        """Return a number as in a table."""
        return self.pick(
            f"{self.number(1, 9999)}",
            f"{self.number(0, 99)}.{self.number(0, 9)} %",
            "–",
            f"{self.number(1, 99)},{self.number(0, 99):02}",
        )

    def name(self) -> str:
        """Return the name of a user."""
        return escape(self.pick(*NAMES))

    def date(self) -> str:
        """Return a date in one of several forms."""
        day, month, year = self.number(1, 28), self.number(1, 12), self.number(1999, 2024)
        return self.pick(
            f"{year}-{month:02}-{day:02}",
            f"{day}.{month}.{year} {month:02}:{day:02}",
            f"{month}/{day}/{year}",
            f"{self.number(2, 23)} h",
        )

    def price(self) -> str:
        """Return a price in one of several forms."""
        value = f"{self.number(1, 999)}"
        return self.pick(
            f"${value}.99", f"{value},00 €", f"¥{value}0", f"{value} ₽", f"£{value}.50"
        )

    def cls(self, names: str) -> str:
        """Return a class attribute: the software's own names, hashes as of CSS modules, or none."""
        if self._style == "none":
            return ""
        if self._style == "hash":
            return f' class="{self.pick("css", "sc", "_")}-{crc32(names.encode()):x}"'
        prefix = "c-" if self._style == "prefix" else ""
        return f' class="{" ".join(prefix + name for name in names.split())}"'

    def _prose(self, size: int) -> str:
        parts = [self._random.choice(self._pool)]
        while sum(map(len, parts)) < size:
            parts.append(self._random.choice(self._pool))
        text = " ".join(parts)
        cut = self._cut(text, size)
        end = max(cut.rfind(mark) for mark in (". ", "。", "। ", "؟", "! ", "? "))
        return cut[: end + 1] if end > len(cut) // 3 and len(cut) < len(text) else cut

    def _cut(self, text: str, size: int) -> str:
        if self.language in ("zh", "ja", "ko"):
            size = size * 2 // 5
        if len(text) <= size:
            return text
        space = text.rfind(" ", 0, size)
        return text[: space if space > size // 2 else size]


def names() -> list[str]:
    """Return the names of all templates; the part before the first underscore is the kind."""
    files = TEMPLATES.glob("*_*.html")
    return sorted(file.stem for file in files)


def make(folder: Path, template: str, number: int) -> Page:
    """Make a page; equal arguments make equal pages."""
    index = names().index(template)
    language = LANGUAGES[(number * 7 + index * 3) % len(LANGUAGES)]
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, trim_blocks=True, autoescape=False)  # noqa: S701 (escaped)
    maker = Maker(folder, language, f"{template}/{number}")
    marked = environment.get_template(f"{template}.html").render(m=maker).encode()
    html = marked.decode().replace(WANTED, "").replace(OPEN, "").encode()
    kind = template.split("_", maxsplit=1)[0]
    return Page("made", kind, language, template, html, marked=marked, key=f"{template}/{number}")


def made(folder: Path, each: int) -> Iterator[Page]:
    """Make so many pages of each template."""
    for template in names():
        for number in range(each):
            yield make(folder, template, number)
