"""Builders of WARC records and files for the tests."""

import gzip
import struct
from collections.abc import Iterable

import zstandard

PAGE = b"<!DOCTYPE html><html><body><h1>Title</h1><p>A sentence of words.</p></body></html>"


def record(kind: str, number: int, block: bytes, *, length: int | None = None, **fields) -> bytes:
    """A WARC record; ``fields`` are other header fields, with _ for -."""
    header = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:{number}>",
        "WARC-Date": "2026-10-01T00:00:00Z",
        "WARC-Target-URI": f"https://example.org/{number}",
        "Content-Length": len(block) if length is None else length,
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in header.items() if value is not None)
    return b"WARC/1.0\r\n" + lines.encode() + b"\r\n" + block + b"\r\n\r\n"


def http(body: bytes, *, status: str = "200 OK", **fields) -> bytes:
    """An HTTP response."""
    header = {"Content-Type": "text/html; charset=utf-8"}
    header |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in header.items() if value is not None)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body


def response(number: int, body: bytes = PAGE, **settings) -> bytes:
    """A response record with a page."""
    block = http(body, **settings)
    return record("response", number, block, Content_Type="application/http; msgtype=response")


def conversion(number: int, text: str, **fields) -> bytes:
    """A record of a WET file."""
    return record("conversion", number, text.encode(), Content_Type="text/plain", **fields)


def pack(records: Iterable[bytes], how: str) -> bytes:
    """A file of the records: plain, one gzip member or zstd frame per record, or one for all."""
    match how:
        case "gzip":
            return b"".join(gzip.compress(each, 1, mtime=0) for each in records)
        case "one gzip":
            return gzip.compress(b"".join(records), 1, mtime=0)
        case "zstd":
            compressor = zstandard.ZstdCompressor(write_checksum=True)
            return b"".join(compressor.compress(each) for each in records)
        case "zstd with dictionary" | "zstd with compressed dictionary":
            samples = [conversion(n, f"sample {n} of the texts") for n in range(500)]
            dictionary = zstandard.train_dictionary(2048, samples)
            content = dictionary.as_bytes()
            if "compressed" in how:
                content = zstandard.compress(content)
            compressor = zstandard.ZstdCompressor(dict_data=dictionary)
            frame = struct.pack("<II", 0x184D2A5D, len(content)) + content
            return frame + b"".join(compressor.compress(each) for each in records)
    return b"".join(records)


PACKINGS = (
    "plain",
    "gzip",
    "one gzip",
    "zstd",
    "zstd with dictionary",
    "zstd with compressed dictionary",
)

HANGS = "<div>" * 100_000 + "x"
"""Nested so deeply that resiliparse 2 takes minutes, in code that Python signal handlers cannot interrupt."""
