"""The files of a Delta log: the log segment of a version, commits, and vacuumed versions.

The format is the Delta protocol's (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from etl import storage
from etl.errors import StorageError, TableError, said

_THREADS = 16  # I/O-bound
_VACUUMED = "_vacuumed.json"  # next to the data files
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")


@dataclass(frozen=True)
class Head:
    """The log segment of a version: the files of the last checkpoint, and the log entries after it."""

    url: str
    version: int
    checkpoint: tuple[str, ...] = ()  # file names
    entries: tuple[str, ...] = ()  # file names
    size: int = 0  # bytes of the log entries

    def after(self, entry_bytes: int) -> "Head":
        """Return the log segment after one more commit."""
        version = self.version + 1
        entries = (*self.entries, entry_name(version))
        return replace(self, version=version, entries=entries, size=self.size + entry_bytes)


@dataclass(frozen=True)
class LogEntry:
    """A commit: its version and time, the data files it added and removed, and the tables it read."""

    version: int
    time: datetime  # UTC
    add: tuple[str, ...]  # paths inside the table
    remove: tuple[str, ...]
    reads: dict[str, int]  # input tables: name -> version


def folder(url: str) -> str:
    """Return the URL of a table's log."""
    return storage.join(storage.normalize(url), "_delta_log")


def names(url: str) -> list[str]:
    """Return the sorted names of the files in a table's log; raises as ``storage.sizes`` does."""
    return sorted(storage.sizes(folder(url)))


def number(name: str) -> int:
    """Return the version of a log entry from its file name, or -1 for other files of the log.

    >>> number("00000000000000000012.json"), number("_last_checkpoint")
    (12, -1)
    """
    return int(name[:20]) if name[:20].isdigit() and name[20:] == ".json" else -1


def entry_name(version: int) -> str:
    """Return the file name of a log entry.

    >>> entry_name(12)
    '00000000000000000012.json'
    """
    return f"{version:020}.json"


def head(url: str, version: int | None = None) -> Head:
    """Return the log segment of a table's newest version, or of the given version.

    Raises TableError if the table or version does not exist, StorageError if the log cannot be listed.
    """
    try:
        sizes = storage.sizes(folder(url))
    except FileNotFoundError:
        sizes = {}
    entry_sizes = {number(name): size for name, size in sizes.items() if number(name) >= 0}
    checkpoints = _checkpoints(sizes)
    newest = max([*entry_sizes, *checkpoints], default=None)
    if newest is None:
        raise TableError(
            "no Delta table at this URL", where=url, hint="check the URL; `etl run` creates tables"
        )
    wanted = newest if version is None else version
    start = max((v for v in checkpoints if v <= wanted), default=-1)
    needed = range(start + 1, wanted + 1)
    missing = next((v for v in needed if v not in entry_sizes), None)
    if missing is not None:
        what = f"has no version {wanted}"
        if wanted <= newest:
            what += f" (the log entry of version {missing} is missing)"
        raise TableError(what, where=url, hint="see `etl history`")
    size = sum(entry_sizes[v] for v in needed)
    return Head(url, wanted, checkpoints.get(start, ()), tuple(map(entry_name, needed)), size)


def contents(url: str, names: Sequence[str]) -> Iterator[bytes]:
    """Yield the contents of log entries in order, reading a few ahead.

    Raises StorageError if an entry is missing.
    """
    uris = [storage.join(folder(url), name) for name in names]
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(uris), _THREADS):
            chunk = uris[start : start + _THREADS]
            for uri, content in zip(chunk, pool.map(storage.read, chunk), strict=True):
                if content is None:  # without it, its units of work would be committed again
                    raise StorageError("a log entry is missing", where=uri)
                yield content


def last_action(content: bytes, kind: str) -> dict[str, Any] | None:
    """Return the last action of a kind in a log entry, or None; only lines of this kind are parsed.

    >>> last_action(b'{"protocol":{"minReaderVersion":1}}', "protocol")
    {'minReaderVersion': 1}
    """
    lines = re.findall(rb'(?m)^\s*\{\s*"%b"\s*:.*$' % kind.encode(), content)
    action = json.loads(lines[-1])[kind] if lines else None
    if lines and not isinstance(action, dict):
        raise ValueError(f"{kind} is not a JSON object")
    return action


def history(url: str, version: int) -> Iterator[dict[str, Any]]:
    """Yield the ``commitInfo`` of the commits up to a version, newest first.

    Each has ``version``, ``timestamp`` (milliseconds, UTC), ``operation``, and the writer's own fields.
    Deleted log entries are skipped.
    """
    wanted = [name for name in names(url) if 0 <= number(name) <= version][::-1]
    for name, content in zip(wanted, contents(url, wanted), strict=True):
        with damaged_if_raised(url, name):
            info = last_action(content, "commitInfo") or {}
        yield {"timestamp": 0, **info, "version": number(name)}


def entries(url: str, version: int) -> Iterator[LogEntry]:
    """Yield the commits up to a version, oldest first; deleted log entries are skipped."""
    wanted = [name for name in names(url) if 0 <= number(name) <= version]
    for name, content in zip(wanted, contents(url, wanted), strict=True):
        with damaged_if_raised(url, name):
            yield _parse_entry(number(name), content)


@contextmanager
def damaged_if_raised(url: str, name: str) -> Iterator[None]:
    """Turn errors raised while a log entry is parsed into a TableError that names the entry."""
    try:
        yield
    except (ValueError, LookupError, AttributeError) as error:  # Arrow's errors are ValueErrors
        raise TableError(
            f"a log entry is damaged ({said(error)})",
            where=storage.join(folder(url), name),
            hint="see `etl verify`",
        ) from error


def vacuumed(url: str) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of versions whose data files a vacuum has deleted."""
    content = storage.read(storage.join(storage.normalize(url), _VACUUMED))
    return [] if content is None else [(first, last) for first, last in json.loads(content)]


def note_vacuumed(url: str, versions: Iterable[tuple[int, int]]) -> None:
    """Add ranges of versions to those that ``vacuumed`` returns."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted([*vacuumed(url), *versions]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    storage.write(storage.join(storage.normalize(url), _VACUUMED), json.dumps(merged).encode())


def _checkpoints(names: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Return the file names of complete checkpoints by version."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[2] or 1)), []).append(name)
    return {version: tuple(part) for (version, count), part in parts.items() if len(part) == count}


def _parse_entry(version: int, content: bytes) -> LogEntry:
    paths: dict[str, list[str]] = {"add": [], "remove": []}
    info: dict[str, Any] = {}
    for line in content.splitlines():
        action = json.loads(line)
        for kind, kind_paths in paths.items():
            if kind in action:
                kind_paths.append(action[kind]["path"])
        info = action.get("commitInfo", info)
    time = datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    inputs = (info.get("tokenlake") or {}).get("input_tables", ())
    reads = {table["name"]: int(table["version"]) for table in inputs}
    return LogEntry(version, time, tuple(paths["add"]), tuple(paths["remove"]), reads)
