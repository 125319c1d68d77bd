"""Mutated inputs: copies of valid ones with pieces replaced, inserted, cut, repeated or flipped."""

import gzip
import random
import re
import struct
from collections.abc import Callable, Sequence

import zstandard
from hypothesis import strategies as st

from tests.helpers import parquet_bytes

INTERESTING = (
    b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xed\xa0\x80", b"\r\n", b"\n",
    b'"', b"\\", b"{", b"[", b"[" * 300, b"&a [*a]", b"*a", b"!!int", b"%", b"../", b"\xef\xbb\xbf", b"-1",
    b"9" * 30, b"9" * 5000, b"1e999", b"2026-13-45", b"null", b"\\ud800", b"${HOME}", b"?*[",
)  # fmt: skip

_edit = st.tuples(
    st.sampled_from(["put", "insert", "cut", "repeat", "flip"]),
    st.floats(0, 1, exclude_max=True),
    st.one_of(st.sampled_from(INTERESTING), st.binary(min_size=1, max_size=8)),
    st.integers(1, 40),
)


def apply(content: bytes, edits: Sequence[tuple[str, float, bytes, int]]) -> bytes:
    """The bytes after the edits, each at a fraction of their length."""
    for how, fraction, piece, length in edits:
        offset = int(fraction * len(content))
        match how:
            case "put":
                content = content[:offset] + piece + content[offset + len(piece) :]
            case "insert":
                content = content[:offset] + piece + content[offset:]
            case "cut":
                content = content[:offset] + content[offset + length :]
            case "repeat":
                content = (
                    content[:offset]
                    + content[offset : offset + length] * 3
                    + content[offset + length :]
                )
            case "flip" if content:
                content = (
                    content[:offset]
                    + bytes([content[offset] ^ (1 << length % 8)])
                    + content[offset + 1 :]
                )
    return content


_LENGTH = re.compile(rb"(?i)(content-length: *)(\d+)")
_NUMBER = re.compile(rb"\d+")
_NUMBERS = (0, 1, 127, 128, 1 << 16, 1 << 20, 539_000_000, 2**31 - 1, 2**32, 2**62, 2**63 - 1)


def edit_structure(content: bytes, target: str, rng: random.Random) -> bytes:
    """The bytes with a length, a number or a nesting changed that a reader relies on."""
    unpack, pack = _CODECS[target.rpartition(".")[2]] if "." in target else (bytes, bytes)
    plain = unpack(content)
    return pack(_edit_plain(plain, target.partition(".")[0], rng))


def _edit_plain(content: bytes, target: str, rng: random.Random) -> bytes:
    number = rng.choice(_NUMBERS) + rng.randint(-2, 2)
    match target:
        case "warc":
            return _replace_one(_LENGTH, content, b"\\g<1>%d" % abs(number), rng)
        case "parquet":
            return _edit_parquet(content, abs(number), rng)
        case "arrow":
            offset = rng.randrange(0, len(content) - 8, 4)
            kind = rng.choice(("<i", "<q"))
            value = struct.pack(
                kind, max(-(2**31), min(number, 2**31 - 1)) if kind == "<i" else number % 2**63
            )
            return content[:offset] + value + content[offset + len(value) :]
        case "jsonl" | "delta":
            depth = rng.choice((1, 10, 1000))
            opening, closing = rng.choice(
                ((b"[", b"]"), (b'{"a":', b"}"), (b'"', b'"'), (b"[1,", b"]"))
            )
            return _replace_one(_NUMBER, content, opening * depth + b"1" + closing * depth, rng)
        case "csv":
            offset = rng.randrange(len(content))
            return (
                content[:offset]
                + rng.choice((b'"', b'""', b"," * 1000, b'",', b'\n"'))
                + content[offset:]
            )
    return content


def _replace_one(
    pattern: re.Pattern[bytes], content: bytes, by: bytes, rng: random.Random
) -> bytes:
    matches = list(pattern.finditer(content))
    if not matches:
        return content
    match = rng.choice(matches)
    return content[: match.start()] + match.expand(by) + content[match.end() :]


def _edit_parquet(content: bytes, number: int, rng: random.Random) -> bytes:
    """Replace a number in the footer, whose length is written again, or in the pages."""
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    pages = content[: -8 - length]
    varint = parquet_bytes.varint(number)
    if rng.random() < 0.3:  # a number of the same length, as offsets follow
        offset = rng.randrange(4, min(len(pages), 200))
        pages = pages[:offset] + varint[:1] + pages[offset + 1 :]
    else:
        offset = rng.randrange(len(footer))
        end = offset + 1
        while end < len(footer) and footer[end - 1] & 0x80:
            end += 1
        footer = footer[:offset] + varint + footer[end:]
    return pages + footer + struct.pack("<I", len(footer)) + b"PAR1"


_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gz": (gzip.decompress, gzip.compress),
    "zst": (zstandard.decompress, zstandard.compress),
}


def mutated(valid: Sequence[bytes], target: str) -> st.SearchStrategy[bytes]:
    """A valid input with one to four edits, or with a number or a structure changed."""
    edits = st.lists(_edit, min_size=1, max_size=4)
    seeds = st.integers(0, 2**32).map(random.Random)
    plain = st.builds(apply, st.sampled_from(valid), edits)
    return plain | st.builds(edit_structure, st.sampled_from(valid), st.just(target), seeds)
