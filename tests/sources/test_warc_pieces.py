"""Compressed web archives are cut between members: rows and their addresses do not depend on the cuts."""

import gzip
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl import schemas, storage
from etl.audit.source_texts import read_texts
from etl.errors import SourceError
from etl.sources import Source, Split
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from tests.helpers.warc_archives import conversion, pack, record, response


def rows_of(path: Path, split_bytes: int) -> tuple[list[dict[str, Any]], list[Split]]:
    """Return the rows of a file, and the splits of which they were read, in any order."""
    source = Source(path=str(path), split_bytes=split_bytes)
    splits = list(list_splits(source))
    rows = [
        row
        for split in reversed(splits)
        for table in read_split(split, source)
        for row in table.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["row"]), splits


def archive(lengths: list[int], how: str) -> bytes:
    """Return a file of documents of so many random characters, each after a record that is not one."""
    random = Random(1)
    texts = (random.randbytes(length).hex() for length in lengths)
    documents = (conversion(number, text) for number, text in enumerate(texts))
    records = [[record("request", 0, b"GET"), document] for document in documents]
    return pack(sum(records, [record("warcinfo", 0, b"")]), how)


@pytest.mark.parametrize("first", [b"9" * 300, gzip.compress(b"a text", mtime=0), b""])
def test_a_file_is_cut_only_if_it_starts_with_a_compressed_record(
    tmp_path: Path, first: bytes
) -> None:
    """A file has the compression of its first bytes, whatever its name is."""
    path = tmp_path / "a.warc.zst"
    path.write_bytes(first + archive([400] * 20, "zstd"))
    splits = list(list_splits(Source(path=str(path), split_bytes=800)))
    assert (len(splits) == 1) == bool(first)


@given(
    st.lists(st.integers(0, 500), max_size=30),
    st.sampled_from(["gzip", "zstd", "one gzip", "plain", "zstd with dictionary"]),
    st.integers(1, 4000),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=3),
)
@example([400] * 20, "gzip", 800, [])
@example([400] * 20, "gzip", 800, [(0.3, 1), (0.7, 1)])
def test_any_split_size_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    how: str,
    split_bytes: int,
    damage: list[tuple[float, int]],
) -> None:
    content = bytearray(archive(lengths, how))
    for place, bits in damage:
        content[int(place * (len(content) - 1))] ^= bits
    path = tmp_path_factory.mktemp("cut") / f"a.warc.{'gz' if 'gzip' in how else 'zst'}"
    path.write_bytes(content)
    try:
        expected, (whole,) = rows_of(path, 1 << 30)
    except SourceError:  # the damage is in the first bytes, by which the compression is known
        return
    assert whole.is_whole
    assert rows_of(path, split_bytes)[0] == expected


def test_a_row_is_the_byte_at_which_its_member_starts(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    content = archive([300] * 40, "gzip")
    path.write_bytes(content)
    rows, splits = rows_of(path, 4000)
    assert len(splits) > 5
    assert len(rows) == 40
    for row in rows:
        member = gzip.decompress(content[row["row"] :])
        assert member.decode().split("\r\n")[2] == f"WARC-Record-ID: {row['id']}"


def test_a_record_is_found_again_by_its_row_with_any_split_size(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(archive([300] * 40, "gzip"))
    rows, _ = rows_of(path, 4000)
    info = storage.file_info(path.as_uri())
    assert info is not None
    file = schemas.InputFile(uri=info.uri, size=info.size, fingerprint=info.fingerprint, rows=40)
    wanted = {row["row"]: row["text"] for row in rows[::7]}
    for split_bytes in (1 << 30, 9000, 2000):
        source = Source(path=str(path), split_bytes=split_bytes)
        assert read_texts([file], file.uri, wanted.keys(), source) == (wanted, None)


def test_a_cut_inside_a_member_is_reported(tmp_path: Path) -> None:
    nested = archive([400] * 40, "gzip")  # a page that is itself a web archive, stored uncompressed
    member = gzip.compress(response(1, nested), 0, mtime=0)
    path = tmp_path / "a.warc.gz"
    path.write_bytes(member + archive([10], "gzip"))
    with pytest.raises(SourceError, match=r"was cut at byte \d+, where no member starts"):
        rows_of(path, 4000)
