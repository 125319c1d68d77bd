"""Build the sample from packages of Debian 12: ``python pipelines/sample/build.py``.

Requires ``apt-get`` and ``dpkg``, and installs nothing. The same packages produce the same bytes: documents
have a fixed order, and no file contains a timestamp. README.md lists the sources.
"""

import gzip
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
PACKAGES = {  # Debian 12; name -> version
    "debian-handbook": "11.20220922",
    "bible-kjv": "4.38",
    "bible-kjv-text": "4.38",
}
PARQUET = {  # file -> translations of the handbook
    "handbook-00000.parquet": ("en-US", "de-DE", "fr-FR", "es-ES"),
    "handbook-00001.parquet": ("ja-JP", "zh-CN", "ru-RU", "ar-MA", "pt-BR"),
}
JSON_LINES = ("nl-NL",)  # mostly still in English: natural duplicates of the first file
ROW_GROUP_ROWS = 64
BOOKS = {  # abbreviation of the program `bible` -> name
    "Ge": "Genesis",
    "1Sm": "1 Samuel",
    "2Sm": "2 Samuel",
    "1Ki": "1 Kings",
    "2Ki": "2 Kings",
    "1Chr": "1 Chronicles",
    "2Chr": "2 Chronicles",
    "Psa": "Psalms",
    "Isa": "Isaiah",
    "Mat": "Matthew",
    "Mark": "Mark",
    "Luke": "Luke",
    "John": "John",
}
VOCAB_SIZE = 16_384
END_OF_TEXT = "<|endoftext|>"


class Document(NamedTuple):
    """A row of the sample; ``lang`` is declared by the publisher and may differ from the text."""

    doc_id: str
    content: str | None
    url: str | None
    lang: str
    section: str | None


SCHEMA = pa.schema([(name, pa.string()) for name in Document._fields])


class PageText(HTMLParser):
    """A parser that extracts the text of a page: a paragraph per block element, whitespace as rendered.

    The handbook's banner and its rows of previous and next links are removed; tables of contents and
    listings stay, as in any crawl.
    """

    BLOCKS = (
        "p",
        "div",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "li",
        "dt",
        "dd",
        "tr",
        "pre",
        "title",
    )
    CELLS = ("td", "th")
    SKIPPED = ("banner", "docnav")  # values of id or class
    VOID = ("br", "hr", "img", "meta", "link", "input", "col")

    def __init__(self) -> None:
        """Create a parser for one page."""
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._paragraphs: list[str] = []
        self._pieces: list[str] = []
        self._open: list[str] = []
        self._skip_from: int | None = None  # the depth at which a skipped element began

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """End the paragraph before a block, and start skipping at a banner, navigation or script."""
        if tag in self.VOID:
            return
        if tag in self.BLOCKS:
            self._end_paragraph()
        names = " ".join(value or "" for key, value in attrs if key in {"id", "class"}).split()
        self._open.append(tag)
        skipped = tag in ("script", "style") or any(name in self.SKIPPED for name in names)
        if skipped and self._skip_from is None:
            self._skip_from = len(self._open)

    def handle_endtag(self, tag: str) -> None:
        """End the paragraph of a block, and stop skipping at the end of a skipped element."""
        if tag in self.VOID:
            return
        if tag in self.CELLS:
            self._pieces.append(" ")
        if tag in self.BLOCKS:
            self._end_paragraph()
        self._open.pop()
        if self._skip_from is not None and len(self._open) < self._skip_from:
            self._skip_from = None

    def handle_data(self, data: str) -> None:
        """Keep visible text."""
        if self._skip_from is None:
            self._pieces.append(data)

    def _end_paragraph(self) -> None:
        raw = "".join(self._pieces)
        text = raw.strip("\n") if "pre" in self._open else " ".join(raw.split())
        self._pieces = []
        if self._open and self._open[-1] == "title":
            self.title = text
        elif text.strip():
            self._paragraphs.append(text)

    @property
    def text(self) -> str:
        """The paragraphs, separated by blank lines."""
        return "\n\n".join(self._paragraphs)


