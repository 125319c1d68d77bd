"""The log of a Delta table as the files that it is: a version's, what each commit did, what a vacuum took.

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

_THREADS = 16  # they wait for the store
_VACUUMED = "_vacuumed.json"  # beside the data files
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")


@dataclass(frozen=True)
class Head:
    """The files of a log that make a version: those of the last checkpoint, and the entries after it."""

    url: str
    version: int
    checkpoint: tuple[str, ...] = ()  # names
    entries: tuple[str, ...] = ()
    size: int = 0  # bytes of the entries

    def after(self, entry_bytes: int) -> "Head":
        """The head after one more commit."""
        version = self.version + 1
        entries = (*self.entries, entry_name(version))
        return replace(self, version=version, entries=entries, size=self.size + entry_bytes)


@dataclass(frozen=True)
class LogEntry:
    """One commit: its version and time, the data files that it added and removed, and what was read."""

    version: int
    time: datetime  # UTC
    add: tuple[str, ...]  # paths inside the table
    remove: tuple[str, ...]
    reads: dict[str, int]  # other tables of the lake: name -> version


def folder(url: str) -> str:
    """Where the log of a table is."""
    return storage.join(storage.normalize(url), "_delta_log")


def names(url: str) -> list[str]:
    """The names of the files in a table's log, sorted; raises as ``storage.sizes``."""
    return sorted(storage.sizes(folder(url)))


def number(name: str) -> int:
    """The version of a log entry by its name; -1 for other files of the log.

    >>> number("00000000000000000012.json"), number("_last_checkpoint")
    (12, -1)
    """
    return int(name[:20]) if name[:20].isdigit() and name[20:] == ".json" else -1


def entry_name(version: int) -> str:
    """The name of a log entry.

    >>> entry_name(12)
    '00000000000000000012.json'
    """
    return f"{version:020}.json"


def head(url: str, version: int | None = None) -> Head:
    """Look at the newest version of a table, or at one by its number.

    Raises TableError if there is no table, or no such version, StorageError if the log cannot be listed.
    """
    try:
        sizes = storage.sizes(folder(url))
    except FileNotFoundError:
        sizes = {}
    found = {number(name): size for name, size in sizes.items() if number(name) >= 0}
    checkpoints = _checkpoints(sizes)
    newest = max([*found, *checkpoints], default=None)
    if newest is None:
        raise TableError(
            "there is no Delta table", where=url, hint="`etl run` makes it; check the URL"
        )
    wanted = newest if version is None else version
    start = max((number for number in checkpoints if number <= wanted), default=-1)
    needed = range(start + 1, wanted + 1)
    missing = next((number for number in needed if number not in found), None)
    if missing is not None:
        what = f"has no version {wanted}"
        if wanted <= newest:
            what += f" (the log entry of version {missing} is not there)"
        raise TableError(what, where=url, hint="see `etl history`")
    size = sum(found[number] for number in needed)
    return Head(url, wanted, checkpoints.get(start, ()), tuple(map(entry_name, needed)), size)


def contents(url: str, names: Sequence[str]) -> Iterator[bytes]:
    """The contents of entries of the log, in their order, a few read ahead; StorageError if one has gone."""
    uris = [storage.join(folder(url), name) for name in names]
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(uris), _THREADS):
            some = uris[start : start + _THREADS]
            for uri, content in zip(some, pool.map(storage.read, some), strict=True):
                if content is None:  # what it says would be done a second time
                    raise StorageError("an entry of the log has gone", where=uri)
                yield content


def last_action(content: bytes, kind: str) -> dict[str, Any] | None:
    """The last action of a kind of which an entry has few; None: it has none.

    >>> last_action(b'{"protocol":{"minReaderVersion":1}}', "protocol")
    {'minReaderVersion': 1}
    """
    lines = re.findall(rb'(?m)^\s*\{\s*"%b"\s*:.*$' % kind.encode(), content)
    found = json.loads(lines[-1])[kind] if lines else None
    if lines and not isinstance(found, dict):
        raise ValueError(f"{kind} is no object")
    return found


def history(url: str, version: int) -> Iterator[dict[str, Any]]:
    """What each commit says of itself, up to a version, newest first; those that are gone are left out.

    ``version``, ``timestamp`` (milliseconds, UTC), ``operation``, and what the writer has added.
    """
    wanted = [name for name in names(url) if 0 <= number(name) <= version][::-1]
    for name, content in zip(wanted, contents(url, wanted), strict=True):
        with damaged_if_raised(url, name):
            info = last_action(content, "commitInfo") or {}
        yield {"timestamp": 0, **info, "version": number(name)}


def entries(url: str, version: int) -> Iterator[LogEntry]:
    """The commits up to a version, oldest first; those whose entry is no longer there are left out."""
    wanted = [name for name in names(url) if 0 <= number(name) <= version]
    for name, content in zip(wanted, contents(url, wanted), strict=True):
        with damaged_if_raised(url, name):
            yield _entry(number(name), content)


@contextmanager
def damaged_if_raised(url: str, name: str) -> Iterator[None]:
    """What parsing an entry of the log raises is a TableError that names it."""
    try:
        yield
    except (ValueError, LookupError, AttributeError) as error:  # Arrow's errors are ValueErrors
        raise TableError(
            f"an entry of the log is damaged ({said(error)})",
            where=storage.join(folder(url), name),
            hint="see `etl verify`",
        ) from error


def vacuumed(url: str) -> list[tuple[int, int]]:
    """The versions of a table of which a vacuum has deleted data files: first and last of each range."""
    content = storage.read(storage.join(storage.normalize(url), _VACUUMED))
    return [] if content is None else [(first, last) for first, last in json.loads(content)]


def note_vacuumed(url: str, versions: Iterable[tuple[int, int]]) -> None:
    """Add ranges of versions to those that ``vacuumed`` gives."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted([*vacuumed(url), *versions]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    storage.write(storage.join(storage.normalize(url), _VACUUMED), json.dumps(merged).encode())


def _checkpoints(names: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """The whole checkpoints among the files of a log: version -> names."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if parts := _CHECKPOINT.fullmatch(name):
            found.setdefault((int(parts[1]), int(parts[2] or 1)), []).append(name)
    return {number: tuple(all_) for (number, count), all_ in found.items() if len(all_) == count}


def _entry(version: int, content: bytes) -> LogEntry:
    paths: dict[str, list[str]] = {"add": [], "remove": []}
    info: dict[str, Any] = {}
    for line in content.splitlines():
        action = json.loads(line)
        for kind, found in paths.items():
            if kind in action:
                found.append(action[kind]["path"])
        info = action.get("commitInfo", info)
    time = datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    inputs = (info.get("tokenlake") or {}).get("input_tables", ())
    reads = {table["name"]: int(table["version"]) for table in inputs}
    return LogEntry(version, time, tuple(paths["add"]), tuple(paths["remove"]), reads)
