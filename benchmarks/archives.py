"""Web archives: what reading a page takes, beside gunzip alone and FastWARC with resiliparse's charsets.

    TOKENLAKE_DATA=... python benchmarks/archives.py [--rounds 5] [--before CHECKOUT]

reads the small pages of ``web/mdn-pages.warc.gz``, and the news pages of ``extraction/`` as an archive like
Common Crawl's: a request, a response and metadata for each page, each a gzip member; two in five responses
declare no charset. ``plain`` is the same file without gzip. ``--before`` reads each file with another
checkout too, in pairs of processes. CPU time, best of alternating rounds.
"""

import argparse
import gzip
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from fastwarc.warc import ArchiveIterator, WarcRecordType
from isal import isal_zlib
from resiliparse.parse.encoding import bytes_to_str, detect_encoding
from token_data import data_folder

from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.sources.source_settings import Source

_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([\w-]+)")


def read(file: Path) -> int:
    """Read the pages of an archive as a source, and return their number."""
    source = Source(path=str(file))
    return sum(
        table.num_rows for split in list_splits(source) for table in read_split(split, source)
    )


def fastwarc(file: Path) -> int:
    """Read the pages with libraries alone: no addresses, reasons or damage."""
    pages = 0
    with file.open("rb") as stream:
        for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
            content = record.reader.read()
            bytes_to_str(content, record.http_charset or detect_encoding(content) or "utf-8")
            pages += 1
    return pages


def gunzip(file: Path) -> int:
    """Decompress the members, and return the number of bytes."""
    packed, size = memoryview(file.read_bytes()), 0
    while packed:
        member = isal_zlib.decompressobj(wbits=31)
        used = 0
        while not member.eof:
            size += len(member.decompress(packed[used : used + (16 << 10)]))
            used += 16 << 10
        packed = packed[min(used, len(packed)) - len(member.unused_data) :]
    return size


def labelled_pages(folder: Path) -> Iterator[bytes]:
    """Yield the HTML of the labelled pages."""
    for name in ("segments", "articles", "languages"):
        pages = pq.read_table(folder / f"{name}.parquet", columns=["html"])["html"].to_pylist()
        yield from filter(None, pages)


def records(name: str, pages: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the records of an archive of pages, whose addresses have its name."""
    chance = random.Random(1)  # noqa: S311 - the same pages in each run
    for number, page in enumerate(pages):
        charset = _CHARSET.search(page[:2048])
        is_declared = charset is not None and chance.random() < 0.6
        declared = f"; charset={charset[1].decode()}" if charset and is_declared else ""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html{declared}\r\n\r\n"
        url = f"https://example.org/{name}/{number}"
        yield _record("request", url, b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
        yield _record("response", url, head.encode() + page)
        yield _record("metadata", url, b"fetchTimeMs: 100\r\n")


def _record(kind: str, url: str, block: bytes) -> bytes:
    media_type = "application/warc-fields" if kind == "metadata" else "application/http"
    header = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Date: 2026-11-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:6cf8140e-{kind}>\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Payload-Digest: sha1:5WB4VRYWZNZJEEC4GB6NNGWWL2ARHNTQ\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return header.encode() + block + b"\r\n\r\n"


def seconds(work: Callable[[Path], int], file: Path) -> float:
    """Return the CPU seconds that work on a file takes."""
    before = time.process_time()
    work(file)
    return time.process_time() - before


def in_process(checkout: Path, file: Path) -> float:
    """Return the best of three CPU times of reading a file with a checkout, in a new process."""
    code = "import sys; from pathlib import Path; import archives as a; f = Path(sys.argv[1]); a.read(f)"
    code += "; print(min(a.seconds(a.read, f) for _ in range(3)))"
    paths = os.pathsep.join((str(checkout), str(Path(__file__).parent)))
    command = [sys.executable, "-c", code, str(file)]
    environment = {**os.environ, "PYTHONPATH": paths}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(result.stdout)


def main() -> None:
    """Print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    given = parser.parse_args()
    checkouts = {"read": Path(__file__).parents[1]}
    if given.before is not None:
        checkouts |= {"read before": given.before.resolve()}
    print("| us/page | " + " | ".join((*checkouts, "FastWARC", "gunzip alone")) + " |")
    print("|---" * (len(checkouts) + 3) + "|")
    with tempfile.TemporaryDirectory() as folder:
        small, large = data_folder() / "web" / "mdn-pages.warc.gz", Path(folder, "news.warc.gz")
        pages = labelled_pages(data_folder() / "extraction")
        members = map(gzip.compress, records("news", pages))
        large.write_bytes(b"".join(members))
        for file in (small, large):
            plain = Path(folder, f"{file.name.removesuffix('.warc.gz')}-plain.warc")
            plain.write_bytes(gzip.decompress(file.read_bytes()))
            for each in (file, plain):
                _print_line(each, checkouts, given.rounds)


def _print_line(file: Path, checkouts: dict[str, Path], rounds: int) -> None:
    pages = read(file)
    best: dict[str, float] = {}
    for _ in range(rounds):
        found = {name: in_process(checkout, file) for name, checkout in checkouts.items()}
        found["FastWARC"] = seconds(fastwarc, file)
        if file.suffix == ".gz":
            found["gunzip"] = seconds(gunzip, file)
        best = {name: min(took, best.get(name, took)) for name, took in found.items()}
    cells = [f"{took / pages * 1e6:.0f}" for took in best.values()]
    print(
        f"| {pages:,} pages, {file.name} | "
        + " | ".join(cells)
        + " |"
        + " |" * ("gunzip" not in best)
    )


if __name__ == "__main__":
    main()
