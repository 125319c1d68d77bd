"""The standard streams of a command: closed ones, and pipes whose reader has ended.

As in git, a stream that is closed (``>&-``) becomes the null device: otherwise the first file that is opened
would get its descriptor, and what is printed would damage that file. A pipe without a reader (``| head``)
ends the command quietly, with the exit status that SIGPIPE gives to other programs.
"""

import io
import os
import sys
from threading import current_thread, main_thread
from typing import Any, Final, TextIO

from etl.cli.stops import BROKEN_PIPE
from etl.visible_text import escape_output

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_streams() -> None:
    """Open the standard streams that are closed, end quietly at a broken pipe, and escape what is printed."""
    while (file := os.open(os.devnull, os.O_RDWR)) < len(_STREAMS):
        os.set_inheritable(file, True)
    os.close(file)
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.stdout, sys.stderr = _ending_at_broken_pipe(sys.stdout), _ending_at_broken_pipe(sys.stderr)
    escape_output()


def _ending_at_broken_pipe(stream: TextIO) -> TextIO:
    old: Any = stream  # typeshed has no attributes of buffering for it
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )


class _Output(io.FileIO):
    """A descriptor to write to, which ends the process where its reader has ended."""

    def write(self, data: Any) -> Any:
        """Write bytes; without a reader, exit, or continue in a thread, which cannot exit."""
        try:
            return super().write(data)
        except BrokenPipeError:
            if current_thread() is not main_thread():
                return len(data)
            self._drop_the_rest()
            raise SystemExit(BROKEN_PIPE) from None
        except OSError:
            self._drop_the_rest()  # the first error is reported
            raise

    def _drop_the_rest(self) -> None:
        """Discard what is printed while the command ends."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
