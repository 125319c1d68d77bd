"""Lakes with documents whose columns are known, their tokens, and the tokens in a random order."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from etl import schemas
from etl.delta.table import Table
from etl.lake.commit_info import to_commit_info
from etl.lake.table_specs import DOCUMENTS, TOKENS
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.parquet.layout import Layout

MAX_TOKENS = 64
"""Document i has the tokens i * MAX_TOKENS, i * MAX_TOKENS + 1, ..."""

MANY_ROW_GROUPS = replace(TOKENS.layout, row_group_bytes=400, page_bytes=64)
"""A layout of tokens with many row groups and pages."""
_MASK = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True)
class Doc:
    """A document; without ``length``, it has no tokens."""

    source: str
    row: int
    length: int | None = 7
    lang: str | None = "en"
    quality: float | None = 0.5
    text: str | None = None  # for the content hash; None: no hash
    verdict: str = "kept"

    @property
    def url(self) -> str | None:
        return None if self.row % 5 == 4 else f"https://{self.source}/{self.row}"

    @property
    def content_hash(self) -> bytes | None:
        return (
            None
            if self.text is None
            else hashlib.blake2b(self.text.encode(), digest_size=16).digest()
        )


def make_document_lake(
    url: str,
    docs: Sequence[Doc],
    *,
    shuffled: bool = False,
    lost: str = "",
    layout: Layout = MANY_ROW_GROUPS,
) -> str:
    """Create a lake with some documents, or add them to it; each input file has one data file per verdict.

    The data files of tokens are in the order of the input files. The tokens of all documents are numbered
    from 0 in each call. ``shuffled`` adds ``tokens_shuffled``.
    The documents of the file ``lost`` are not in ``documents``.
    """
    schema = schemas.documents(["quality"])
    documents = Table.create(f"{url}/documents", schema, DOCUMENTS.layout)
    files: list[DataFile] = []
    for source, verdict in sorted(
        {(doc.source, doc.verdict) for doc in docs if doc.source != lost}
    ):
        rows = [doc for doc in docs if (doc.source, doc.verdict) == (source, verdict)]
        stored = pa.schema([field for field in schema if field.name != "verdict"])
        table = pa.Table.from_pylist([_document(doc) for doc in rows], stored)
        partition = {"verdict": verdict}
        files += _write(documents.url, schema, DOCUMENTS.layout, table, partition)
    documents = documents.commit(files, transactions={})
    numbered = [(i, doc) for i, doc in enumerate(docs) if doc.length is not None]
    by_source = {
        source: [d for d in numbered if d[1].source == source] for source in _sources(docs)
    }
    tokens = _add_tokens(f"{url}/tokens", list(by_source.values()), documents, layout)
    if shuffled:
        random.Random(0).shuffle(numbered)
        half = len(numbered) // 3
        _add_tokens(f"{url}/tokens_shuffled", [numbered[:half], numbered[half:]], tokens, layout)
    return url


def tokens_of(number: int, doc: Doc) -> list[int]:
    """Return the tokens of a document."""
    return list(range(number * MAX_TOKENS, number * MAX_TOKENS + (doc.length or 0)))


def naive_key(doc: Doc, seed: int) -> int:
    """Return the random key of an address, with integers of Python."""
    digest = hashlib.blake2b(f"{seed}\x00{doc.source}".encode(), digest_size=8).digest()
    return naive_mix(int.from_bytes(digest, "little") + (doc.row + 1) * 0x9E3779B97F4A7C15 & _MASK)


def naive_mix(value: int) -> int:
    """Return SplitMix64's finalizer of a value."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def naive_seed(purpose: str, seed: int) -> int:
    """Return the seed of a purpose."""
    digest = hashlib.blake2b(f"{purpose}\x00{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def naive_is_validation(doc: Doc, share: float, seed: int) -> bool:
    """Return whether a document is for validation."""
    content = doc.content_hash
    key = naive_key(doc, -6) if content is None else int.from_bytes(content[:8], "little")
    position = naive_mix(naive_mix(key) ^ naive_seed("split", seed))
    return (position >> 11) * 2.0**-53 < share


def _sources(docs: Sequence[Doc]) -> list[str]:
    return sorted({doc.source for doc in docs})


def _document(doc: Doc) -> dict[str, object]:
    names = ("source", "row", "url", "lang", "quality", "content_hash")
    return {name: getattr(doc, name) for name in names}


def _add_tokens(
    url: str, files: Sequence[Sequence[tuple[int, Doc]]], made_from: Table, layout: Layout
) -> Table:
    table = Table.create(url, schemas.TOKENS, layout)
    schema = pa.schema([field for field in schemas.TOKENIZED if field.name != "token_end"])
    added: list[DataFile] = []
    for place, docs in enumerate(files):
        rows = [
            {
                "id": f"{doc.source}-{doc.row}",
                "source": doc.source,
                "row": doc.row,
                "tokens": np.array(tokens_of(number, doc), np.int32),
                "num_tokens": doc.length,
            }
            for number, doc in docs
        ]
        part = pa.Table.from_pylist(rows, schema)
        # Files in order; in the shuffled table, all of one bucket, so that their row groups alternate.
        digits = "0" * 15 + "1" if url.endswith("tokens_shuffled") else f"{place:016x}"
        added += _write(url, schemas.TOKENS, layout, part, name=digits + "f" * 16)
    name, version = made_from.url.rpartition("/")[2], made_from.version
    made = schemas.InputTable(name=name, url=made_from.url, version=version)
    record = schemas.Lineage(
        run_id="0",
        recipe="test",
        fingerprint="f" * 64,
        canonical={},
        step="tokens",
        generation=1,
        versions={},
        input_tables=[made],
        started="",
        committed="",
    )
    info = to_commit_info(record.model_dump(mode="json"))
    return table.commit(added, transactions={}, commit_info=info)


def _write(
    url: str,
    schema: pa.Schema,
    layout: Layout,
    rows: pa.Table,
    partition: dict[str, str] | None = None,
    name: str = "f" * 32,
) -> list[DataFile]:
    writer = DataFileWriter(url, schema, layout, name=name, partition=partition)
    writer.append(rows)
    return list(writer.close())
