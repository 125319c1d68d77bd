"""What each commit of a table did."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from etl.delta.deletion_vectors import to_json
from etl.delta.log_segment import (
    LogSegment,
    last_action,
    list_log_files,
    raise_if_damaged,
    read_commit_files,
    read_log_segment,
    version_of_commit_file,
)
from etl.delta.logical_file import LogicalFile
from etl.errors import TableError


@dataclass(frozen=True)
class Commit:
    """A commit: its version and time, the data files it added and removed, and its ``commitInfo``."""

    version: int
    time: datetime  # UTC
    add: tuple[LogicalFile, ...]
    remove: tuple[LogicalFile, ...]
    info: Mapping[str, Any]


def read_commit_infos(
    head: LogSegment, held: dict[str, bytes] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the ``commitInfo`` of the commits up to the version of a log segment, newest first.

    Each has ``version``, ``timestamp`` (milliseconds, UTC), ``operation``, and the writer's own fields.
    Deleted log entries are skipped. ``held`` is as in ``read_commit_files``.
    """
    newest = head.entries[::-1]
    # Often only the newest is wanted: no others are read ahead with it, nor is the log listed.
    yield from _infos(head.url, newest[:1], held)
    yield from _infos(head.url, newest[1:], held)
    older = _commit_files(head.url, head.version - len(newest))
    yield from _infos(head.url, older[::-1], held)


def _infos(
    url: str, names: Sequence[str], held: dict[str, bytes] | None
) -> Iterator[dict[str, Any]]:
    for name, content in zip(names, read_commit_files(url, names, held), strict=True):
        with raise_if_damaged(url, name):
            info = last_action(content, "commitInfo") or {}
        yield {"timestamp": 0, **info, "version": version_of_commit_file(name)}


def read_commits(
    url: str, version: int, held: dict[str, bytes], *, after: int = -1
) -> Iterator[Commit]:
    """Yield the commits ``after`` a version and up to one, oldest first; deleted entries are skipped.

    ``held`` is as in ``read_commit_files``.
    """
    names = [name for name in _commit_files(url, version) if version_of_commit_file(name) > after]
    for name, content in zip(names, read_commit_files(url, names, held), strict=True):
        with raise_if_damaged(url, name):
            yield _parse_entry(version_of_commit_file(name), content)


def version_at(url: str, time: datetime) -> int:
    """Return the newest version that had been committed at a point in time; raise TableError if none had."""
    milliseconds = time.timestamp() * 1000
    for entry in read_commit_infos(read_log_segment(url)):
        if entry["timestamp"] <= milliseconds:
            return int(entry["version"])
    raise TableError(f"has no version as of {time}", where=url, hint="the table was created later")


def _commit_files(url: str, version: int) -> list[str]:
    """Return the names of the log entries up to a version, oldest first."""
    try:
        names = list_log_files(url)
    except FileNotFoundError:  # the log is lost
        return []
    return [name for name in names if 0 <= version_of_commit_file(name) <= version]


def _parse_entry(version: int, content: bytes) -> Commit:
    files: dict[str, list[LogicalFile]] = {"add": [], "remove": []}
    info: dict[str, Any] = {}
    for line in content.splitlines():
        action = json.loads(line)
        for kind, named in files.items():
            if kind in action:
                vector = action[kind].get("deletionVector")
                vector = None if vector is None else to_json(vector)
                named.append(LogicalFile(action[kind]["path"], vector))
        info = action.get("commitInfo", info)
    time = datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    return Commit(version, time, tuple(files["add"]), tuple(files["remove"]), info)
