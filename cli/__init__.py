"""The command `etl`: parse the options, call the library, print the result.

Results go to stdout, with ``--json`` as JSON and nothing else; progress and errors go to stderr. Exit codes:
0 done; 1 an error, or problems found by ``verify`` or left by ``repair``; 2 a wrong option or argument;
3 part of the input could not be read; 130 interrupted (Ctrl-C); 143 terminated (SIGTERM).
"""

import gc
import sys

__all__ = ["main"]

_COLLECT_AFTER = 50_000  # new objects; imports make more than that, all of which stay


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_COLLECT_AFTER)
    try:
        from etl.cli import app

        app.main()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)
    finally:
        gc.freeze()  # otherwise Python takes up to half a second to collect all objects before it exits
