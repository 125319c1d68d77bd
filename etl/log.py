"""The log of a Delta table as the files that it is: what each commit did, and what a vacuum took.

delta-rs gives a table's state; this reads what it does not give, or one by one: all application
transactions, the paths that came and went with each commit, whether the log itself is whole.
"""

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.errors import StorageError
from etl.transactions import Transactions

_THREADS = 16  # they wait for the store
_VACUUMED = "_vacuumed.json"  # beside the data files


@dataclass(frozen=True)
class LogEntry:
    """One commit: its version and time, the data files that it added and removed, and what was read."""

    version: int
    time: datetime  # UTC
    add: tuple[str, ...]  # paths inside the table
    remove: tuple[str, ...]
    reads: dict[str, int]  # other tables of the lake: name -> version


def names(url: str) -> list[str]:
    """The names of the files in a table's log, sorted; raises as ``storage.names``."""
    return storage.names(_folder(url))


def number(name: str) -> int:
    """The version of a log entry by its name; -1 for other files of the log.

    >>> number("00000000000000000012.json"), number("_last_checkpoint")
    (12, -1)
    """
    return int(name[:20]) if name[:20].isdigit() and name[20:] == ".json" else -1


def entries(url: str, version: int) -> Iterator[LogEntry]:
    """The commits up to a version, oldest first; those whose entry is no longer there are left out."""
    wanted = [name for name in names(url) if 0 <= number(name) <= version]
    with ThreadPoolExecutor(_THREADS) as pool:
        contents = pool.map(lambda name: storage.read(storage.join(_folder(url), name)), wanted)
        for name, content in zip(wanted, contents, strict=True):
            yield _entry(number(name), content or b"")


def transactions(url: str, version: int) -> Transactions:
    """All application transactions up to a version.

    One look-up through delta-rs costs about a millisecond; this reads them all in one go, from the last
    checkpoint and the log entries after it. Raises StorageError if one of them cannot be read.
    """
    there = names(url)
    checkpoints = [n for n in there if ".checkpoint" in n and n.endswith(".parquet")]
    newest = max((int(n[:20]) for n in checkpoints if int(n[:20]) <= version), default=-1)
    found = Transactions()
    for name in checkpoints:
        if int(name[:20]) == newest:
            found.extend(*_checkpoint_transactions(storage.join(_folder(url), name)))
    for name in there:
        if newest < number(name) <= version:
            uri = storage.join(_folder(url), name)
            entry = storage.read(uri)
            if entry is None:  # what it says would be done a second time
                raise StorageError("an entry of the log has gone", where=uri)
            found.update(_entry_transactions(entry))
    return found


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


def _folder(url: str) -> str:
    return storage.join(storage.normalize(url), "_delta_log")


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


def _checkpoint_transactions(uri: str) -> tuple[pa.Array, pa.Array]:
    """The names and versions of a checkpoint's file."""
    with storage.open_input(uri) as file:
        column = pq.read_table(file, columns=["txn"])["txn"].combine_chunks().drop_null()
    return column.field("appId").cast(pa.string()), column.field("version").cast(pa.int64())


def _entry_transactions(entry: bytes) -> dict[str, int]:
    found = {}
    for line in entry.splitlines():
        if line.startswith(b'{"txn"'):
            action = json.loads(line)["txn"]
            found[action["appId"]] = action["version"]
    return found