def handbook(root: Path, folder: str) -> Iterator[Document]:
    """Yield the pages of one translation of the handbook, in the order of file names."""
    for path in sorted((root / folder).glob("*.html")):
        page = PageText()
        page.feed(path.read_text(encoding="utf-8"))
        page.close()
        yield Document(
            doc_id=f"handbook/{folder}/{path.stem}",
            content=page.text,
            url=f"https://debian-handbook.info/browse/{folder}/stable/{path.name}",
            lang=folder.partition("-")[0],
            section=page.title,
        )


def bible(program: Path, folder: Path) -> Iterator[Document]:
    """Yield the chapters of the chosen books in order; one verse per line, without numbers."""
    command: list[str | Path] = [program, "-p", folder, "-f", "Gen1:1-Rev22:21"]
    verses = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=True, encoding="ascii"
    )
    pattern = re.compile(r"(\d?[A-Za-z]+)(\d+):\d+ (.*)")
    parsed = (
        match.groups() for match in map(pattern.fullmatch, verses.stdout.splitlines()) if match
    )
    for (book, chapter), lines in groupby(parsed, key=lambda verse: verse[:2]):
        if book in BOOKS:
            section = f"{BOOKS[book]} {chapter}"
            yield Document(
                doc_id=f"kjv/{section.lower().replace(' ', '-')}",
                content="\n".join(text for _, _, text in lines),
                url=None,
                lang="en",
                section=section,
            )


def write_parquet(path: Path, documents: Iterable[Document]) -> None:
    """Write documents in small row groups, so that even this file has several splits."""
    table = pa.Table.from_pylist([document._asdict() for document in documents], schema=SCHEMA)
    pq.write_table(
        table, path, compression="zstd", compression_level=19, row_group_size=ROW_GROUP_ROWS
    )


def json_lines(documents: Iterable[Document]) -> list[str]:
    """Return one JSON object per line, with non-ASCII characters unescaped."""
    return [json.dumps(document._asdict(), ensure_ascii=False) for document in documents]


def with_junk(lines: list[str]) -> list[str]:
    """Add typical damage to lines: a null text, an empty text, and a truncated line."""
    null = Document("junk/null", None, None, "en", "A page whose text was never fetched")
    empty = Document("junk/empty", "", None, "en", "A page without text")
    cut = lines[10][: len(lines[10]) // 2]
    return [*lines[:20], *json_lines([null, empty]), *lines[20:60], cut, *lines[60:]]


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train byte-level BPE with GPT-2's pattern (Radford et al. 2019); id 0 ends a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def unpack(folder: Path) -> None:
    """Download the packages at their versions and unpack them, without installing them."""
    names = [f"{name}={version}" for name, version in PACKAGES.items()]
    subprocess.run(["apt-get", "download", *names], cwd=folder, check=True)
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, folder], check=True)


def main() -> None:
    """Write the sample to the folder of this file."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        unpack(root)
        html = root / "usr/share/doc/debian-handbook/html"
        pages = {
            target: [page for folder in folders for page in handbook(html, folder)]
            for target, folders in {**PARQUET, "handbook-nl.jsonl": JSON_LINES}.items()
        }
        chapters = list(bible(root / "usr/bin/bible", root / "usr/lib"))
    for target in PARQUET:
        write_parquet(HERE / target, pages[target])
    lines = with_junk(json_lines(pages["handbook-nl.jsonl"]))
    (HERE / "handbook-nl.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    packed = gzip.compress(("\n".join(json_lines(chapters)) + "\n").encode(), mtime=0)
    (HERE / "kjv.jsonl.gz").write_bytes(packed)
    documents = [page for group in pages.values() for page in group] + chapters
    tokenizer = train_tokenizer(document.content or "" for document in documents)
    tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
