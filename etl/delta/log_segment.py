"""The log segment of a version: its last checkpoint and the commits after it."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from etl import storage
from etl.errors import DamagedLogError, StorageError, TableError, error_line

_THREADS = 16  # I/O-bound
_MAX_HELD_BYTES = 4 << 20
_RESTORE = "restore the log from a backup"


_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")


@dataclass(frozen=True)
class LogSegment:
    """The log segment of a version: the files of the last checkpoint, and the log entries after it."""

    url: str
    version: int
    checkpoint: tuple[str, ...] = ()  # file names
    entries: tuple[str, ...] = ()  # file names
    size: int = 0  # bytes of the log entries
    digest: str | None = None  # of the newest entry; None: unknown

    def after(self, entry_bytes: int, digest: str) -> "LogSegment":
        """Return the log segment after one more commit, given the size and digest of its entry."""
        version = self.version + 1
        entries = (*self.entries, commit_file_name(version))
        size = self.size + entry_bytes
        return replace(self, version=version, entries=entries, size=size, digest=digest)


def log_folder(url: str) -> str:
    """Return the URL of a table's log."""
    return storage.join(storage.normalize(url), "_delta_log")


def list_log_files(url: str) -> list[str]:
    """Return the sorted names of the files in a table's log; raises as ``storage.file_sizes`` does."""
    return sorted(storage.file_sizes(log_folder(url)))


def version_of_commit_file(name: str) -> int:
    """Return the version of a log entry from its file name, or -1 for other files of the log.

    >>> version_of_commit_file("00000000000000000012.json"), version_of_commit_file("_last_checkpoint")
    (12, -1)
    """
    return int(name[:20]) if name[:20].isdigit() and name[20:] == ".json" else -1


def commit_file_name(version: int) -> str:
    """Return the file name of a log entry.

    >>> commit_file_name(12)
    '00000000000000000012.json'
    """
    return f"{version:020}.json"


def read_log_segment(url: str, version: int | None = None) -> LogSegment:
    """Return the log segment of a table's newest version, or of the given version.

    Raises TableError if the table or version does not exist, StorageError if the log cannot be listed.
    """
    head = find_log_segment(url, version)
    if head is None:
        raise TableError("no Delta table at this URL", where=url, hint="check the URL")
    return head


def find_log_segment(url: str, version: int | None = None) -> LogSegment | None:
    """Return the log segment as ``read_log_segment`` does, or None if the table does not exist."""
    sizes = _file_sizes(url)
    if not _is_table(sizes):
        return None
    entry_sizes = {
        version_of_commit_file(name): size
        for name, size in sizes.items()
        if version_of_commit_file(name) >= 0
    }
    checkpoints = find_checkpoints(sizes)
    newest = max([*entry_sizes, *checkpoints], default=None)
    if newest is None:
        raise DamagedLogError("the only checkpoint is incomplete", where=url, hint=_RESTORE)
    wanted = newest if version is None else version
    # The newest complete checkpoint up to the version replaces all entries before it; each entry after
    # it must exist. A checkpoint at 10 and entries 9 to 14: version 13 is the checkpoint and the entries
    # 11 to 13.
    start = max((v for v in checkpoints if v <= wanted), default=-1)
    needed = range(start + 1, wanted + 1)
    missing = next((v for v in needed if v not in entry_sizes), None)
    if missing is not None:
        what = f"has no version {wanted}"
        if wanted > newest:
            raise TableError(what, where=url, hint=f"the newest version is {newest}")
        what += f" (the log entry of version {missing} is missing)"
        raise DamagedLogError(what, where=url, hint=_RESTORE)
    size = sum(entry_sizes[v] for v in needed)
    return LogSegment(
        url, wanted, checkpoints.get(start, ()), tuple(map(commit_file_name, needed)), size
    )


def newest_version(url: str) -> int:
    """Return the newest version that has a file in the log, -1 if there is none; raises as ``has_log``."""
    names = _file_sizes(url)
    return max([*map(version_of_commit_file, names), *find_checkpoints(names)], default=-1)


