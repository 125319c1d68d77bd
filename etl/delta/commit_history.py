"""What each commit of a table did, and the versions whose data files were vacuumed."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from etl import storage
from etl.delta.log_segment import (
    LogSegment,
    last_action,
    list_log_files,
    raise_if_damaged,
    read_commit_files,
    version_of_commit_file,
)
from etl.storage import checked_json

VACUUMED: Final = "_vacuumed.json"
"""The name of the file, next to the data files, that ``vacuumed_versions`` reads."""


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
    Deleted log entries are skipped. ``held`` is that of ``read_commit_files``.
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

    ``held`` is that of ``read_commit_files``.
    """
    names = [name for name in _commit_files(url, version) if version_of_commit_file(name) > after]
    for name, content in zip(names, read_commit_files(url, names, held), strict=True):
        with raise_if_damaged(url, name):
            yield _parse_entry(version_of_commit_file(name), content)


def vacuumed_versions(url: str) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of versions whose data files a vacuum has deleted.

    Raises TableError if the file that lists them is damaged.
    """
    hint = "it lists the versions of which data files are missing"
    content = checked_json.read_either(storage.join(storage.normalize(url), VACUUMED), hint=hint)
    return [(first, last) for first, last in content or ()]


def record_vacuumed(url: str, versions: Iterable[tuple[int, int]]) -> None:
    """Add ranges of versions to those that ``vacuumed_versions`` returns."""
    write_vacuumed(url, [*vacuumed_versions(url), *versions])


def write_vacuumed(url: str, versions: Iterable[tuple[int, int]]) -> None:
    """Replace the ranges of versions that ``vacuumed_versions`` returns."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(versions):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    checked_json.write_both(storage.join(storage.normalize(url), VACUUMED), merged)


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
