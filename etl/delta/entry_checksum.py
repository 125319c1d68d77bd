"""Checksums of log entries: of the entry itself, and of the one before it.

The first line of a sealed entry is ``commitInfo``. It names the table and the version, has the digest of the
entry before (``previous``), and ends with the digest of the entry without this last field
(``checksum``). So a log shows whether an entry has changed, is at the wrong place, or is not the entry that
the next commit was made on. Entries of other programs are not sealed, but the next sealed entry has their
digest.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

_CHECKSUM = re.compile(rb',"checksum":"([0-9a-f]{32})"(?=\}\}\Z)')


@dataclass(frozen=True)
class CheckedEntry:
    """A log entry, and what is wrong with it; ``problem`` is None if it is sound.

    ``info`` is ``commitInfo`` of a sealed entry, empty for others.
    """

    version: int
    content: bytes
    info: Mapping[str, Any]
    problem: str | None


def digest(content: bytes) -> str:
    """Return the digest of an entry: BLAKE2b with 128 bits, in hexadecimal."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def seal(actions: Iterable[Mapping[str, Any]], *, table: str, version: int, previous: str) -> bytes:
    """Return the entry of a commit with its checksum; the first action is ``commitInfo``."""
    first, *rest = actions
    info = {**first["commitInfo"], "table": table, "version": version, "previous": previous}
    lines = [_to_json(action) for action in chain([{"commitInfo": info}], rest)]
    checksum = digest(b"\n".join(lines))
    lines[0] = lines[0].removesuffix(b"}}") + f',"checksum":"{checksum}"}}}}'.encode()
    return b"\n".join(lines)


def check_entries(
    entries: Iterable[tuple[int, bytes]], *, table: str | None = None
) -> Iterator[CheckedEntry]:
    """Yield log entries, given by version in ascending order, with their problems.

    ``table`` is the name that the table had when the entries were written; None: unknown.
    """
    before: CheckedEntry | None = None
    for version, content in entries:
        info, problem = _read(content, table=table, version=version)
        if before is not None:
            is_next = version == before.version + 1 and problem is None
            previous = info.get("previous") if is_next else None
            if before.problem is None and previous and previous != digest(before.content):
                what = f"is not the entry that version {version} was committed on"
                before = replace(before, problem=what)
            yield before
        before = CheckedEntry(version, content, info, problem)
    if before is not None:
        yield before


def version_in(content: bytes, *, table: str) -> int | None:
    """Return the version of a table that an intact sealed entry belongs to; None for other entries."""
    info, problem = _read(content, table=table, version=None)
    return info.get("version") if problem is None else None


def _read(
    content: bytes, *, table: str | None, version: int | None
) -> tuple[Mapping[str, Any], str | None]:
    """Return ``commitInfo`` of a sealed entry, empty for others, and what is wrong with the entry."""
    first, _, _ = content.partition(b"\n")
    match = _CHECKSUM.search(first)
    if match is None:
        return {}, _problem_of_foreign(content)
    if digest(content[: match.start()] + content[match.end() :]) != match[1].decode():
        return {}, "does not match its checksum"
    info: Mapping[str, Any] = json.loads(first)["commitInfo"]
    if table not in (None, info["table"]):
        return info, f"belongs to the table {info['table']!r}"
    if version is not None and info["version"] != version:
        return info, f"is that of version {info['version']}"
    return info, None


def _problem_of_foreign(content: bytes) -> str | None:
    """Return what is wrong with an entry without a checksum; None if another program may have written it."""
    try:
        actions = [json.loads(line) for line in content.splitlines()]
    except ValueError:  # also for invalid UTF-8
        return "is not valid JSON"
    if not actions or not all(isinstance(action, dict) for action in actions):
        return "has no actions" if not actions else "is not a list of actions"
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    if any(isinstance(info, dict) and "previous" in info for info in infos):
        return "has lost its checksum"
    return None


def _to_json(action: Mapping[str, Any]) -> bytes:
    """Return an action as a line of JSON, in which only lone surrogates are escaped.

    delta-rs and Polars do not decode the escapes of surrogate pairs in statistics.
    """
    line = json.dumps(action, separators=(",", ":"), ensure_ascii=False)
    return line.encode(errors="backslashreplace")
