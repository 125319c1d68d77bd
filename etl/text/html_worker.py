"""The child process that extracts text from pages: a script that imports only an extractor.

``etl.text.html`` starts it. It ends at the end of its input, and so also when its parent is killed. A
timer signal ends it when a page takes too long, even inside native code.

Pages and answers are in two in-memory files that both processes have open. The parent writes a batch of
pages (UTF-8) to the first file from its beginning, then sends their number and lengths on standard input
(little-endian uint32). The child writes its answers to the second file, where they survive its end: one
byte, a length, and the text or error message (UTF-8). After the last answer of a batch it writes one byte to
standard output. Before the first batch it reports in the same way that it is ready.
"""

import json
import logging
import os
import re
import resource
import signal
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

COUNT = struct.Struct("<I")
ANSWER = struct.Struct("<cI")
TEXT, FAILED = b"t", b"f"
DONE = b"."

WAITING = 10
"""Seconds of wall time allowed per second of CPU time, so that a busy machine does not change results."""

_MAX_MEMORY_BYTES = 4 << 30  # of address space: chosen here, twice the need of the largest page
_BOM = "\ufeff"
# The reading of a ruby base ends with its own end tag, the next part of the annotation, or its block.
_READING_END = (
    "r[bpt]|rtc|ruby|p|div|li|t[dhr]|table|h[1-6]|[uod]l|d[dt]|blockquote|section|article|body|html"
)
_READINGS = tuple(
    re.compile(
        rf"<{name}(?:\s[^<>]*)?>[^<]*(?:<(?!/?(?:{_READING_END})\b)[^<]*)*(?:</{name}\s*>)?",
        re.IGNORECASE,
    )
    for name in ("rt", "rp", "rtc")
)
_RUBY_TAGS = re.compile(r"</?(?:ruby|rb|rtc)(?:\s[^<>]*)?>", re.IGNORECASE)
_MARK = "\ufdd0"  # a noncharacter
_REFERENCE = r"&(?!nbsp;|#160;|quot;|amp;|[lg]t;)#?\w{1,20};"
_LONE_CHARACTER = re.compile(rf"(>\s*+(?:[\u0800-\ud7ff\uf900-\uffff]|{_REFERENCE}))(\s*<)")
_REFERENCE_BEFORE_TAG = re.compile(rf"{_REFERENCE}\s*<")
_WARM_UP = (
    "<html><body><article><p>A sentence that triggers lazy imports.</p></article></body></html>"
)


def load_extractor(name: str) -> Callable[[str], str]:
    """Return the function that extracts the text of a page, empty if it has none.

    >>> print(load_extractor("resiliparse")("<title>No</title><body><h1>Yes</h1><p>and <b>more</b></p>"))
    Yes
    <BLANKLINE>
    and more
    """
    if name == "resiliparse":
        from resiliparse.extract.html2text import extract_plain_text

        return lambda page: extract_plain_text(
            mark_lone_characters(remove_readings(page.removeprefix(_BOM))),
            main_content=True,
            alt_texts=False,
        ).replace(_MARK, "")
    from trafilatura import extract

    # As in FineWeb, but without `deduplicate`, with which the result depends on earlier pages.
    return lambda page: (
        extract(page.removeprefix(_BOM), favor_precision=True, include_comments=False) or ""
    )


def remove_readings(page: str) -> str:
    """Return a page with the base text of its ruby annotations, without their readings.

    resiliparse 2 would keep the readings and lose the base text. trafilatura removes them itself.

    >>> remove_readings("<p><ruby>漢<rp>(<rt>かん<rp>)</rp>字<rt>じ</ruby>")
    '<p>漢字'
    """
    if "<ruby" not in page and "<RUBY" not in page:
        return page
    for reading in _READINGS:
        page = reading.sub("", page)
    return _RUBY_TAGS.sub("", page)


def mark_lone_characters(page: str) -> str:
    """Return a page with a mark after each character that is alone between two tags.

    resiliparse 2 takes a character of three bytes in UTF-8 that is alone for an icon of a private font, and
    drops it: the text of ``<b>漢</b>`` and ``<i>—</i>``.
    """
    if page.isascii() and not _REFERENCE_BEFORE_TAG.search(page):
        return page
    return _LONE_CHARACTER.sub(r"\1&#xFDD0;\2", page)


@contextmanager
def limit_time(seconds: float) -> Iterator[Callable[[], None]]:
    """End this process if the block takes more CPU time, or ten times as much wall time.

    Gives a function that restarts both timers.
    """

    def restart() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)

    restart()
    try:
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def main(settings: str) -> None:
    """Answer batches of pages until the input ends."""
    timer_signals = (signal.SIGPROF, signal.SIGALRM)
    for number in timer_signals:  # reset handlers and masks inherited from the parent
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, timer_signals)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    logging.disable()
    given = json.loads(settings)
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps stray prints out of the protocol
    try:
        extract = load_extractor(given["extractor"])
        extract(_WARM_UP)
    except ImportError as error:
        _write_answer(given["answers"], 0, FAILED, str(error))
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    _write_answer(given["answers"], 0, TEXT, "")
    os.write(output, DONE)
    while lengths := _read_lengths(sys.stdin.buffer):
        page_offset = answer_offset = 0
        with limit_time(given["seconds"]) as restart:
            for length in lengths:
                restart()
                page = os.pread(given["pages"], length, page_offset)
                page_offset += length
                answer_offset = _write_answer(
                    given["answers"], answer_offset, *_extract(extract, page)
                )
        os.write(output, DONE)


def _extract(extract: Callable[[str], str], page: bytes) -> tuple[bytes, str]:
    try:
        return TEXT, extract(page.decode())
    except Exception as error:  # noqa: BLE001  # one bad page must not stop the others
        return FAILED, f"{type(error).__name__}: {error}"


def _read_lengths(requests: BinaryIO) -> "array[int]":
    """Return the lengths of the pages in the next batch, an empty array at the end of the input."""
    head = requests.read(COUNT.size)
    count = COUNT.unpack(head)[0] if len(head) == COUNT.size else 0
    return array("I", requests.read(4 * count))


def _write_answer(file: int, offset: int, kind: bytes, text: str) -> int:
    """Write an answer at an offset and return the offset of the next one."""
    content = text.encode("utf-8", "replace")
    return offset + os.pwrite(file, ANSWER.pack(kind, len(content)) + content, offset)


if __name__ == "__main__":
    main(sys.argv[1])
