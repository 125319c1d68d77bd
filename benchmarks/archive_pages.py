"""Web archive to text: the cost of a page compared with its extractor alone.

    TOKENLAKE_DATA=... python benchmarks/archive_pages.py [--rounds 5] [--extractor trafilatura]

reads the 2,040 pages of ``web/mdn-pages.warc.gz`` in ``$TOKENLAKE_DATA``. ``bare`` is the minimum for
any program: FastWARC's iterator, resiliparse's charset detection and the extractor, in one process and
without limits. ``tokenlake`` is ``etl.sources.read_split`` and the stage ``extract``: tables with addresses
and reasons, damage reported, and pages in a child process with a reliable time limit. CPU time,
including the child's; best of alternating rounds.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.parse.encoding import bytes_to_str, detect_encoding
from token_data import data_folder

from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.sources.source_settings import Source
from etl.stages import Extract
from etl.text.html import Extractor
from etl.text.html_worker import load_extractor


def bare(file: Path, name: Extractor) -> int:
    """Extract the pages of an archive with its libraries alone; return their number."""
    extract, pages = load_extractor(name), 0
    with file.open("rb") as stream:
        for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
            content = record.reader.read()
            charset = record.http_charset or detect_encoding(content) or "utf-8"
            extract(bytes_to_str(content, charset))
            pages += 1
    return pages


def tokenlake(file: Path, name: Extractor) -> int:
    """Extract the pages of an archive with a source and a stage; return their number."""
    source, stage, pages = Source(path=str(file)), Extract(extractor=name), 0
    for split in list_splits(source):
        for table in read_split(split, source):
            found = stage.apply(table)
            assert found["reason"].null_count == found.num_rows, "a page is rejected"
            pages += found.num_rows
    return pages


def seconds(
    work: Callable[[Path, Extractor], int], file: Path, name: Extractor
) -> tuple[float, int]:
    """Return the CPU seconds of this process and its children for all pages, and the number of pages."""
    before = _cpu()
    pages = work(file, name)
    return _cpu() - before, pages


def _cpu() -> float:
    children = psutil.Process().children()
    return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in children)


def main() -> None:
    """Print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--extractor", choices=("resiliparse", "trafilatura"), default="resiliparse"
    )
    given = parser.parse_args()
    file = data_folder() / "web" / "mdn-pages.warc.gz"
    best: dict[str, float] = {}
    for _ in range(1 + given.rounds):  # the first one loads lazy imports
        for work in (bare, tokenlake):
            found, pages = seconds(work, file, given.extractor)
            best[work.__name__] = min(found, best.get(work.__name__, found))
    print(f"| {pages:,} pages, {given.extractor} | ms/page | ratio |\n|---|---|---|")
    for name, found in best.items():
        print(f"| {name} | {found / pages * 1e3:.3f} | {found / best['bare']:.3f} |")


if __name__ == "__main__":
    main()
