"""The tokens of the prefixes of a view: encoded once, and kept in files that are mapped into memory."""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from etl import storage
from etl.errors import LoaderError
from etl.loader.fetch.file_cache import FileCache
from etl.loader.fetch.read_index import read_tokenizers
from etl.loader.fetch.selected_rows import MappedArray, Prefixes, TableRows
from etl.loader.fetch.table_index import TableIndex
from etl.loader.views.pinned_documents import PinnedTable, RowGroups
from etl.loader.views.view import Prefix

_ENDS, _TOKENS, _GROUP_TOKENS = "ends.npy", "tokens.npy", "group_tokens.npy"
_COPIED = 1 << 24  # tokens at a time


def add_prefixes(
    index: TableIndex,
    rows: TableRows,
    *,
    prefix: Prefix,
    documents: PinnedTable,
    cache: FileCache,
) -> tuple[TableIndex, TableRows, list[Path]]:
    """Return the index of a table with the prefixes of its documents, its rows, and the folders of both.

    Raises LoaderError if the tokenizer is not the one of the table, or the column does not exist.
    """
    documents.check_columns([prefix.column])
    content = _read_tokenizer(index, prefix)
    parts = [documents.digest(), prefix.column, prefix.template, prefix.max_tokens]
    digest = hashlib.sha256(repr(parts).encode() + content).hexdigest()[:32]
    encoded = cache.open(f"prefix-{digest}", partial(_encode, documents, prefix, content))
    ends, tokens = (MappedArray(str(encoded / name)) for name in (_ENDS, _TOKENS))
    rows = replace(
        rows,
        digest=f"{index.rows_digest} prefix-{digest}".strip(),
        prefixes=Prefixes(ends, tokens),
        stored_tokens=index.stored_tokens,
    )
    key = hashlib.sha256(f"{index.digest()} {rows.digest}".encode()).hexdigest()[:32]
    counted = cache.open(f"prefixed-{key}", partial(_count, rows, len(index.group_tokens)))
    group_tokens = index.group_tokens + np.load(counted / _GROUP_TOKENS)
    return replace(index, group_tokens=group_tokens, rows=rows), rows, [encoded, counted]


def _read_tokenizer(index: TableIndex, prefix: Prefix) -> bytes:
    url = storage.normalize(prefix.tokenizer)
    with storage.open_input(url) as file:
        content = bytes(file.read())
    for record in read_tokenizers(index):
        if hashlib.sha256(content).hexdigest() != record.sha256:
            raise LoaderError(
                "the tokenizer of Prefix is not the one of the table",
                where=url,
                hint=f"use {record.name} with sha256 {record.sha256}, which the lineage names",
            )
    return content


def _encode(documents: PinnedTable, prefix: Prefix, content: bytes, folder: Path) -> None:
    """Write the tokens of the prefix of each document, and where they end."""
    from tokenizers import Tokenizer

    encode = partial(_encode_file, prefix=prefix, tokenizer=Tokenizer.from_buffer(content))
    counts, raw = [np.zeros(1, np.int64)], folder / "tokens.raw"
    with raw.open("wb") as file:
        for _, (tokens, lengths) in documents.read([prefix.column], encode):
            tokens.tofile(file)
            counts.append(lengths)
        np.zeros(1, np.int32).tofile(file)  # an empty file cannot be mapped
    ends = np.cumsum(np.concatenate(counts))
    np.save(folder / _ENDS, ends)
    total = int(ends[-1]) + 1
    stored = np.lib.format.open_memmap(folder / _TOKENS, mode="w+", dtype=np.int32, shape=(total,))
    with raw.open("rb") as file:
        for start in range(0, total, _COPIED):
            part = np.fromfile(file, np.int32, _COPIED)
            stored[start : start + len(part)] = part
    stored.flush()
    raw.unlink()


def _encode_file(
    groups: RowGroups, *, prefix: Prefix, tokenizer: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of the prefixes of a data file, and how many each document has."""
    tokens, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for rows in groups:
        values = rows[prefix.column].to_pylist()
        texts = ["" if v is None else prefix.template.replace("{}", str(v)) for v in values]
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids[: prefix.max_tokens] for encoding in encoded]
        tokens.append(np.fromiter((token for part in ids for token in part), np.int32))
        lengths.append(np.array([len(part) for part in ids], np.int64))
    return np.concatenate(tokens), np.concatenate(lengths)


def _count(rows: TableRows, groups: int, folder: Path) -> None:
    """Write the tokens of the prefixes of each row group."""
    counts = (int(rows.prefix_lengths(rows.documents_of(g)[0]).sum()) for g in range(groups))
    np.save(folder / _GROUP_TOKENS, np.fromiter(counts, np.int32, groups))
