"""Find damage in the files of a log, set damaged files aside, and open what the others hold.

The entries are the truth: a checkpoint repeats what they have, and ``_last_checkpoint`` names a checkpoint.
What lost entries have committed is lost, unless a sound checkpoint includes it. An open table of which
entries are lost states in its next commit, and in a checkpoint of it, all that it still holds. From then on
no one reads the log before that commit, except for older versions.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from etl import storage
from etl.delta import checkpoint, log_segment, protocol, snapshot
from etl.delta.commit import creation_metadata
from etl.delta.entry_checksum import (
    CheckedEntry,
    check_entries,
    digest,
    version_in,
)
from etl.delta.table import Table
from etl.errors import TokenlakeError
from etl.parquet.layout import Layout

_POINTER = "_last_checkpoint"
_ASIDE = ".damaged"  # the end of the name of a file that was set aside


@dataclass(frozen=True, kw_only=True)
class LogDamage:
    """What is wrong with the files of a table's log.

    ``newest`` is the newest version that is known to have existed. ``lost`` are the versions of which no
    sound entry exists, and ``known_lost`` those that were lost before and that the table does without.
    """

    url: str
    newest: int
    files: Mapping[str, str] = field(default_factory=dict)  # name of a file -> its problem
    lost: tuple[int, ...] = ()
    known_lost: tuple[int, ...] = ()
    misplaced: Mapping[str, int] = field(default_factory=dict)  # name -> version of its content

    @property
    def has_any(self) -> bool:
        """Whether there is any damage."""
        return self.newest < 0 or bool(self.files or self.lost)

    def describe(self) -> Iterator[str]:
        """Yield each problem in one line."""
        if self.newest < 0:
            yield "the table is missing"
        for name, what in sorted(self.files.items()):
            version = log_segment.version_of_commit_file(name)
            yield f"{name if version < 0 else f'the log entry of version {version}'} {what}"
        names = map(log_segment.commit_file_name, self.lost)
        missing = [v for v, name in zip(self.lost, names, strict=True) if name not in self.files]
        if missing:
            yield f"{len(missing)} log entries are missing, the first of version {missing[0]}"


class LogCheck:
    """A pass over the files of a table's log; ``damage`` is known after ``entries`` were read."""

    def __init__(self, url: str, *, newest: int = -1, held: dict[str, bytes] | None = None) -> None:
        """List the log; ``newest`` is a version that is known to have existed.

        ``held`` is as in ``read_commit_files``.
        """
        self._held = held
        self.url = storage.normalize(url)
        self._table = self.url.rpartition("/")[2]
        try:
            self.names = log_segment.list_log_files(self.url)
        except FileNotFoundError:
            self.names = []
        self.checkpoints = log_segment.find_checkpoints(self.names)
        self._named = newest
        self._versions = [
            v for n in self.names if (v := log_segment.version_of_commit_file(n)) >= 0
        ]
        self._files: dict[str, str] = {}
        self._sound: set[int] = set()
        self._known_lost: tuple[int, ...] = ()
        self._restored_at = -1
        self._table_id: object = None
        self._previous: dict[int, str] = {}  # version -> digest of its entry, by the next one

    @property
    def has_files(self) -> bool:
        """Whether the log has an entry or a checkpoint."""
        return bool(self._versions or self.checkpoints)

    def entries(self) -> Iterator[CheckedEntry]:
        """Yield the entries by version, with their problems."""
        names = list(map(log_segment.commit_file_name, self._versions))
        contents = log_segment.read_commit_files(self.url, names, self._held)
        pairs = zip(self._versions, contents, strict=True)
        for entry in check_entries(pairs, table=self._table):
            if entry.problem is not None:
                self._files[log_segment.commit_file_name(entry.version)] = entry.problem
            else:
                self._sound.add(entry.version)
                self._read(entry)
            yield entry

    def _read(self, entry: CheckedEntry) -> None:
        if lost := lost_versions(entry):
            self._known_lost, self._restored_at = lost, entry.version
        if previous := entry.info.get("previous"):
            self._previous[entry.version - 1] = previous
        if metadata := log_segment.last_action(entry.content, "metaData"):
            self._table_id = metadata.get("id")

    def damage(self) -> LogDamage:
        """Return the damage, once all entries were read; each file of a checkpoint is read."""
        files = dict(self._files)
        good = []
        for version, names in sorted(self.checkpoints.items()):
            problems = {name: self._checkpoint_problem(version, name) for name in names}
            files |= {name: what for name, what in problems.items() if what is not None}
            good += [version] if not any(problems.values()) else []
        if _POINTER in self.names and (what := self._pointer_problem(good)):
            files[_POINTER] = what
        newest = max([*self._versions, *self.checkpoints, self._named], default=-1)
        known = set(self._known_lost)
        if self._restored_at > max(good, default=-1):  # nothing includes what it stated
            known = set()
        known = {version for version in known if version not in self._sound}
        lost = tuple(v for v in range(newest + 1) if v not in self._sound and v not in known)
        # Entries that were lost before may still be there, if setting them aside was interrupted.
        return LogDamage(
            url=self.url,
            newest=newest,
            files=files,
            lost=lost,
            known_lost=tuple(sorted(known)),
            misplaced=self._misplaced(lost),
        )

    def _misplaced(self, lost: Iterable[int]) -> dict[str, int]:
        """Return the files with sound entries of lost versions, whatever their names are."""
        wanted, found = set(lost), dict[str, int]()
        for name in self.names if wanted else ():
            if name[:20].isdigit() and name[20:].startswith(".json"):
                content = storage.read_bytes(_uri(self.url, name)) or b""
                version = version_in(content, table=self._table)
                is_next = self._previous.get(version or 0) in (None, digest(content))
                if version in wanted and is_next:
                    wanted.discard(version)
                    found[name] = version
        return found

    def _checkpoint_problem(self, version: int, name: str) -> str | None:
        try:
            problem = checkpoint.find_problem(_uri(self.url, name), version, self._table_id)
        except TokenlakeError as error:
            return error.what.removeprefix("a checkpoint ")
        return problem

    def _pointer_problem(self, good: Iterable[int]) -> str | None:
        content = storage.read_bytes(_uri(self.url, _POINTER)) or b""
        try:
            version = int(json.loads(content)["version"])
        except (ValueError, KeyError, TypeError):
            return "is damaged"
        if version in good:
            return None
        state = "is damaged" if version in self.checkpoints else "is missing"
        return f"names the checkpoint of version {version}, which {state}"


