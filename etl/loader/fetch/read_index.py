"""Read the index of a token table, without tokens.

Files and their token counts come from the Delta log (``max.token_end``), row groups from the footers. Rows
that are struck by deletion vectors count as if they were not in the files. Row groups without other rows are
left out.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from etl import storage
from etl.delta.table import Table
from etl.errors import LoaderError
from etl.lake.commit_info import fields_of
from etl.lake.open_tokens import open_tokens
from etl.loader.fetch.footers import read_row_groups
from etl.loader.fetch.range_requests import Remote
from etl.loader.fetch.selected_rows import StruckRows
from etl.loader.fetch.struck_rows import leave_out_struck
from etl.loader.fetch.table_index import TableIndex
from etl.schemas import TOKENS, TokenizerRecord, shuffled_from
from etl.schemas.shuffled_files import Bucket


def read_index(
    lake: str,
    *,
    version: int | str | None,
    remote: Remote,
    leave_out: Sequence[tuple[str, int]] = (),
) -> TableIndex:
    """Read the log and the footers of the token table of a lake, or of the table at a URL.

    ``version`` is a number or the name of a release. ``leave_out`` are the addresses of documents that count
    as if they were struck.

    Raises LoaderError if the table or the version does not exist, if it is not a token table, or if the
    lake has another format version, StorageError if a file cannot be read, and TableError if a deletion
    vector is damaged.
    """
    table = _open(lake, version)
    data_files = table.data_files(("size", "max.token_end", "vector"), is_sorted=False)
    if "max.token_end" not in data_files.column_names and data_files.num_rows:
        raise LoaderError(
            "the log has no statistics for token_end",
            where=table.url,
            hint="write the table with `etl run`",
        )
    # Sorted in Python: the first Arrow kernel in a process takes a millisecond.
    columns = ("path", "max.token_end", "size", "vector") if data_files.num_rows else ()
    files = sorted(zip(*(data_files[name].to_pylist() for name in columns), strict=True))
    uris = [storage.join(table.url, path) for path, *_ in files]
    file_tokens = [end or 0 for _, end, *_ in files]  # no statistics: a file without rows
    file_bytes = [size for _, _, size, _ in files]
    local = storage.is_local(table.url)
    groups = read_row_groups(uris, file_tokens, file_bytes, remote=None if local else remote)
    index = TableIndex(
        table.url,
        table.version,
        np.array([path.encode() for path, *_ in files], np.bytes_),
        np.array(file_tokens, np.int64),
        np.array(file_bytes, np.int64),
        groups.first_group,
        groups.tokens,
        groups.documents,
        groups.chunks,
        None if local else remote,
        marks=groups.marks,
    )
    vectors = [vector for *_, vector in files]
    index = leave_out_struck(index, groups.rows, vectors, addresses=leave_out)
    index = index if shuffled_from(table.name or "") is None else order_by_keys(index)
    if isinstance(index.rows, StruckRows):
        counts = index.rows.struck_counts()
        return index.take(np.flatnonzero((counts == 0) | (counts < index.rows.count)))
    return index


def order_by_keys(index: TableIndex) -> TableIndex:
    """Return the index of a shuffled table with its row groups in the order of their random keys.

    The keys of a bucket are evenly distributed over its range, so that the first key of a row group follows
    from the tokens before it in the file.
    """
    counts, tokens = np.diff(index.first_group), index.stored_tokens.astype(np.int64)
    buckets = [Bucket.of_file(path.decode()) or Bucket(0, 1) for path in index.paths.tolist()]
    number, count = np.array([(b.number, b.count) for b in buckets], np.float64).reshape(-1, 2).T
    files = np.repeat(np.arange(len(buckets)), counts)
    before = np.cumsum(tokens) - tokens
    before -= np.concatenate([before, [0]])[index.first_group[files]]
    share = before / np.maximum(index.file_tokens[files], 1)
    order = np.argsort((number[files] + share) / count[files], kind="stable")
    if (order[1:] > order[:-1]).all():
        return index
    return index.take(order)


def read_tokenizers(index: TableIndex) -> list[TokenizerRecord]:
    """Return the distinct tokenizers in the lineage of the table's commits, newest first.

    Commits before the last rebuild do not count, because their rows are no longer in the table.
    """
    records: list[TokenizerRecord] = []
    for entry in Table.open(index.url, index.version).history():
        lineage = fields_of(entry)
        if lineage.get("tokenizer") is not None:
            record = TokenizerRecord.model_validate(lineage["tokenizer"])
            records += [] if record in records else [record]
        if lineage.get("action") == "rebuild":
            break
    return records


def _open(lake: str, version: int | str | None) -> Table:
    table = open_tokens(lake, version)
    _check_schema(table)
    return table


def _check_schema(table: Table) -> None:
    layouts = {field.name: _layout(field.type) for field in table.schema}
    for name, layout in ((field.name, _layout(field.type)) for field in TOKENS):
        if layouts.get(name) != layout:
            raise LoaderError(
                f"not a token table: column {name} is {layouts.get(name, 'missing')}, not {layout}",
                where=table.url,
                hint="use the URL of the lake, or of its table tokens",
            )


def _layout(kind: pa.DataType) -> str:
    """Return a type without nullability and element names, which differ between writers."""
    if isinstance(kind, pa.ListType):
        return f"list of {_layout(kind.value_type)}"
    return str(kind)
