"""Follow a log backward: which commits moved rows to other data files without changing them.

Such a commit (compaction, Z-order) marks all its actions with ``dataChange: false``. The data files that it
removed and those that it added hold exactly the same rows. As data files are immutable, this is true forever,
also after a restore or the deletion of some of these files. A set of data files can therefore be replaced
by an older set with the same rows, one move after the other. Only log entries say which files were moved
together; checkpoints do not.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from etl import storage
from etl.delta.log_segment import (
    commit_file_name,
    list_log_files,
    raise_if_damaged,
    read_commit_files,
)


@dataclass(frozen=True)
class Move:
    """Data files that one commit replaced by others with exactly the same rows."""

    version: int
    origins: frozenset[str]  # URIs
    targets: Mapping[str, int | None] = field(hash=False)  # URI -> rows, None: unknown


@dataclass
class FileHistory:
    """What the log entries read so far say of a table's data files."""

    version: int  # of the oldest entry read
    moves: list[Move] = field(default_factory=list)  # newest first
    deleted: set[str] = field(default_factory=set)  # URIs of files whose rows were deleted

    @property
    def is_complete(self) -> bool:
        """Whether all entries were read, down to the creation of the table."""
        return self.version == 0


def trace_moves(
    url: str,
    version: int,
    live: AbstractSet[str],
    wanted: AbstractSet[str],
    known: Sequence[Move] = (),
) -> FileHistory:
    """Read the log backward from a version until older files with the same rows include all wanted ones.

    ``live`` are the URIs of the data files of that version, and ``known`` moves that need not be read again.
    Stops early at the first entry that has been deleted. Raises TableError if an entry is damaged,
    StorageError if the log cannot be read.
    """
    history = FileHistory(version + 1, list(known))
    if wanted <= undo_moves(live, wanted, known)[0]:
        return history
    for entry_version, content in _entries(url, version):
        history.version = entry_version
        with raise_if_damaged(url, commit_file_name(entry_version)):
            moves, deleted = _parse_entry(url, entry_version, content)
        history.deleted |= deleted
        if moves:
            every = {*history.moves, *moves}
            history.moves = sorted(every, key=lambda move: move.version, reverse=True)
            if wanted <= undo_moves(live, wanted, history.moves)[0]:
                break
    return history


def undo_moves(
    live: AbstractSet[str], wanted: AbstractSet[str], moves: Sequence[Move]
) -> tuple[set[str], list[Move]]:
    """Return older files with the same rows as live files, and the moves undone to find them.

    Only moves whose origins include wanted files, directly or through other moves, are undone. Moves are
    ordered from the newest to the oldest.

    >>> move = Move(3, frozenset({"a", "b"}), {"ab": 2})
    >>> sorted(undo_moves({"ab", "c"}, {"a"}, [move])[0])
    ['a', 'b', 'c']
    >>> sorted(undo_moves({"ab", "c"}, {"c"}, [move])[0])
    ['ab', 'c']
    """
    # First back through all moves that still apply, newest first. Then forward again through those that
    # the wanted files do not need, so that as many files as possible stay as they are now.
    files, undone = set(live), list[Move]()
    for move in moves:
        if _is_applicable(move.targets.keys(), move.origins, files):
            _exchange(files, move.targets.keys(), move.origins)
            undone.append(move)
    useful: list[Move] = []
    for move in reversed(undone):
        if wanted.isdisjoint(move.origins) and _is_applicable(
            move.origins, move.targets.keys(), files
        ):
            _exchange(files, move.origins, move.targets.keys())
        else:
            useful.append(move)
    return files, useful[::-1]


def _is_applicable(old: AbstractSet[str], new: AbstractSet[str], files: AbstractSet[str]) -> bool:
    """Whether replacing ``old`` by ``new`` in a set of files neither drops nor repeats rows."""
    return old <= files and files.isdisjoint(new)


def _exchange(files: set[str], old: Iterable[str], new: Iterable[str]) -> None:
    files.difference_update(old)
    files.update(new)


def _entries(url: str, version: int) -> Iterator[tuple[int, bytes]]:
    """Yield the log entries from a version backward, up to the first missing entry."""
    names = set(list_log_files(url))
    oldest = version + 1
    while oldest > 0 and commit_file_name(oldest - 1) in names:
        oldest -= 1
    versions = range(version, oldest - 1, -1)
    contents = read_commit_files(url, [commit_file_name(v) for v in versions])
    yield from zip(versions, contents, strict=True)


def _parse_entry(url: str, version: int, content: bytes) -> tuple[list[Move], set[str]]:
    """Return the moves of a log entry, and the URIs of the files whose rows it deleted."""
    if b'"remove"' not in content:
        return [], set()
    actions: dict[str, dict[str, dict[str, Any]]] = {"add": {}, "remove": {}}
    for line in content.splitlines():
        for kind, action in json.loads(line).items() if line.strip() else ():
            if kind in actions:
                actions[kind][storage.join(url, unquote(action["path"]))] = action
    add, remove = actions["add"], actions["remove"]
    # A commit that changes data may also move rows: which is unknown, so no rows count as moved.
    if any(action.get("dataChange", True) for action in (*add.values(), *remove.values())):
        return [], {uri for uri, action in remove.items() if uri not in add}
    for uri in add.keys() & remove.keys():  # the same file: it stays
        del add[uri], remove[uri]
    return [
        Move(version, frozenset(origins), {uri: _count_rows(add[uri]) for uri in targets})
        for origins, targets in _by_partition(remove, add)
        if origins and targets
    ], set()


def _by_partition(
    remove: Mapping[str, Mapping[str, Any]], add: Mapping[str, Mapping[str, Any]]
) -> list[tuple[list[str], list[str]]]:
    """Return the files removed and added per partition, as rows do not move between partitions."""
    groups: dict[tuple[tuple[str, str | None], ...], tuple[list[str], list[str]]] = {}
    for side, actions in enumerate((remove, add)):
        for uri, action in actions.items():
            # A move for each partition relates fewer files than one for the whole commit, so that fewer
            # rows are read again if one of them changed.
            values = action.get("partitionValues")
            if values is None:  # optional in a remove action
                return [(list(remove), list(add))]
            groups.setdefault(tuple(sorted(values.items())), ([], []))[side].append(uri)
    if all(removed and added for removed, added in groups.values()):
        return list(groups.values())
    return [(list(remove), list(add))]


def _count_rows(add: Mapping[str, Any]) -> int | None:
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    return None if rows is None else int(rows)
