"""Find and remove what a power failure leaves at the end of a log: files that were not written completely.

These are the newest log entries, if they are empty or cut off, and the newest checkpoint and
``_last_checkpoint``, which only repeat what the log entries have. An entry before a complete one is never
torn: it is damaged, and only a backup can restore it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from etl import storage
from etl.delta.log_segment import (
    find_checkpoints,
    list_log_files,
    log_folder,
    version_of_commit_file,
)
from etl.errors import TableError, error_line

_POINTER = "_last_checkpoint"
_PARQUET_END = b"PAR1"


@dataclass(frozen=True, kw_only=True)
class TornFile:
    """A file of a log that was not written completely.

    ``why_kept`` is the reason why it cannot be removed without losing rows; None if it can be removed.
    """

    url: str
    name: str
    why_kept: str | None = None

    @property
    def is_entry(self) -> bool:
        """Whether this is a log entry, not a checkpoint or ``_last_checkpoint``."""
        return version_of_commit_file(self.name) >= 0


def is_torn(entry: bytes) -> bool:
    """Return whether a log entry is empty or cut off, or has a block of zeros that was never written.

    >>> is_torn(b""), is_torn(b'{"add":{"pa'), is_torn(b'{"commitInfo":{}}'), is_torn(b"nonsense")
    (True, True, False, False)
    """
    lines = entry.splitlines()
    if b"\0" in entry or not lines:
        return True
    is_cut = lines[-1].startswith(b"{") and not _is_action(lines[-1])
    return is_cut and all(map(_is_action, lines[:-1]))


def find_torn_files(url: str) -> list[TornFile]:
    """Return the torn files of a table's log, in the order in which they must be removed.

    Without a log the list is empty. Raises StorageError if it cannot be read.
    """
    try:
        names = list_log_files(url)
    except FileNotFoundError:
        return []
    entries = {v: name for name in names if (v := version_of_commit_file(name)) >= 0}
    checkpoints = find_checkpoints(names)
    newest = max((v for v in checkpoints if _are_complete(url, checkpoints[v])), default=-1)
    torn: list[TornFile] = []
    for version in sorted(v for v in checkpoints if v > newest):
        lost = next((v for v in range(newest + 1, version + 1) if v not in entries), None)
        why = None if lost is None else f"the log entry of version {lost} is missing"
        torn += [TornFile(url=url, name=name, why_kept=why) for name in checkpoints.pop(version)]
    if _POINTER in names and _pointed_version(_read(url, _POINTER)) not in checkpoints:
        torn.append(TornFile(url=url, name=_POINTER))
    for version in sorted(entries, reverse=True):  # a log must have no gaps
        if not is_torn(_read(url, entries[version])):
            break
        why = f"the checkpoint of version {newest} includes it" if version <= newest else None
        torn.append(TornFile(url=url, name=entries[version], why_kept=why))
    return torn


def remove_torn_files(files: Sequence[TornFile]) -> None:
    """Remove torn files that can be removed, in this order; a file that is no longer torn is kept.

    Raises StorageError if one cannot be deleted.
    """
    for file in files:
        if file.why_kept is None and (not file.is_entry or is_torn(_read(file.url, file.name))):
            storage.remove(storage.join(log_folder(file.url), file.name))


@contextmanager
def raise_if_damaged(url: str, name: str) -> Iterator[None]:
    """Turn errors raised while a log entry is parsed into a TableError that names the entry."""
    try:
        yield
    except (ValueError, LookupError, AttributeError) as error:  # Arrow's errors are ValueErrors
        is_at_end = name in (file.name for file in find_torn_files(url))
        raise TableError(
            "the newest log entries were not written completely, as after a power failure"
            if is_at_end
            else f"a log entry is damaged ({error_line(error)})",
            where=storage.join(log_folder(url), name),
            hint="remove this entry and those after it; what they commit must be committed again"
            if is_at_end
            else "restore the log entry from a backup",
        ) from error


def _read(url: str, name: str) -> bytes:
    return storage.read_bytes(storage.join(log_folder(url), name)) or b""


def _is_action(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:  # also for invalid UTF-8
        return False


def _pointed_version(pointer: bytes) -> int | None:
    try:
        return int(json.loads(pointer)["version"])
    except (ValueError, KeyError, TypeError):
        return None


def _are_complete(url: str, names: Iterable[str]) -> bool:
    """Return whether files of a checkpoint end as Parquet files do."""
    for name in names:
        with storage.open_input(storage.join(log_folder(url), name)) as file:
            file.seek(max(0, file.size() - len(_PARQUET_END)))
            if file.read() != _PARQUET_END:
                return False
    return True
