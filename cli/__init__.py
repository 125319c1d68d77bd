"""The command `etl`: parse the options, call the library, print the result.

Results go to stdout, with ``--json`` as JSON and nothing else; progress and errors go to stderr. Exit codes:
0 done; 1 an error, or problems found by ``verify`` or left by ``repair``; 2 a wrong option or argument;
3 part of the input could not be read; 130 interrupted (Ctrl-C); 141 the program that reads the output has
ended, as ``head`` does (SIGPIPE); 143 terminated (SIGTERM). What is printed to a closed stream is lost, which
is not an error.
"""

import gc
import sys

from etl.cli.stops import exit_now, is_stopped, stop_of
from etl.cli.streams import open_streams

__all__ = ["main"]

_COLLECT_AFTER = 50_000  # new objects; imports make more than that, all of which stay


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_COLLECT_AFTER)
    open_streams()
    try:
        from etl.cli import app

        app.main()
    except KeyboardInterrupt as interrupt:  # before a command has begun
        word, code = stop_of(interrupt)
        sys.stderr.write(f"{word}\n")
        exit_now(code)
    except SystemExit as end:
        if isinstance(end.code, int) and is_stopped(end.code):
            exit_now(end.code)
        raise
    finally:
        gc.freeze()  # otherwise Python takes up to half a second to collect all objects before it exits
