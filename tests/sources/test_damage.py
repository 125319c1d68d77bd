"""Damaged files: what is readable before and after the damage, the rows for the rest, and the messages."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import ipc

from etl.errors import SourceError
from etl.sources import Source
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split

_DAMAGED = "source.damaged"


def _rows(path: Path, **settings: Any) -> list[dict[str, Any]]:
    """The rows of a file, from all of its splits, which are counted first as a run does."""
    source = Source(path=str(path), **{"damaged": "keep_readable", **settings})
    splits = list(list_splits(source))
    if any(split.first_row is None for split in splits):
        splits = list(number_splits(splits, [count_records(split) for split in splits]))
    return [
        row for split in splits for table in read_split(split, source) for row in table.to_pylist()
    ]


def _outcome(path: Path, **settings: Any) -> list[tuple[int, str]]:
    rows = _rows(path, **settings)
    return [(row["row"], row["text"] if row["reason"] is None else row["reason"]) for row in rows]


def _lines(start: int, stop: int) -> bytes:
    return b"".join(b'{"text": "%d"}\n' % number for number in range(start, stop))


def _texts(start: int, stop: int) -> list[tuple[int, str]]:
    return [(number, str(number)) for number in range(start, stop)]


@pytest.mark.parametrize(
    "padding", [b"\0", b"\0" * 1024, b"\0" * 200_000], ids=["1", "1024", "200000"]
)
@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_zero_bytes_after_members_are_padding(tmp_path: Path, padding: bytes, suffix: str) -> None:
    compress = gzip.compress if suffix == "gz" else zstandard.compress
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(compress(_lines(0, 50)) + padding + compress(_lines(50, 60)) + padding)
    for damaged in ("quarantine", "keep_readable"):
        assert _outcome(path, damaged=damaged) == _texts(0, 60)
        size = max(200, len(padding) // 8)
        assert _outcome(path, damaged=damaged, split_bytes=size) == _texts(0, 60)


@pytest.mark.parametrize("content", [b"\0" * 100, b'{"text": "a"}\n', b"PK\3\4"])
def test_a_file_that_is_not_compressed_as_its_name_says_is_damaged(tmp_path, content) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    assert _outcome(path) == [(0, _DAMAGED)]
    with pytest.raises(SourceError, match="no gzip member starts at byte 0.*; 0 records"):
        _rows(path, damaged="quarantine")


_CONTENTS = {
    "a.jsonl.gz": _lines(0, 50),
    "a.json.gz": json.dumps([{"text": str(number)} for number in range(50)]).encode(),
    "a.csv.gz": b"text\n" + b"".join(b"%d\n" % number for number in range(50)),
    "a.tsv.zst": b"text\n" + b"".join(b"%d\n" % number for number in range(50)),
    "a.jsonl.zst": _lines(0, 50),
}


@pytest.mark.parametrize("name", _CONTENTS)
def test_the_error_has_the_number_of_readable_records(tmp_path: Path, name: str) -> None:
    compress = gzip.compress if name.endswith("gz") else zstandard.compress
    path = tmp_path / name
    path.write_bytes(compress(_CONTENTS[name]) + b"trailing text that is not a member")
    with pytest.raises(SourceError, match="; 50 records before the damage are readable") as caught:
        _rows(path, damaged="quarantine")
    assert "set source.damaged to keep_readable" in str(caught.value)
    assert _outcome(path) == [*_texts(0, 50), (50, _DAMAGED)]


def test_the_row_of_the_damage_says_where_it_is_and_what_is_lost(tmp_path: Path) -> None:
    first = gzip.compress(_lines(0, 5) + b'{"text": "lost ')
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(first + gzip.compress(_lines(5, 9))[:-12])
    rows = _rows(path)
    assert [row["text"] for row in rows if row["reason"] is None][:5] == list("01234")
    path.write_bytes(first + b"junk")
    metadata = json.loads(_rows(path)[-1]["metadata"])
    assert metadata == {
        "error": f"no gzip member starts at byte {len(first)}",
        "raw": '{"text": "lost ',
    }


@pytest.mark.parametrize(
    "name", ["a.jsonl.gz", "a.json.gz", "a.csv.gz", "a.tsv.zst", "a.jsonl.zst"]
)
def test_a_truncated_file_has_the_rows_before_its_end(tmp_path: Path, name: str) -> None:
    """Of each length, the rows are a prefix and one more, and a longer file does not have fewer."""
    compress = gzip.compress if name.endswith("gz") else zstandard.compress
    packed = compress(_CONTENTS[name])
    path = tmp_path / name
    before = 0
    for size in range(0, len(packed), 7):
        path.write_bytes(packed[:size])
        rows = _outcome(path)
        if size:
            assert rows == [*_texts(0, len(rows) - 1), (len(rows) - 1, _DAMAGED)]
        assert len(rows) >= before
        before = len(rows)
    assert name.endswith("zst") or before > 40


def test_a_plain_text_that_is_damaged_is_kept_with_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"a text of words") + b"junk")
    assert _outcome(path) == [(0, "a text of words"), (1, _DAMAGED)]
    with pytest.raises(SourceError, match="; 15 bytes before the damage are readable"):
        _rows(path, damaged="quarantine")


def test_a_record_of_several_lines_that_is_cut_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'text,id\n"a",1\n"b\nc",2\n"d\ne') + b"junk")
    assert _outcome(path) == [
        (0, "a"),
        (1, "b\nc"),
        (2, "source.malformed"),
        (3, _DAMAGED),
    ]


_EDIT = st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=12))


@example([3, 3, 4], [(0.4, b"\0\0\0\0\0\0\0\0")], 60, "gz", 1.0)
@example([0, 5, 0], [], 40, "zst", 0.7)
@given(
    st.lists(st.integers(0, 12), max_size=12),
    st.lists(_EDIT, max_size=3),
    st.integers(4, 600),
    st.sampled_from(["gz", "zst"]),
    st.floats(0.3, 1),
)
def test_the_rows_of_a_damaged_file_do_not_depend_on_its_cuts(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    edits: list[tuple[float, bytes]],
    split_bytes: int,
    suffix: str,
    cut: float,
) -> None:
    content = _lines(0, 40)
    starts = [sum(sizes[:index]) * 7 for index in range(len(sizes) + 1)]
    parts = [content[a:b] for a, b in zip(starts, [*starts[1:], len(content)], strict=True)]
    compress = (
        gzip.compress if suffix == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress
    )
    packed = bytearray(b"".join(map(compress, parts)))
    for fraction, piece in edits:
        offset = int(fraction * len(packed))
        packed[offset : offset + len(piece)] = piece
    path = tmp_path_factory.mktemp("damage") / f"a.jsonl.{suffix}"
    path.write_bytes(bytes(packed[: int(cut * len(packed))]))
    whole = _outcome(path, split_bytes=1 << 30)
    numbers = [row for row, _ in whole]
    assert numbers == sorted({*numbers})
    assert _outcome(path, split_bytes=split_bytes) == whole


def test_lines_after_a_damaged_member_are_read(tmp_path: Path) -> None:
    members = [gzip.compress(_lines(number, number + 3), mtime=0) for number in range(0, 30, 3)]
    bad = bytearray(members[4])
    bad[12:20] = b"\xff" * 8
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"".join([*members[:4], bytes(bad), *members[5:]]))
    texts = [text for _, text in _outcome(path)]
    assert texts[:12] == [str(number) for number in range(12)]
    assert texts[-15:] == [str(number) for number in range(15, 30)]
    assert texts.count(_DAMAGED) == 1
    for split_bytes in (100, 300, 700):
        assert _outcome(path, split_bytes=split_bytes) == _outcome(path)


def _parquet(path: Path) -> None:
    table = pa.table({"text": [f"text {number} " * 20 for number in range(40)]})
    pq.write_table(table, path, row_group_size=10, compression="zstd", use_dictionary=False)
    group = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    start = group.data_page_offset + group.total_compressed_size - 40
    content[start : start + 30] = b"\xff" * 30
    path.write_bytes(bytes(content))


def _arrow(path: Path) -> None:
    table = pa.table({"text": [f"text {number} " * 20 for number in range(40)]})
    options = ipc.IpcWriteOptions(compression="zstd")
    new = ipc.new_file if path.suffix == ".arrow" else ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=10)
    content = bytearray(path.read_bytes())
    starts = []
    at = content.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        starts.append(at)
        at = content.find(b"\x28\xb5\x2f\xfd", at + 1)
    middle = starts[len(starts) // 2 - 1]
    content[middle : middle + 20] = b"\xff" * 20
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("name", "write"), [("a.parquet", _parquet), ("a.arrow", _arrow), ("a.ipc", _arrow)]
)
def test_the_rows_of_a_damaged_row_group_or_record_batch_are_rejected(
    tmp_path, name, write
) -> None:
    path = tmp_path / name
    write(path)
    with pytest.raises(SourceError):
        _rows(path, damaged="quarantine")
    expected = [
        (number, _DAMAGED if 10 <= number < 20 else f"text {number} " * 20) for number in range(40)
    ]
    assert _outcome(path) == expected
    assert _outcome(path, split_bytes=1000) == expected


def test_the_setting_is_part_of_the_identity() -> None:
    assert Source(path="a").identity() != Source(path="a", damaged="keep_readable").identity()
