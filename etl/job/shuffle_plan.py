"""Plan a shuffle: the part of ``tokens`` that it adds to ``tokens_shuffled``, and its buckets.

The plan is stored in the scratch space before the work begins. A shuffle that continues after a kill, on
another cluster for example, follows it, also if ``tokens`` has new rows by then.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass

from etl import storage
from etl.delta.added_files import read_added_files
from etl.delta.commit_history import Commit
from etl.delta.deletion_vectors import num_struck
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.delta.vacuum_records import is_vacuumed
from etl.errors import MismatchError, TableError
from etl.lake.commit_info import fields_of
from etl.lake.scratch import remove_scratch, scratch_folder
from etl.lake.shuffled_table import ShuffledTable
from etl.lake.table_specs import SHUFFLED
from etl.parquet.data_file import DataFile
from etl.storage import checked_json

MIN_BUCKET_BYTES = 1 << 20
"""The least size of a bucket that follows from the memory of workers: smaller ones cost more requests."""

MAX_BUCKET_BYTES = 1 << 29
"""The greatest such size: chosen here, so that a bucket takes seconds."""

_MEMORY_SHARE = 8  # a task holds its bucket compressed, as Arrow arrays and combined
_MIN_GROUP_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class InputData:
    """A data file of ``tokens`` with new rows, in the state that the log records."""

    file: LogicalFile
    rows: int  # that are not struck
    tokens: int  # of all rows


@dataclass(frozen=True, kw_only=True)
class ShufflePart:
    """The rows of ``tokens`` after one version and up to another, and how they are shuffled."""

    first: int  # the version whose rows the table has already; 0: none
    last: int
    buckets: int
    bucket_bytes: int  # of tokens, on average
    run: str = ""  # which has planned it


@dataclass(frozen=True)
class PlannedPart:
    """A part with its files, and the folder of its intermediate files.

    ``tokens`` is the number of tokens: by the log, which counts struck rows, until the files are read.
    """

    part: ShufflePart
    files: tuple[InputData, ...]
    folder: str
    tokens: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.files)

    def splits(self) -> Iterator[tuple[LogicalFile, ...]]:
        """Yield the files of each split: about as many tokens as a bucket, or one file."""
        pending, size = list[LogicalFile](), 0
        for file in self.files:
            if pending and size + 4 * file.tokens > self.part.bucket_bytes:
                yield tuple(pending)
                pending, size = [], 0
            pending.append(file.file)
            size += 4 * file.tokens
        if pending:
            yield tuple(pending)

    def row_group_bytes(self, tokens_before: int) -> int:
        """Return the size of a row group, so that as many rows follow each group of earlier parts.

        Readers place row groups by their keys. In a part that is a tenth of the table, row groups are a
        tenth as large, so that a batch has its share of them.
        """
        full = SHUFFLED.layout.row_group_bytes
        return max(full * self.tokens // max(self.tokens + tokens_before, 1), _MIN_GROUP_BYTES)


def bucket_bytes_for(memory: int) -> int:
    """Return the size of a bucket for workers with so much memory in bytes each.

    >>> bucket_bytes_for(4 << 30) >> 20, bucket_bytes_for(1 << 20) >> 20
    (512, 1)
    """
    return min(max(memory // _MEMORY_SHARE, MIN_BUCKET_BYTES), MAX_BUCKET_BYTES)


def plan_part(
    tokens: Table, shuffled: ShuffledTable, *, bucket_bytes: int, run: str
) -> PlannedPart | None:
    """Return the next part to add, as an earlier run has planned it or up to the version of ``tokens``.

    None if the table has all rows. Raises TableError if the new rows cannot be read any more.
    """
    lake, first = tokens.url.rpartition("/")[0], shuffled.tokens_version
    folder = scratch_folder(lake, "shuffle", shuffled.part_key(first))
    # A run that continues an interrupted one must cut the same buckets, or it could not use the files in
    # the folder: so the plan is stored before any work is done.
    part = _read_plan(folder)
    if part is not None and _is_vacuumed(tokens, part):
        remove_scratch(folder)
        part = None
    if part is None:
        files = tuple(new_files(tokens, first))
        if not files:
            return None
        size = 4 * sum(file.tokens for file in files)
        buckets = max(-(-size // bucket_bytes), 1)
        part = ShufflePart(
            first=first, last=tokens.version, buckets=buckets, bucket_bytes=bucket_bytes, run=run
        )
        part = _store_plan(folder, part)
    if part.last != tokens.version:
        tokens = Table.open(tokens.url, part.last)
    files = tuple(new_files(tokens, first))
    return PlannedPart(part, files, folder, sum(file.tokens for file in files))


def _plan_uri(folder: str) -> str:
    return storage.join(folder, "plan.json")


def _read_plan(folder: str) -> ShufflePart | None:
    fields = checked_json.read(_plan_uri(folder), hint=f"delete {folder}")
    return None if fields is None else ShufflePart(**fields)


def _store_plan(folder: str, part: ShufflePart) -> ShufflePart:
    """Store a plan, unless a run that has begun at the same moment was faster; return the stored one."""
    uri = _plan_uri(folder)
    storage.create_if_absent(uri, checked_json.encode(uri, asdict(part)))
    stored = _read_plan(folder)
    if stored is None:
        raise MismatchError(
            "another run has just ended this shuffle", where=folder, hint="run again"
        )
    return stored


def _is_vacuumed(tokens: Table, part: ShufflePart) -> bool:
    return part.last < tokens.version and is_vacuumed(tokens.url, part.last)


def new_files(tokens: Table, first: int) -> Iterator[InputData]:
    """Yield the data files with the rows that ``tokens`` has got after a version, sorted by path.

    Raises TableError if one of them was compacted and then deleted.
    """
    columns = ["vector", "rows", *(["max.token_end"] if tokens.data_files().num_rows else [])]
    live = {
        file["path"]: InputData(
            file=LogicalFile.of(file), rows=file["rows"], tokens=file.get("max.token_end") or 0
        )
        for file in tokens.files(*columns)
    }
    if first == 0:
        yield from (file for file in live.values() if file.rows)
        return
    # Only appends add rows. A compacted file is replaced by a file that also has older rows, so its rows
    # are read from the old file, as long as a vacuum has left that.
    added = _appended_files(tokens, first)
    compacted = [file for path, file in added.items() if path not in live]
    before = {file.file.path: file for file in _compacted_files(tokens.url, compacted)}
    for path in sorted(added):
        file = live.get(path) or before[path]
        if file.rows:
            yield file


def has_older_strikes(tokens: Table, first: int) -> bool:
    """Return whether rows that ``tokens`` had at a version were struck since, or live again.

    Rows that were merged with older ones count as such.
    """
    added = set[str]()
    for commit in tokens.commits(after=first) if first else ():
        added |= _new_paths(commit)
        if not _struck_paths(commit) <= added:
            return True
    return False


def _appended_files(tokens: Table, first: int) -> dict[str, LogicalFile]:
    """Return the files that were added after a version by path, as they last were in the table."""
    files: dict[str, LogicalFile] = {}
    for commit in tokens.commits(after=first):
        known = files.keys() | _new_paths(commit)
        files |= {file.path: file for file in commit.add if file.path in known}
    return files


def _new_paths(commit: Commit) -> set[str]:
    """Return the data files with new rows of a commit: an append, or a strike that also adds rows."""
    struck = _struck_paths(commit)
    adds_rows = struck or fields_of(commit.info).get("action") == "append"
    return {file.path for file in commit.add} - struck if adds_rows else set()


def _struck_paths(commit: Commit) -> set[str]:
    """Return the data files of which a commit changes the struck rows."""
    return {file.path for file in commit.add} & {file.path for file in commit.remove}


def _compacted_files(url: str, files: Collection[LogicalFile]) -> Iterator[InputData]:
    """Yield files whose rows were merged with others since; raise TableError if a vacuum deleted one."""
    for stored in read_added_files(url, files) if files else ():
        file = LogicalFile(stored.path, stored.vector)
        rows = stored.rows - num_struck(file.vector)
        if rows and any(storage.file_info(storage.join(url, p)) is None for p in file.stored_paths):
            raise TableError(
                "the data files with the new rows were compacted, and then deleted by a vacuum",
                where=storage.join(url, file.path),
                hint="`etl shuffle LAKE --rebuild` shuffles all rows again",
            )
        yield InputData(file=file, rows=rows, tokens=_num_tokens(stored))


def _num_tokens(file: DataFile) -> int:
    statistics = json.loads(file.statistics or "{}")
    return int(statistics.get("maxValues", {}).get("token_end", 0))
