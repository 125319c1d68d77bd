"""The command `etl`: parse the options, call the library, print the result.

Results go to stdout, with ``--json`` as JSON and nothing else; progress and errors go to stderr. Exit codes:
0 done; 1 an error, or problems found by ``verify`` or left by ``repair``; 2 a wrong option or argument;
3 done, but part of the input could not be read; 130 interrupted.
"""

from etl.cli.app import main

__all__ = ["main"]
