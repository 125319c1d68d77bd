"""The command line: ``etl``. It parses, calls and renders; what it prints comes from ``etl``.

Facts go to stdout (``--json`` makes them JSON and nothing else), progress and errors to stderr.
Exit codes: 0 done; 1 an error, or problems found by ``verify``; 2 a mistake in the command; 3 done,
with input that could not be read; 130 interrupted.
"""

from etl.cli.app import main

__all__ = ["main"]
