"""Small Parquet and Arrow files that need much memory when they are decoded."""

import io
import random
import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from pyarrow import ipc

from tests.helpers import parquet_bytes as raw

MB = 1 << 20
_ROOT = raw.element(b"schema", children=1)
_TEXT = raw.element(b"text")
_MANY = 2**31 - 1


def _equal_texts(length: int, rows: int) -> pa.Array:
    indices = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array(["x" * length]))


def _parquet(table: pa.Table, **settings) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", store_schema=False, **settings)
    return file.getvalue()


def _arrow(
    table: pa.Table | pa.RecordBatch, *, stream: bool = False, compression: str | None = None
) -> bytes:
    file = io.BytesIO()
    options = ipc.IpcWriteOptions(compression=compression)
    with (ipc.new_stream if stream else ipc.new_file)(
        file, table.schema, options=options
    ) as writer:
        writer.write(table)
    return file.getvalue()


def dictionary() -> bytes:
    """A dictionary of one text of 9 MB, for 20,000 rows."""
    return _parquet(
        pa.table({"text": _equal_texts(9 * MB, 20_000)}), dictionary_pagesize_limit=64 * MB
    )


def dictionary_of_metadata() -> bytes:
    """The same beside a short text."""
    texts = _equal_texts(9 * MB, 20_000)
    table = pa.table({"text": ["a"] * len(texts), "more": texts})
    return _parquet(table, dictionary_pagesize_limit=64 * MB)


def tags() -> bytes:
    """A dictionary of one text of 1 MB, of which each of 50 rows has a list of 2,000."""
    tags = pa.ListArray.from_arrays(
        pa.array(range(0, 100_001, 2000), pa.int32()), _equal_texts(MB, 100_000)
    )
    return _parquet(pa.table({"text": ["a"] * 50, "tags": tags}), dictionary_pagesize_limit=64 * MB)


def prefixes() -> bytes:
    """Texts of 4 MB that share a prefix."""
    texts = pa.array(["x" * (4 * MB)] * 50)
    return _parquet(
        pa.table({"text": texts}),
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY"},
    )


def large_pages() -> bytes:
    """Pages of 48 MB that compress to 4 KB; the rows of a page are texts of 9 MB."""
    content = (struct.pack("<I", 9 * MB) + b"x" * (9 * MB)) * 4
    packed = zstandard.compress(content)
    page = raw.data_page(packed, values=4, claimed=len(content))
    return raw.file_of([_ROOT, _TEXT], page * 50, rows=200, codec=6)


def one_large_page() -> bytes:
    """A page of 1.6 GB."""
    content = zstandard.compress(struct.pack("<I", 16 * MB) + b"x" * (16 * MB)) * 100
    page = raw.data_page(content, values=100, claimed=100 * (16 * MB + 4))
    return raw.file_of([_ROOT, _TEXT], page, rows=100, codec=6)


def claimed_page() -> bytes:
    """A page that claims 2 GB."""
    page = raw.data_page(zstandard.compress(b"\1\0\0\0a"), values=1, claimed=_MANY)
    return raw.file_of([_ROOT, _TEXT], page, rows=1, codec=6)


def claimed_chunk() -> bytes:
    """A column chunk that claims 21 GB."""
    return raw.file_of(
        [_ROOT, _TEXT], raw.data_page(b"\1\0\0\0a", values=1), rows=1, length=21_000 * MB
    )


def list_of_many() -> bytes:
    """One row with a list of two billion integers, in runs of equal values."""
    schema = [raw.element(b"schema", children=1), raw.element(b"text", children=1, repetition=1)]
    schema += [raw.element(b"list", children=1, repetition=2), raw.element(b"element", kind=1)]
    run = raw.varint(_MANY << 1)
    levels = struct.pack("<I", len(run) + 1) + run + b"\1"
    definitions = struct.pack("<I", len(run) + 1) + run + b"\2"
    dictionary = raw.dictionary_page(b"\1\0\0\0", 1)
    page = raw.data_page(levels + definitions + b"\1" + run + b"\0", values=_MANY, encoding=8)
    path = (b"text", b"list", b"element")
    return raw.file_of(
        schema, dictionary + page, rows=_MANY, path=path, dictionary_bytes=len(dictionary)
    )


def delta_lengths() -> bytes:
    """A page of two billion empty texts, whose lengths are a run of equal values."""
    lengths = raw.varint(128) + raw.varint(4) + raw.varint(_MANY) + raw.varint(0)
    page = raw.data_page(lengths + b"\0\0\0\0\0" * 100, values=_MANY, encoding=6)
    return raw.file_of([_ROOT, _TEXT], page, rows=_MANY)


