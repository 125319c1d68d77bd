"""What the loader knows of a token table without reading a token: files, row groups, token counts.

The files and their tokens come from the Delta log (``max.token_end``), the row groups from the footers,
which are read once, in threads. The result is a few arrays: 8 bytes for each row group, so that ten
million of them take 80 MB, and DataLoader workers get them by fork or pickle at no cost worth naming.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl import releases, storage
from etl.errors import LoaderError, TableError
from etl.loader.remote import VERIFY, Ranges, Remote, open_file, read_footer
from etl.table import Table
from schemas import TOKENS, TokenizerRecord

_FOOTER_THREADS = 16
_FEW_FILES = 1024  # of this machine: threads are no quicker when they are in memory, and keep 20 MB
_MAX_GROUP_TOKENS = (1 << 31) - 1  # what the int32 offsets of list<int32> can address


@dataclass(frozen=True)
class Index:
    """The files of one table version, sorted by path, and their row groups; F files, G row groups."""

    url: str
    version: int
    paths: np.ndarray  # (F,) bytes of UTF-8, inside the table
    file_tokens: np.ndarray  # (F,) int64
    file_bytes: np.ndarray  # (F,) int64
    first_group: np.ndarray  # (F + 1,) int64: file f has groups first_group[f]:first_group[f + 1]
    group_tokens: np.ndarray  # (G,) int32
    group_documents: np.ndarray  # (G,) int32, those without tokens left out
    remote: Remote | None = None  # how files are read; None: they are on this machine
    vocab_size: int | None = None  # what every token must be below, if that is known

    @property
    def num_tokens(self) -> int:
        """Tokens of the table."""
        return int(self.file_tokens.sum())

    def group(self, number: int) -> tuple[str, int]:
        """The path of the file that holds a row group of the table, and the row group's place in it."""
        file = self.file(number)
        return self.path(file), number - int(self.first_group[file])

    def path(self, file: int) -> str:
        """The path of a file by its number."""
        return bytes(self.paths[file]).decode()

    def file(self, group: int) -> int:
        """The number of the file that holds a row group of the table."""
        return int(np.searchsorted(self.first_group, group, side="right")) - 1

    def open(self, group: int) -> AbstractContextManager[pa.NativeFile]:
        """The file of a row group, for small reads; raises StorageError if it is not readable."""
        file = self.file(group)
        uri = self.uri(self.path(file))
        ranges = None if self.remote is None else Ranges(self.remote)
        return open_file(uri, int(self.file_bytes[file]), ranges)

    def uri(self, path: str) -> str:
        """The URI of a file of the table."""
        return storage.join(self.url, path)

    def digest(self) -> str:
        """A hash of the names and token counts of the files: what decides the rows of a version.

        Files of a Delta table never change, so that their row groups need not be in it.
        """
        digest = hashlib.sha256(b"\n".join(self.paths.tolist()))
        digest.update(self.file_tokens.astype("<i8").tobytes())
        return digest.hexdigest()


def read_index(lake: str, *, version: int | str | None, remote: Remote) -> Index:
    """Open the token table of a lake (or the table by its own URL) and read its log and footers.

    ``version`` is a number or the name of a release.

    Raises LoaderError if there is no such table or version, or if it is no token table, StorageError if a
    file cannot be read.
    """
    table = _open(lake, version)
    fragments = table.fragments(("size", "max.token_end"), is_sorted=False)
    if "max.token_end" not in fragments.column_names and fragments.num_rows:
        raise LoaderError(
            "its log has no statistics of token_end",
            where=table.url,
            hint="write it with `etl run`",
        )
    # Sorted here: the first kernels of Arrow in a process take a millisecond.
    columns = ("path", "max.token_end", "size") if fragments.num_rows else ()
    files = sorted(zip(*(fragments[name].to_pylist() for name in columns), strict=True))
    uris = [storage.join(table.url, path) for path, _, _ in files]
    file_tokens = [end or 0 for _, end, _ in files]  # no statistics: a file of no rows
    file_bytes = [size for _, _, size in files]
    local = storage.is_local(table.url)
    read = partial(_read_groups, ranges=None if local else Ranges(remote))
    if local and len(files) <= _FEW_FILES:
        groups = list(map(read, uris, file_tokens, file_bytes))
    else:
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            groups = list(pool.map(read, uris, file_tokens, file_bytes))
    first_group = np.cumsum([0, *(found.shape[1] for found in groups)], dtype=np.int64)
    tokens, documents = np.concatenate([*groups, np.empty((2, 0), np.int32)], axis=1)
    return Index(
        table.url,
        table.version,
        np.array([path.encode() for path, _, _ in files], np.bytes_),
        np.array(file_tokens, np.int64),
        np.array(file_bytes, np.int64),
        first_group,
        tokens,
        documents,
        None if local else remote,
    )


