"""Compressed JSON Lines are cut between members: the rows and their addresses do not depend on the cuts."""

import gzip
import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from etl.errors import SourceError
from etl.sources import Source, Split
from etl.sources.formats import member_starts
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split

Row = tuple[int, str | None, str | None]


def rows_of(path: Path, **settings: Any) -> tuple[list[Row], list[Split]]:
    """Return the rows of a file, and the splits of which they were read, in any order."""
    source = Source(path=str(path), **settings)
    splits = list(list_splits(source))
    counts = [count_records(split) for split in splits] if len(splits) > 1 else [None]
    splits = list(number_splits(splits, counts))
    rows = [
        (row["row"], row["text"], row["reason"])
        for split in reversed(splits)
        for table in read_split(split, source)
        for row in table.to_pylist()
    ]
    return sorted(rows, key=str), splits


def pack(content: bytes, sizes: list[int], kind: str, *, level: int = 1) -> list[bytes]:
    """Return members of so many bytes of a text each, the last with the rest."""
    parts, start = [], 0
    for size in sizes:
        parts.append(content[start : start + size])
        start += size
    parts.append(content[start:])
    if kind == "gz":
        return [gzip.compress(part, level, mtime=0) for part in parts]
    return [zstandard.compress(part, level) for part in parts]


def seek_table(frames: list[bytes], *, checksums: bool = False) -> bytes:
    """Return the table of some frames in the zstd seekable format."""
    entries = b"".join(
        struct.pack("<II", len(frame), zstandard.frame_content_size(frame))
        + (b"\1\2\3\4" if checksums else b"")
        for frame in frames
    )
    footer = struct.pack("<IBI", len(frames), 0x80 if checksums else 0, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(entries) + len(footer)) + entries + footer


TEXTS = st.lists(st.text(st.sampled_from('aä😀\\"\n\x1f\x8b'), max_size=30), max_size=40)


@given(
    TEXTS,
    st.lists(st.integers(0, 120), max_size=30),
    st.integers(1, 900),
    st.sampled_from(["gz", "zst", "seekable", "checksums"]),
    st.sampled_from([b"", b"\n", b"\n\n\n"]),
)
@example(["a", "b"], [14, 14], 4, "gz", b"\n")  # members end with lines
@example(["a", "b"], [0, 0, 14, 0, 0, 0], 4, "zst", b"\n\n")  # and some are empty
def test_any_split_size_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    sizes: list[int],
    split_bytes: int,
    kind: str,
    end: bytes,
) -> None:
    content = b"\n".join(json.dumps({"text": text}).encode() for text in texts) + end
    suffix = "gz" if kind == "gz" else "zst"
    members = pack(content, sizes, suffix, level=1)
    path = tmp_path_factory.mktemp("cut") / f"a.jsonl.{suffix}"
    table = seek_table(members, checksums=kind == "checksums") if kind[0] in "sc" else b""
    path.write_bytes(b"".join(members) + table)
    expected, (whole,) = rows_of(path, split_bytes=1 << 30)
    assert whole.is_whole
    rows, splits = rows_of(path, split_bytes=split_bytes)
    assert rows == expected
    starts = {0} | {sum(map(len, members[:number])) for number in range(len(members))}
    assert {split.start for split in splits} <= starts


def large_members(tmp_path: Path, kind: str, count: int = 60) -> tuple[Path, list[bytes]]:
    """Write 60 members of 20 lines of random text, each cut in a line."""
    random = Random(1)
    lines = [json.dumps({"text": random.randbytes(40).hex()}) for _ in range(20 * count)]
    content = "\n".join(lines).encode()
    members = pack(content, [1830] * (count - 1), kind, level=6)
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(b"".join(members))
    return path, members


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_files_of_many_members_are_cut_with_few_reads(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = large_members(tmp_path, kind)
    expected, _ = rows_of(path)
    assert len(expected) == 1200
    searches = 0
    find = member_starts._find_member

    def count_and_find(*arguments: Any) -> int | None:
        nonlocal searches
        searches += 1
        return find(*arguments)

    monkeypatch.setattr(member_starts, "_find_member", count_and_find)
    rows, splits = rows_of(path, split_bytes=40_000)
    assert rows == expected
    assert len(splits) == -(-path.stat().st_size // 10_000)
    assert searches == len(splits) - 1
    assert all(split.is_whole for split in rows_of(path, split_bytes=1 << 20)[1])


def test_a_plan_searches_for_a_limited_number_of_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = large_members(tmp_path, "gz")
    monkeypatch.setattr("etl.sources.list_splits._MAX_SEARCHES", 5)
    assert len(rows_of(path, split_bytes=4000)[1]) == 5


@pytest.mark.parametrize("checksums", [False, True])
def test_a_seek_table_cuts_by_the_text(tmp_path: Path, checksums: bool) -> None:
    path, members = large_members(tmp_path, "zst")
    path.write_bytes(b"".join(members) + seek_table(members, checksums=checksums))
    expected, _ = rows_of(path)
    rows, splits = rows_of(path, split_bytes=10 * 1830)
    assert rows == expected
    starts = [sum(map(len, members[:number])) for number in range(0, 60, 10)]
    assert [split.start for split in splits] == starts


def test_a_file_of_one_member_is_not_cut(tmp_path: Path) -> None:
    for kind, compress in (("gz", gzip.compress), ("zst", zstandard.compress)):
        path = tmp_path / f"a.jsonl.{kind}"
        texts = [Random(number).randbytes(4000).hex() for number in range(200)]
        path.write_bytes(compress(b"".join(b'{"text": "%s"}\n' % t.encode() for t in texts)))
        rows, (split,) = rows_of(path, split_bytes=1000)
        assert split.is_whole
        assert len(rows) == 200


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_magic_bytes_inside_a_member_do_not_cut(tmp_path: Path, kind: str) -> None:
    """Their rows are the same; where a whole member is stored inside another one, an error says so."""
    magic = {"gz": b"\x1f\x8b\x08\0", "zst": b"\x28\xb5\x2f\xfd"}[kind]
    line = b'{"text": "a"}\n' + magic * 3 + b"\n"
    members = [
        gzip.compress(line * 30, 0) if kind == "gz" else zstandard.compress(line * 30, -50)
        for _ in range(40)
    ]
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(b"".join(members))
    expected, _ = rows_of(path)
    for split_bytes in (100, 999, 4001):
        rows, splits = rows_of(path, split_bytes=split_bytes)
        assert rows == expected
        assert len(splits) > 1


def test_bytes_that_look_like_a_long_header_do_not_cut(tmp_path: Path) -> None:
    """A gzip header may have 65,535 bytes of any content, and only what follows shows that it is none."""
    random = Random(1)
    header = b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff"
    content = random.randbytes(100_000) + header + random.randbytes(200_000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(content, 0))
    (split,) = list_splits(Source(path=str(path), split_bytes=4 * 100_000))
    assert split.is_whole


def test_a_member_stored_inside_another_one_is_reported(tmp_path: Path) -> None:
    inner = gzip.compress(b'{"text": "inner"}\n') * 100
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n' * 9) + gzip.compress(inner, 0) * 2)
    source = Source(path=str(path), split_bytes=4 * 600)
    splits = list(list_splits(source))
    assert len(splits) > 1
    with pytest.raises(
        SourceError, match=r"cut at byte .*, where no member starts\n.*set source.split_bytes"
    ):
        count_records(splits[0])
