"""Check the log of each table: its entries, its checkpoints and its newest version.

Tokenlake never cleans a log, so every entry must exist. Missing newest entries show up in other tables and
in releases that name a later version.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.audit.verify.file_checks import Problem
from etl.delta import commit_history, log_segment, snapshot
from etl.delta.table import Table
from etl.delta.torn_entries import TornFile, find_torn_files
from etl.errors import StorageError, TokenlakeError, error_line
from etl.lake import releases
from etl.lake.commit_info import input_versions
from etl.lake.table_specs import SPECS

_DELETE = "delete it, the log is complete without it"
_THREADS = 16  # they wait for storage


def check_logs(lake: str) -> list[Problem]:
    """Return the problems in the logs of a lake's tables."""
    result: list[Problem] = []
    newest: dict[str, int] = {}
    named = [
        (kind, version, f"the release {release.name!r} names")
        for release in releases.list_releases(lake)
        for kind, version in release.versions.items()
    ]
    # Those made from others come first: the versions that they name exist when the others are read.
    for table_name in reversed(SPECS):
        url = storage.join(lake, table_name)
        pointer = storage.read_bytes(storage.join(url, "_delta_log", "_last_checkpoint"))
        try:
            names = log_segment.list_log_files(url)
        except FileNotFoundError:
            continue
        newest[table_name] = max(map(log_segment.version_of_commit_file, names), default=-1)
        torn = [file for file in find_torn_files(url) if file.is_entry]
        names = [name for name in names if name not in {file.name for file in torn}]
        problems = [describe_torn(file) for file in torn]
        problems += [*_check_entries(url, names), *_check_checkpoints(url, names, pointer)]
        if not problems:
            problems = list(_check_newest(url, newest[table_name]))
        if not problems:
            for info in commit_history.read_commit_infos(url, newest[table_name]):
                named += [
                    (name, version, f"{table_name} was built from")
                    for name, version in input_versions(info).items()
                ]
        result += [Problem(table_name, None, what) for what in problems]
    return result + list(_check_ends(newest, named))


def describe_torn(file: TornFile) -> str:
    """Return the problem of a file of a log that was not written completely."""
    version = log_segment.version_of_commit_file(file.name)
    name = f"the log entry of version {version}" if file.is_entry else file.name
    repair = f"it is kept: {file.why_kept}" if file.why_kept else "`etl repair` removes it"
    return f"{name} was not written completely: {repair}"


def _check_newest(url: str, newest: int) -> Iterator[str]:
    try:
        schema = Table.open(url, newest).schema
        yield from _compare_checkpoint(log_segment.read_log_segment(url, newest), schema)
    except TokenlakeError as error:
        yield error.what


def _compare_checkpoint(head: log_segment.LogSegment, schema: pa.Schema) -> Iterator[str]:
    """Compare the last checkpoint with the log entries that it replaces."""
    version = head.version - len(head.entries)
    if version < 0:
        return  # no checkpoint
    entries = tuple(map(log_segment.commit_file_name, range(version + 1)))
    by_entries = snapshot.read_snapshot(log_segment.LogSegment(head.url, version, entries=entries))
    by_checkpoint = snapshot.read_snapshot(
        log_segment.LogSegment(head.url, version, checkpoint=head.checkpoint)
    )
    files = [
        state.files(schema).sort_by("path").combine_chunks()
        for state in (by_entries, by_checkpoint)
    ]
    done = by_checkpoint.transactions()
    names, versions = (by_entries.changes["txn"].field(name) for name in ("appId", "version"))
    pairs = zip(names.to_pylist(), versions.to_pylist(), strict=True)
    same = files[0] == files[1] and all(done.get(name) == number for name, number in pairs)
    if not same:
        what = f"the checkpoint of version {version} disagrees with the log entries"
        yield f"{what}: {_DELETE}"


def _check_entries(url: str, names: list[str]) -> Iterator[str]:
    entries = {
        log_segment.version_of_commit_file(name): name
        for name in names
        if log_segment.version_of_commit_file(name) >= 0
    }
    missing = sorted(set(range(max(entries, default=-1) + 1)) - entries.keys())
    if missing:
        yield f"{len(missing)} log entries are missing, the first of version {missing[0]}"
    uris = [storage.join(url, "_delta_log", name) for name in entries.values()]
    with ThreadPoolExecutor(_THREADS) as pool:
        for number, content in zip(entries, pool.map(storage.read_bytes, uris), strict=True):
            if not _is_sound(content or b""):
                yield f"the log entry of version {number} is damaged"


def _is_sound(entry: bytes) -> bool:
    try:
        actions = [json.loads(line) for line in entry.splitlines()]
    except ValueError:  # also for invalid UTF-8
        return False
    return bool(actions) and all(isinstance(action, dict) for action in actions)


def _check_checkpoints(url: str, names: list[str], pointer: bytes | None) -> Iterator[str]:
    checkpoints = [name for name in names if ".checkpoint" in name and name.endswith(".parquet")]
    if pointer is not None:
        try:
            version = int(json.loads(pointer)["version"])
        except (ValueError, KeyError, TypeError):
            yield f"_last_checkpoint is damaged: {_DELETE}"
        else:
            if not any(name.startswith(f"{version:020}") for name in checkpoints):
                yield f"_last_checkpoint names the checkpoint of version {version}, which is missing"
    for name in checkpoints:
        try:
            with storage.open_input(storage.join(url, "_delta_log", name)) as source:
                parquet = pq.ParquetFile(source, page_checksum_verification=True)
                for _ in parquet.iter_batches(use_threads=False):
                    pass
        except (pa.ArrowException, OSError, StorageError) as error:
            yield f"the checkpoint {name} cannot be read ({error_line(error)}): {_DELETE}"


def _check_ends(newest: dict[str, int], named: list[tuple[str, int, str]]) -> Iterator[Problem]:
    """Yield the tables whose newest version is older than one named by another table or a release."""
    worst: dict[str, tuple[int, str]] = {}
    for kind, version, why in named:
        worst[kind] = max((version, why), worst.get(kind, (-1, "")))
    for kind in SPECS:
        version, why = worst.get(kind, (-1, ""))
        if version > newest.get(kind, -1):
            what = f"its newest version is {newest.get(kind, 'none')}, but {why} version {version}"
            yield Problem(kind, None, what)
