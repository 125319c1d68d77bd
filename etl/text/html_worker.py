"""The process that turns pages into text: a script that imports no more than an extractor.

It is started by ``etl.text.html`` and ends when its input does, so also when its parent is killed.
The kernel itself ends it when a page takes too long, whatever code it hangs in.

Pages and answers are in two files in memory, which both processes have open. The parent writes a batch
from the first file's beginning, UTF-8, and says on the input how many pages there are, and their lengths
(little-endian uint32). The answers go into the second file, so that they outlive this process: one byte, a
length, and the text or what went wrong, UTF-8. When all are there, a byte goes to the output; first of
all, the process answers so for itself.
"""

import json
import logging
import os
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
"""Seconds on the clock for a second of processor time: a busy machine must not decide what is kept."""

_MAX_MEMORY_BYTES = 4 << 30  # chosen here: of addresses, so twice what a page of the limit takes
_BOM = "\ufeff"
_WARM_UP = (
    "<html><body><article><p>One sentence, to load what is loaded late.</p></article></body></html>"
)


def extractor(name: str) -> Callable[[str], str]:
    """The function from a page to its text, empty if there is none.

    >>> print(extractor("resiliparse")("<title>No</title><body><h1>Yes</h1><p>and <b>more</b></p>"))
    Yes
    <BLANKLINE>
    and more
    """
    if name == "resiliparse":
        from resiliparse.extract.html2text import extract_plain_text

        return lambda page: extract_plain_text(
            page.removeprefix(_BOM), main_content=True, alt_texts=False
        )
    from trafilatura import extract

    # As FineWeb did, but without `deduplicate`: that makes a page depend on those before it.
    return lambda page: (
        extract(page.removeprefix(_BOM), favor_precision=True, include_comments=False) or ""
    )


@contextmanager
def limited(seconds: float) -> Iterator[Callable[[], None]]:
    """End this process if the block takes more processor time, or ten times that on the clock.

    What it gives begins to count anew.
    """

    def anew() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)

    anew()
    try:
        yield anew
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def main(settings: str) -> None:
    """Answer batches until the input ends."""
    limits = (signal.SIGPROF, signal.SIGALRM)
    for each in limits:  # whatever the parent does with them
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, limits)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    logging.disable()
    given = json.loads(settings)
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that a stray print is no answer
    try:
        extract = extractor(given["extractor"])
        extract(_WARM_UP)
    except ImportError as error:
        _answer(given["answers"], 0, FAILED, str(error))
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    _answer(given["answers"], 0, TEXT, "")
    os.write(output, DONE)
    while lengths := _lengths(sys.stdin.buffer):
        page_at = answer_at = 0
        with limited(given["seconds"]) as anew:
            for length in lengths:
                anew()
                page = os.pread(given["pages"], length, page_at)
                page_at += length
                answer_at = _answer(given["answers"], answer_at, *_outcome(extract, page))
        os.write(output, DONE)


def _outcome(extract: Callable[[str], str], page: bytes) -> tuple[bytes, str]:
    try:
        return TEXT, extract(page.decode())
    except Exception as error:  # noqa: BLE001  # whatever an extractor makes of a page, the next one has its turn
        return FAILED, f"{type(error).__name__}: {error}"


def _lengths(told: BinaryIO) -> "array[int]":
    """Those of the next batch; none at the end of the input."""
    head = told.read(COUNT.size)
    count = COUNT.unpack(head)[0] if len(head) == COUNT.size else 0
    return array("I", told.read(4 * count))


def _answer(file: int, at: int, kind: bytes, text: str) -> int:
    content = text.encode("utf-8", "replace")
    return at + os.pwrite(file, ANSWER.pack(kind, len(content)) + content, at)


if __name__ == "__main__":
    main(sys.argv[1])
