"""Memory: whatever a file contains, reading a split with the default settings takes less than 1 GB."""

import gzip
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard
from isal import isal_zlib

from tests.helpers.hostile_columns import HOSTILE_COLUMNS
from tests.helpers.reading_memory import MAX_GROWTH_BYTES, Reader
from tests.helpers.warc_archives import record, response

MB = 1 << 20


def repeated(unit: bytes, size: int, kind: str) -> bytes:
    """Many copies of some bytes, compressed."""
    content = unit * (MB // len(unit))
    count = size // len(content)
    if kind == "gzip":
        return isal_zlib.compress(content * 8, 1, 31) * (count // 8)
    if kind == "zstd":
        return zstandard.compress(content * 8) * (count // 8)
    return content * count


def packed(*parts: bytes | tuple[bytes, int], kind: str = "zstd") -> bytes:
    """Members of bytes, or of many copies of bytes."""
    compressions: dict[str, Callable[[bytes], bytes]] = {
        "zstd": zstandard.compress,
        "gzip": gzip.compress,
        "": bytes,
    }
    compress = compressions[kind]
    return b"".join(
        compress(part) if isinstance(part, bytes) else repeated(*part, kind) for part in parts
    )


GOOD_LINE = b'{"text": "good", "id": 1, "more": 1}\n'
GOOD = {"text": 1, "source.too_large": 1}

_LISTS = {
    "empty lists": b"[],",
    "lists": b"[[[0]]],",
    "objects": b'{"":{"":0}},',
    "numbers": b"1.5,",
    "integers": b"1,",
    "floats that grow": b"1e15,",
    "NaN": b"NaN,",
    "strings": '"ā",'.encode(),
}


def json_lines(unit: bytes, size: int) -> bytes:
    """A line with a long list, then a good one; a good line may follow a bad one."""
    start = '{"text": "😀", "more": ['.encode()
    return packed(start, (unit, size), b"0]}\n" + GOOD_LINE)


def json_string(unit: bytes, size: int, start: bytes) -> bytes:
    """A line that ends in a long string, then a good line."""
    return packed(start, (unit, size), b'"}\n' + GOOD_LINE)


HOSTILE: dict[str, Callable[[], bytes]] = {}
EXPECTED: dict[str, dict[str, int]] = {}


def hostile(name: str, content: Callable[[], bytes], **expected: int) -> None:
    """Add a file, whose name has the format after a slash, and the rows expected of it."""
    HOSTILE[name] = content
    EXPECTED[name] = {
        reason if reason == "text" else f"source.{reason}": count
        for reason, count in expected.items()
    }


for name, unit in _LISTS.items():
    for size in (24, 256):
        hostile(
            f"{name}, {size} MB/a.jsonl.zst",
            partial(json_lines, unit, size * MB),
        )
_WIDE = '{"text": "😀", "more": "'.encode()
hostile("a wide string/a.jsonl.zst", lambda: json_string(b"ab", 24 * MB, _WIDE), text=2)
hostile(
    "control characters/a.jsonl.zst", lambda: json_string(b"\\u0001\\n", 24 * MB, _WIDE), text=2
)
hostile(
    "a wide text/a.jsonl.zst", lambda: json_string(b"ab", 15 * MB, '{"text": "😀'.encode()), text=2
)
hostile(
    "one long line/a.jsonl.gz",
    lambda: packed((b"x", 640 * MB), b"\n" + GOOD_LINE, kind="gzip"),
    text=1,
    too_large=1,
)
hostile(
    "invalid UTF-8/a.jsonl.zst",
    lambda: json_string(b"\xff", 24 * MB, b'{"text": "a", "more": "'),
    text=1,
    invalid_utf8=1,
)
hostile(
    "long ids/a.jsonl.zst",
    lambda: packed((b'{"text": "a", "id": "' + b"x" * 900_000 + b'"}\n', 200 * MB)),
)
hostile(
    "deep/a.jsonl.zst",
    lambda: packed(b'{"text": ', (b"[", 24 * MB), b"\n" + GOOD_LINE),
    text=1,
    too_large=1,
)
hostile(  # one array of records, of which the first does not end
    "deep array/a.jsonl.zst",
    lambda: packed((b"[", 24 * MB), b"\n" + GOOD_LINE),
    too_large=1,
    malformed=1,
)
hostile(
    "an integer/a.jsonl.zst",
    lambda: packed(b'{"text": ', (b"9", 24 * MB), b"}\n" + GOOD_LINE),
    text=1,
    malformed=1,
)

hostile("unclosed quote/a.csv.zst", lambda: packed(b'text,id\n"', (b"a\n", 20 * MB)))
hostile(
    "unclosed quote of wide characters/a.csv.zst",
    lambda: packed('text,id\n"😀'.encode(), (b"ab", 24 * MB)),
)
hostile("unclosed quote over lines/a.csv.zst", lambda: packed(b'text,id\n"', (b"abc\n", 40 * MB)))
hostile(
    "fields/a.csv.zst",
    lambda: packed(b"text,id\n", (",ā".encode(), 30 * MB), b"\ngood,1\n"),
    text=1,
    too_large=1,
)
hostile(
    "fields of the header/a.csv.zst", lambda: packed(b"text,id", (b",ab", 30 * MB), b"\ngood,1\n")
)
hostile(
    "control characters/a.csv.zst",
    lambda: packed("text,id\na,😀".encode(), (b"\1", 30 * MB), b"\ngood,1\n"),
    text=1,
    too_large=1,
)
hostile(
    "quoted quotes/a.csv.zst",
    lambda: packed(b'text,id\na,"', (b'""', 30 * MB), b'"\ngood,1\n'),
    text=2,
)

hostile("long/a.txt.gz", lambda: packed((b"x", 640 * MB), kind="gzip"), too_large=1)
hostile("wide/a.txt.zst", lambda: packed("😀".encode(), (b"\xff", 15 * MB)), invalid_utf8=1)


def _warc(
    *block: bytes | tuple[bytes, int], length: int = -1, kind: str = "zstd", **fields: Any
) -> bytes:
    if length < 0:
        length = sum(len(part) if isinstance(part, bytes) else part[1] for part in block)
    header = record("response", 1, b"", length=length, Content_Type="application/http", **fields)
    return packed(header.removesuffix(b"\r\n\r\n"), *block, b"\r\n\r\n" + response(2), kind=kind)


_HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/html"


def _one_member(kind: str) -> bytes:
    header = record("response", 1, b"", length=640 * MB, Content_Type="application/http")
    compressor = (
        zstandard.ZstdCompressor().compressobj()
        if kind == "zstd"
        else isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
    )
    content = b"x" * (8 * MB)
    parts = [
        compressor.compress(header[:-4]),
        *(compressor.compress(content) for _ in range(80)),
        compressor.flush(),
    ]
    return b"".join(parts) + packed(response(2), kind=kind)


for kind in ("gzip", "zstd"):
    hostile(
        f"a long record/a.warc.{kind}",
        partial(_warc, (b"x", 640 * MB), length=640 * MB, kind=kind),
        text=1,
        too_large=1,
    )
    hostile(
        f"a long record of one member/a.warc.{kind}",
        partial(_one_member, kind),
        text=1,
        too_large=1,
    )
hostile(
    "a record of 30 MB/a.warc.zst",
    lambda: _warc(_HTTP + b"\r\n\r\n", (b"x", 24 * MB)),
    text=1,
    too_large=1,
)
hostile(
    "a wrong length/a.warc.zst",
    lambda: _warc((b"x", 400 * MB), length=539_000_000),
    text=1,
    damaged=1,
)
hostile("blanks/a.warc.zst", lambda: _warc((b"\r\n", 400 * MB), length=0), text=1, malformed=1)
hostile(
    "a long header/a.warc.zst",
    lambda: packed(response(1), b"WARC/1.0\r\nA: ", (b"x", 400 * MB), b"\r\n\r\n" + response(2)),
    text=2,
    damaged=1,
)
for charset in ("windows-1252", "utf-16", "tis-620", "gb18030", "utf-8"):
    body = b"\r\n\r\n" + bytes(range(160, 200))
    hostile(
        f"a page in {charset}/a.warc.zst",
        partial(
            _warc,
            _HTTP + f"; charset={charset}".encode() + body,
            (bytes(range(192, 224)), 24 * MB),
        ),
    )


def _encoded(*codings: str, size: int = 256 * MB) -> bytes:
    """A record of a page with content encodings."""
    content = bytes(size)
    for coding in codings:
        match coding:
            case "gzip" | "x-gzip":
                content = isal_zlib.compress(content, 1, 31)
            case "deflate":
                content = isal_zlib.compress(content, 1, 15)
            case "br":
                content = brotli.compress(content, quality=1, lgwin=24)
            case "zstd":
                content = zstandard.compress(content)
    return response(1, content, Content_Encoding=", ".join(codings)) + response(2)


for codings in (
    ("gzip",),
    ("deflate",),
    ("br",),
    ("zstd",),
    ("gzip", "gzip"),
    ("zstd", "br", "gzip"),
):
    hostile(
        f"{' '.join(codings)}/a.warc",
        partial(_encoded, *codings),
        text=1,
        too_large=1,
    )
hostile(
    "many codings/a.warc",
    lambda: response(1, b"x", Content_Encoding="gzip, " * 100_000 + "gzip") + response(2),
    text=1,
    malformed=1,
)
hostile(
    "many coding fields/a.warc",
    lambda: response(1, b"x", X="1\r\nContent-Encoding: gzip" * 30_000) + response(2),
)


for name, content in HOSTILE_COLUMNS.items():
    hostile(name, content)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


@pytest.mark.slow  # a minute in all
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_takes_little_memory(tmp_path: Path, reader: Reader, name: str) -> None:
    path = tmp_path / name.rpartition("/")[2].replace(".gzip", ".gz").replace(".zstd", ".zst")
    path.write_bytes(HOSTILE[name]())
    settings: dict[str, object] = {} if ".txt" in path.name else {"metadata": "all"}
    if "ids" in name:
        settings["columns"] = {"text": "text", "id": "id"}
    answer = reader.measure(path, max_rows=10, **settings)
    assert "crash" not in answer, answer["crash"]
    assert answer["growth_bytes"] < MAX_GROWTH_BYTES
    if EXPECTED[name]:
        assert answer["rows"] == EXPECTED[name]
