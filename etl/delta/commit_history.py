"""What each commit of a table did."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from etl.delta.log_segment import (
    LogSegment,
    last_action,
    list_log_files,
    raise_if_damaged,
    read_commit_files,
    version_of_commit_file,
)


@dataclass(frozen=True)
class Commit:
    """A commit: its version and time, the data files it added and removed, and its ``commitInfo``."""

    version: int
    time: datetime  # UTC
    add: tuple[str, ...]  # paths inside the table
    remove: tuple[str, ...]
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


def _commit_files(url: str, version: int) -> list[str]:
    """Return the names of the log entries up to a version, oldest first."""
    try:
        names = list_log_files(url)
    except FileNotFoundError:  # the log is lost
        return []
    return [name for name in names if 0 <= version_of_commit_file(name) <= version]


def _parse_entry(version: int, content: bytes) -> Commit:
    paths: dict[str, list[str]] = {"add": [], "remove": []}
    info: dict[str, Any] = {}
    for line in content.splitlines():
        action = json.loads(line)
        for kind, kind_paths in paths.items():
            if kind in action:
                kind_paths.append(action[kind]["path"])
        info = action.get("commitInfo", info)
    time = datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
    return Commit(version, time, tuple(paths["add"]), tuple(paths["remove"]), info)
