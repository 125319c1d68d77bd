"""The row groups of a shuffled table are read in the order of their keys, whatever file they are in."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.loader.fetch.footers import CHUNKS
from etl.loader.fetch.read_index import order_by_keys
from etl.loader.fetch.table_index import TableIndex
from etl.schemas.shuffled_files import Bucket

Groups = list[int]
"""The tokens of each row group of a file."""


@st.composite
def parts(draw: st.DrawFn) -> list[tuple[Bucket, Groups]]:
    """Return the files of a few parts, each with its own number of buckets, sorted by bucket."""
    files = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 4))
        for number in range(count):
            groups = draw(st.lists(st.integers(0, 9), max_size=5))
            files.append((Bucket(number, count), groups))
    return files


def index_of(files: list[tuple[Bucket, Groups]]) -> TableIndex:
    names = [
        f"{bucket.file_key('f' * 32)}-{i:012x}-0.parquet" for i, (bucket, _) in enumerate(files)
    ]
    tokens = np.array([n for _, groups in files for n in groups], np.int32)
    return TableIndex(
        url="",
        version=0,
        paths=np.array([name.encode() for name in names], np.bytes_),
        file_tokens=np.array([sum(groups) for _, groups in files], np.int64),
        file_bytes=np.arange(len(files)),
        first_group=np.cumsum([0, *(len(groups) for _, groups in files)]),
        group_tokens=tokens,
        group_documents=tokens,
        chunks=np.zeros(len(tokens), CHUNKS),
    )


def first_key(bucket: Bucket, groups: Groups, number: int) -> Fraction:
    """Return where the keys of a row group begin, from 0 to 1."""
    share = Fraction(sum(groups[:number]), max(sum(groups), 1))
    return (bucket.number + share) / bucket.count


@given(parts())
def test_row_groups_are_in_the_order_of_their_keys(files: list[tuple[Bucket, Groups]]) -> None:
    before = index_of(files)
    index = order_by_keys(before)
    numbers = range(len(before.group_tokens))
    read = [index.locate_group(number) for number in numbers]
    assert sorted(read) == sorted(map(before.locate_group, numbers))
    paths = [path.decode() for path in before.paths.tolist()]
    located = [(*files[paths.index(path)], group) for path, group in read]
    keys = [float(first_key(*each)) for each in located]
    assert np.all(np.diff(keys) >= -1e-12)
    assert index.group_tokens.tolist() == [groups[number] for _, groups, number in located]
    assert index.num_tokens == before.num_tokens
    sizes = [int(before.file_bytes[paths.index(path)]) for path, _ in read]
    assert [int(index.file_bytes[index.file(number)]) for number in numbers] == sizes


def test_a_table_of_one_part_keeps_its_index() -> None:
    index = index_of([(Bucket(0, 2), [3, 4]), (Bucket(1, 2), [5])])
    assert order_by_keys(index) is index
    swapped = replace(index, paths=index.paths[::-1])
    assert order_by_keys(swapped).group_tokens.tolist() == [5, 3, 4]