def has_log(url: str) -> bool:
    """Return whether there is a log, perhaps a damaged one; raises as ``read_log_segment`` does."""
    return _is_table(_file_sizes(url))


def _file_sizes(url: str) -> dict[str, int]:
    """Return the sizes of the files of a log by name."""
    try:
        return storage.file_sizes(log_folder(url))
    except FileNotFoundError:
        return {}
    except StorageError as error:
        url = storage.normalize(url)
        what = f"cannot be reached ({error.what})"
        raise StorageError(what, where=url, hint=error.hint or storage.access_hint(url)) from error


def _is_table(names: Iterable[str]) -> bool:
    return any(version_of_commit_file(name) >= 0 or name.endswith(".parquet") for name in names)


def read_commit_files(
    url: str, names: Sequence[str], held: dict[str, bytes] | None = None
) -> Iterator[bytes]:
    """Yield the contents of log entries in order, reading a few ahead.

    ``held`` has the contents of entries that were read before, and gets the contents of others up to a few
    megabytes. Raises StorageError if an entry is missing.
    """
    log = log_folder(url)
    held = {} if held is None else held

    def read(name: str) -> bytes:
        content = storage.read_bytes(storage.join(log, name))
        if content is None:  # without it, the table would have other rows
            raise DamagedLogError(
                "a log entry is missing", where=storage.join(log, name), hint=_RESTORE
            )
        return content

    with ThreadPoolExecutor(_THREADS) as pool:
        # Starting threads takes longer than reading local files.
        read_all = map if storage.is_local(url) else pool.map
        for start in range(0, len(names), _THREADS):
            chunk = names[start : start + _THREADS]
            missing = [name for name in chunk if name not in held]
            contents = dict(zip(missing, read_all(read, missing), strict=True))
            if sum(map(len, [*held.values(), *contents.values()])) <= _MAX_HELD_BYTES:
                held.update(contents)
            yield from (contents[name] if name in contents else held[name] for name in chunk)


def last_action(content: bytes, kind: str) -> dict[str, Any] | None:
    """Return the last action of a kind in a log entry, or None; only lines of this kind are parsed.

    >>> last_action(b'{"protocol":{"minReaderVersion":1}}', "protocol")
    {'minReaderVersion': 1}
    """
    key = b'"%b"' % kind.encode()
    lines = re.findall(rb"(?m)^\s*\{\s*%b\s*:.*$" % key, content) if key in content else []
    action = json.loads(lines[-1])[kind] if lines else None
    if lines and not isinstance(action, dict):
        raise ValueError(f"{kind} is not a JSON object")
    return action


def ranges(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending versions as ranges (first, last).

    >>> ranges([1, 2, 3, 7])
    [(1, 3), (7, 7)]
    """
    # In consecutive versions, the difference from the index is constant.
    groups = groupby(enumerate(versions), key=lambda pair: pair[1] - pair[0])
    numbers = [[version for _, version in group] for _, group in groups]
    return [(group[0], group[-1]) for group in numbers]


def find_checkpoints(names: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return the file names of complete checkpoints by version."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[2] or 1)), []).append(name)
    return {version: tuple(part) for (version, count), part in parts.items() if len(part) == count}


@contextmanager
def raise_if_damaged(url: str, name: str) -> Iterator[None]:
    """Turn errors raised while a log entry is parsed into a DamagedLogError that names the entry."""
    try:
        yield
    except (ValueError, LookupError, AttributeError) as error:  # Arrow's errors are ValueErrors
        raise damaged_entry(url, name, error_line(error)) from error


def damaged_entry(url: str, name: str, problem: str) -> DamagedLogError:
    """Return the error for a log entry that is damaged."""
    where = storage.join(log_folder(url), name)
    return DamagedLogError(f"a log entry is damaged: it {problem}", where=where, hint=_RESTORE)