def damaged(uri: str, group: int, error: Exception) -> LoaderError:
    """The error of a row group that cannot be decoded."""
    return LoaderError(f"row group {group} cannot be decoded ({error})", where=uri, hint=VERIFY)


def read_tokenizers(index: Index) -> list[TokenizerRecord]:
    """The tokenizers that the table's commits name in their lineage, the newest first, each once.

    What was committed before the table was last rebuilt is not of it any more.
    """
    found: list[TokenizerRecord] = []
    for entry in Table.open(index.url, index.version).history():
        lineage = entry.get("tokenlake") or {}
        if lineage.get("tokenizer") is not None:
            record = TokenizerRecord.model_validate(lineage["tokenizer"])
            found += [] if record in found else [record]
        if lineage.get("action") == "rebuild":
            break
    return found


def _open(lake: str, version: int | str | None) -> Table:
    url = storage.normalize(lake)
    inner = storage.join(url, "tokens")
    found = next((place for place in (inner, url) if Table.exists(place)), None)
    if found is None:
        raise LoaderError(
            "there is no token table, neither here nor in tokens/ below",
            where=url,
            hint="give the URL of a lake whose recipe ends with `tokenize`",
        )
    try:
        table = Table.open(found, None if version is None else releases.version_of(found, version))
        if version is not None:
            table.check_files()
    except TableError as error:
        raise LoaderError(error.what, where=error.where, hint=error.hint) from error
    _check_schema(table)
    return table


def _check_schema(table: Table) -> None:
    found = {field.name: _layout(field.type) for field in table.schema}
    for name, layout in ((field.name, _layout(field.type)) for field in TOKENS):
        if found.get(name) != layout:
            raise LoaderError(
                f"no token table: column {name} is {found.get(name, 'missing')}, not {layout}",
                where=table.url,
                hint="give the URL of the lake, or of its table tokens",
            )


def _layout(kind: pa.DataType) -> str:
    """A type without what differs from writer to writer: nullability, and the name of the elements."""
    if isinstance(kind, pa.ListType):
        return f"list of {_layout(kind.value_type)}"
    return str(kind)


def _read_groups(
    uri: str, file_tokens: int, file_bytes: int, *, ranges: Ranges | None
) -> np.ndarray:
    """Tokens of each row group of a file, and documents with tokens, (2, groups) int32.

    The tokens are those that the statistics of token_end tell, the documents follow from the number of
    values, of which an empty list is one.
    """
    footer = read_footer(uri, file_bytes, ranges)
    total, leaf = _columns(footer) if footer.num_row_groups else (0, 0)
    found, before = np.zeros((2, footer.num_row_groups), np.int32), 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows == 0:
            continue
        statistics: Any = group.column(total).statistics
        known = statistics is not None and statistics.has_min_max
        end = int(statistics.max) if known else -1
        tokens, before = end - before, end
        values = group.column(leaf).num_values  # an empty list counts as one
        in_range = values - group.num_rows <= tokens <= min(values, _MAX_GROUP_TOKENS)
        if not in_range or group.num_rows > _MAX_GROUP_TOKENS:
            raise LoaderError(
                f"token_end says {tokens} tokens in row group {number}, which has {values}",
                where=uri,
                hint="only `etl` may write this table: other tools break the running total",
            )
        found[:, number] = tokens, group.num_rows - (values - tokens)
    if before != file_tokens:
        raise LoaderError(
            f"the file ends at token {before}, the log says {file_tokens}",
            where=uri,
            hint=VERIFY,
        )
    return found


def _columns(footer: pq.FileMetaData) -> tuple[int, int]:
    """The places of token_end and of the tokens among the columns of a file."""
    # Not by footer.schema: the two hold each other until the collector comes, 35 kB for each file.
    group = footer.row_group(0)
    names = [group.column(i).path_in_schema for i in range(group.num_columns)]
    return names.index("token_end"), next(i for i, n in enumerate(names) if n.startswith("tokens."))
