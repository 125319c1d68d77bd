"""Pages compared with pyarrow: the same tokens for every writer, or a clear refusal."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.parquet.plain_pages import Pages, plain_chunk

LENGTHS = st.lists(st.one_of(st.integers(0, 2), st.integers(0, 300)), min_size=1, max_size=30)
ELEMENT = pa.field("element", pa.int32(), nullable=False)
REQUIRED = pa.schema([pa.field("tokens", pa.list_(ELEMENT), nullable=False)])
NULLABLE = pa.schema([pa.field("tokens", pa.list_(pa.int32()))])


def make_file(path, lengths, schema=REQUIRED, **options):
    """Write a file of one row group; return its path and its tokens."""
    generator = np.random.default_rng(len(lengths))
    rows = [generator.integers(-(2**31), 2**31 - 1, n).tolist() for n in lengths]
    options = {"use_dictionary": False, "data_page_size": 256, "write_batch_size": 3, **options}
    pq.write_table(pa.table({"tokens": rows}, schema=schema), path, **options)
    return path, [token for row in rows for token in row]


def open_pages(path, column=None):
    """Return the pages of a file, or None if only pyarrow can read them."""
    content = path.read_bytes()
    chunk = plain_chunk(column or pq.read_metadata(path).row_group(0).column(0))
    if chunk is None:
        return None
    pages = Pages(lambda start, size, _: content[start : start + size], chunk)
    return pages if pages.is_known() else None


@settings(max_examples=40)
@given(
    LENGTHS,
    st.sampled_from([REQUIRED, NULLABLE]),
    st.sampled_from(["none", "lz4", "zstd", "snappy"]),
    st.booleans(),
)
def test_the_tokens_read_equal_those_written(
    tmp_path_factory, lengths, schema, compression, statistics
):
    path, tokens = make_file(
        tmp_path_factory.mktemp("file") / "a.parquet",
        lengths,
        schema,
        compression=compression,
        write_statistics=statistics,
    )
    read: list[int] = []
    for start, values in open_pages(path):
        assert start == len(read)
        read += values.tolist()
    assert read == tokens


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30), st.data())
def test_skipping_omits_only_whole_pages(tmp_path_factory, lengths, data):
    path, tokens = make_file(tmp_path_factory.mktemp("file") / "a.parquet", lengths)
    skip = data.draw(st.integers(0, len(tokens) - 1))
    pages, all_pages = open_pages(path), list(open_pages(path))
    start, first = pages.next(skip)
    assert start <= skip < start + len(first)
    rest = list(pages)
    assert [*first.tolist(), *(token for _, values in rest for token in values)] == tokens[start:]
    assert 1 + len(rest) == sum(s >= start and len(v) > 0 for s, v in all_pages)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30), st.data())
def test_a_page_that_was_passed_can_be_read_again(tmp_path_factory, lengths, data):
    path, tokens = make_file(tmp_path_factory.mktemp("file") / "a.parquet", lengths)
    pages, all_pages = open_pages(path), list(open_pages(path))
    read = [pages.next() for _ in range(data.draw(st.integers(1, len(all_pages))))]
    value = data.draw(st.integers(0, len(tokens) - 1))
    pages.seek(value)
    first, values = pages.next()
    expected = [page for page in read if page[0] <= value][-1]
    assert (first, values.tolist()) == (expected[0], expected[1].tolist())


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": True},
        {"data_page_version": "2.0"},
        {"column_encoding": {"tokens.list.element": "BYTE_STREAM_SPLIT"}},
        {"column_encoding": {"tokens.list.element": "DELTA_BINARY_PACKED"}},
        {"compression": "gzip"},
    ],
)
def test_other_layouts_are_refused(tmp_path, options):
    path, _ = make_file(tmp_path / "a.parquet", [3, 0, 500], **options)
    assert open_pages(path) is None


def test_an_invalid_page_header_is_an_error(tmp_path):
    path, _ = make_file(tmp_path / "a.parquet", [300, 300])
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset] = 0x1B  # a map, which page headers do not use
    path.write_bytes(content)
    with pytest.raises(OSError, match="invalid page header"):
        list(open_pages(path, chunk))


@pytest.mark.parametrize(
    ("byte", "bits"), [(3, 0x01), (4, 0x40)]
)  # negative; larger than the column
def test_a_page_of_an_impossible_size_is_an_error(tmp_path, byte, bits):
    path, _ = make_file(tmp_path / "a.parquet", [300, 300], compression="lz4")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + byte] ^= bits  # the uncompressed size, of two bytes
    path.write_bytes(content)
    with pytest.raises(OSError, match="invalid page size"):
        list(open_pages(path, chunk))


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "snappy"])
def test_a_page_that_differs_from_its_checksum_is_an_error(tmp_path, compression, statistics):
    path, tokens = make_file(
        tmp_path / "a.parquet",
        [300, 300],
        compression=compression,
        write_statistics=statistics,
        write_page_checksum=True,
    )
    assert [token for _, values in open_pages(path) for token in values] == tokens
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 0x01  # of the last token
    path.write_bytes(content)
    with pytest.raises(OSError, match="the page at byte [0-9]+ has the checksum"):
        list(open_pages(path))


@pytest.mark.parametrize("damage", ["magic", "size", "block"])
def test_a_damaged_zstd_page_is_an_error(tmp_path, damage):
    path, _ = make_file(tmp_path / "a.parquet", [300, 300], compression="zstd")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    frame = content.index(zstandard.MAGIC_NUMBER.to_bytes(4, "little"))
    match damage:
        case "magic":
            content[frame] ^= 0xFF
        case "size":  # of the content, up to 16 EB in eight bytes
            content[frame + 4 : frame + 13] = b"\xe0" + b"\xff" * 8
        case "block":
            content[frame + 7 : frame + 10] = b"\xff" * 3
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"a page (cannot be decompressed|has another size)"):
        list(open_pages(path, chunk))