def lost_versions(entry: CheckedEntry) -> tuple[int, ...]:
    """Return the versions that the commit of an entry found lost."""
    return tuple(v for first, last in entry.info.get("lost", ()) for v in range(first, last + 1))


def find_damage(url: str, *, newest: int = -1) -> LogDamage:
    """Return the damage of a log; ``newest`` is a version that is known to have existed."""
    check = LogCheck(url, newest=newest)
    for _ in check.entries():
        pass
    return check.damage()


def set_aside(damage: LogDamage) -> LogDamage:
    """Put misplaced entries back, and rename damaged files; return what remains lost.

    A process that dies leaves the log in a state that can be repaired again.
    """
    contents = {
        v: storage.read_bytes(_uri(damage.url, n)) or b"" for n, v in damage.misplaced.items()
    }
    for version, content in contents.items():  # before any file that holds one is overwritten
        storage.write_bytes(_uri(damage.url, _entry(version) + ".found"), content)
    restored = {_entry(version) for version in contents}
    for name in damage.files.keys() - restored:
        _rename_aside(damage.url, name)
    for version, content in contents.items():
        storage.write_bytes(_uri(damage.url, _entry(version)), content)
    for version in contents:
        storage.remove(_uri(damage.url, _entry(version) + ".found"))
    return find_damage(damage.url, newest=damage.newest)


def open_remains(damage: LogDamage, schema: pa.Schema, layout: Layout) -> Table:
    """Open the table that the sound files of a log make; its next commit states what it holds.

    Damaged files must have been set aside. ``schema`` and ``layout`` describe the table if its metadata is
    lost.
    """
    names = log_segment.list_log_files(damage.url) if Table.exists(damage.url) else []
    checkpoints = log_segment.find_checkpoints(names)
    base = max(checkpoints, default=-1)
    entries = [n for n in names if log_segment.version_of_commit_file(n) > base]
    head = log_segment.LogSegment(
        damage.url, damage.newest, checkpoints.get(base, ()), tuple(entries), digest=""
    )
    lost = tuple(sorted({*damage.lost, *damage.known_lost}))
    name = damage.url.rpartition("/")[2]
    state = snapshot.read_snapshot(head, default=creation_metadata(name, schema, layout))
    single = {"protocol": state.protocol, "metaData": state.metadata}
    if state.has_vectors():  # the entry that permitted them may be lost
        single = protocol.with_vectors(single)
    return Table(head, single["metaData"], single["protocol"], state, lost=lost)


def remove_log(damage: LogDamage) -> None:
    """Set all files of a log aside, so that the table no longer exists."""
    names = log_segment.list_log_files(damage.url) if Table.exists(damage.url) else []
    for name in reversed(names):
        is_entry = log_segment.version_of_commit_file(name) >= 0
        if is_entry or name.endswith((".parquet", _POINTER)):
            _rename_aside(damage.url, name)


def _rename_aside(url: str, name: str) -> None:
    content = storage.read_bytes(_uri(url, name)) or b""
    if name != _POINTER:
        storage.write_bytes(_uri(url, name + _ASIDE), content)
    storage.remove(_uri(url, name))


def _entry(version: int) -> str:
    return log_segment.commit_file_name(version)


def _uri(url: str, name: str) -> str:
    return storage.join(log_segment.log_folder(url), name)
