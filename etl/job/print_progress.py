"""Print the progress of a run in a notebook or a terminal, as one line that is rewritten."""

import sys
import time
from typing import Final

from etl.job.progress import Progress
from etl.visible_text import one_line

_SECONDS: Final = 0.5  # between two lines; chosen here


class PrintProgress:
    """A callback for ``on_progress`` that prints to standard output, where notebooks show it.

    Its method ``status`` is one for ``on_status``. A notebook uses both by default.

    >>> from etl.job.progress import Progress
    >>> PrintProgress()(Progress("documents", done=4, total=4, rows=3000, kept=2000, seconds=2.0))
    documents   4/4 splits  2,000 of 3,000 documents kept  1,500/s
    """

    def __init__(self) -> None:
        self._printed = -float("inf")
        self._width = 0  # of the line that the next one replaces

    def __call__(self, progress: Progress) -> None:
        """Print the progress of a step; its end is always printed."""
        is_last = progress.done == progress.total
        now = time.monotonic()
        if not is_last and now - self._printed < _SECONDS:
            return
        self._printed = now
        self._print(_line(progress), is_last=is_last)

    def status(self, text: str) -> None:
        """Print what the run is doing."""
        self._print(one_line(text), is_last=False)

    def _print(self, text: str, *, is_last: bool) -> None:
        start = "\r" if self._width else ""
        end = "\n" if is_last else ""
        sys.stdout.write(f"{start}{text.ljust(self._width)}{end}")
        sys.stdout.flush()
        self._width = 0 if is_last else len(text)


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def _line(progress: Progress) -> str:
    text = (
        f"{progress.step:<11} {progress.done:,}/{progress.total:,} splits  "
        f"{progress.kept:,} of {progress.rows:,} documents kept"
    )
    return f"{text}  {progress.rows / progress.seconds:,.0f}/s" if progress.seconds > 0 else text
