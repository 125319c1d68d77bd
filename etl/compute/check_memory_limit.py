"""The memory limit of workers on this machine: text such as ``2GiB``."""

from typing import Final

from etl.errors import ClusterError

MIN_MEMORY: Final = 512 << 20
"""Bytes that a worker needs at least: it takes 400 MB when it has loaded the library (RESULTS.md)."""


def check_memory_limit(text: str) -> None:
    """Raise ClusterError if a text is not a number of bytes that is enough for a worker.

    >>> check_memory_limit("2GiB")
    >>> check_memory_limit("50MB")
    Traceback (most recent call last):
        ...
    etl.errors.ClusterError: the memory limit '50MB' is too small: a worker needs at least 512MiB
      hint: write, for example, 2GiB
    """
    from dask.utils import parse_bytes

    try:
        is_enough = parse_bytes(text) >= MIN_MEMORY
        problem = "is too small: a worker needs at least 512MiB"
    except ValueError:
        is_enough, problem = False, "is not a number of bytes"
    if not is_enough:
        raise ClusterError(f"the memory limit {text!r} {problem}", hint="write, for example, 2GiB")