def column_chunks() -> bytes:
    """A footer of 900,000 column chunks of three bytes each."""
    count = 900_000
    group = b"\x19\xfc" + raw.varint(count) + b"\x26\0\0" * count + b"\x16\0\x16\0\0"
    return raw.file_of([_ROOT, _TEXT], groups=b"\x1c" + group)


def schema_elements() -> bytes:
    """A footer of 900,000 columns."""
    count = 300_000
    columns = raw.struct_bytes(_TEXT) * count
    return raw.file_of([raw.element(b"schema", children=count), columns], elements=count + 1)


def deep_schema() -> bytes:
    """A footer of 50,000 nested groups."""
    groups = [raw.element(b"a", children=1, repetition=1) for _ in range(50_000)]
    return raw.file_of([_ROOT, *groups, _TEXT])


def claimed_groups() -> bytes:
    """A footer that claims 900,000 row groups."""
    return raw.file_of([_ROOT, _TEXT], groups=b"\xfc" + raw.varint(900_000))


def arrow_dictionary() -> bytes:
    """A dictionary of one text of 9 MB, for 20,000 rows."""
    return _arrow(pa.table({"text": _equal_texts(9 * MB, 20_000)}))


def arrow_dictionary_of_metadata() -> bytes:
    """The same beside a short text."""
    texts = _equal_texts(9 * MB, 20_000)
    return _arrow(pa.table({"text": ["a"] * len(texts), "more": texts}), stream=True)


def views(kind: pa.DataType) -> pa.Array:
    """20,000 views of the same 9 MB."""
    data = pa.py_buffer(b"x" * (9 * MB))
    view = np.tile(np.array([9 * MB, 0x78787878, 0, 0], np.int32), 20_000)
    return pa.Array.from_buffers(kind, 20_000, [None, pa.py_buffer(view), data])


def list_views() -> pa.Array:
    """20,000 lists that share the same 200,000 values."""
    values = pa.array(np.zeros(200_000, np.int8))
    count = 20_000
    offsets, sizes = np.zeros(count, np.int32), np.full(count, len(values), np.int32)
    return pa.ListViewArray.from_arrays(pa.array(offsets), pa.array(sizes), values)


def _beside_text(array: pa.Array) -> pa.Table:
    return pa.table({"text": pa.array(["a"] * len(array)), "more": array})


def claimed_buffer() -> bytes:
    """A compressed buffer that claims 21 GB."""
    content = _arrow(pa.table({"text": ["x" * 5000]}), compression="zstd")
    return content.replace(struct.pack("<q", 5000), struct.pack("<q", 21_000 * MB))


def claimed_body(*, stream: bool) -> bytes:
    """A record batch that claims 21 GB."""
    content = _arrow(pa.table({"text": ["x" * 6000]}), stream=stream)
    size = next(n for n in range(6000, 7000, 8) if struct.pack("<q", n) in content)
    return content.replace(struct.pack("<q", size), struct.pack("<q", 21_000 * MB))


def packed_buffer() -> bytes:
    """A compressed buffer of 800 MB."""
    size = 800 * MB
    frame = zstandard.compress(b"x" * (8 * MB)) * 100
    text = random.Random(0).randbytes(len(frame)).hex()
    content = bytearray(_arrow(pa.table({"text": [text]}), compression="zstd"))
    start = content.index(struct.pack("<q", len(text)))
    content[start : start + 8 + len(frame)] = struct.pack("<q", size) + frame
    return bytes(content)


HOSTILE_COLUMNS: dict[str, Callable[[], bytes]] = {
    **{
        f"{each.__name__}/a.parquet": each
        for each in (
            dictionary, dictionary_of_metadata, tags, prefixes, large_pages, one_large_page, claimed_page,
            claimed_chunk, list_of_many, delta_lengths, column_chunks, schema_elements, deep_schema,
            claimed_groups,
        )
    },
    "dictionary/a.arrow": arrow_dictionary,
    "dictionary of metadata/a.arrow": arrow_dictionary_of_metadata,
    "text views/a.arrow": lambda: _arrow(pa.table({"text": views(pa.string_view())})),
    "binary views/a.arrow": lambda: _arrow(_beside_text(views(pa.binary_view()))),
    "list views/a.arrow": lambda: _arrow(_beside_text(list_views())),
    "nulls in a list/a.arrow": lambda: _arrow(
        _beside_text(pa.FixedSizeListArray.from_arrays(pa.nulls(2**31 - 2), 2**30 - 1))
    ),
    "claimed buffer/a.arrow": claimed_buffer,
    "claimed body/a.arrow": lambda: claimed_body(stream=False),
    "claimed body of a stream/a.arrow": lambda: claimed_body(stream=True),
    "packed buffer/a.arrow": packed_buffer,
}  # fmt: skip
