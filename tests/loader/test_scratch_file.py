"""Temporary files of the read-ahead: what was put is read, in bounded memory, and errors name the folder."""

import os
import tempfile
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import StorageError
from etl.loader import Remote, Shuffle, TokenDataset
from etl.loader.fetch.scratch_file import PageFile, ScratchFile
from tests.helpers.token_tables import make_lake

PAGE = 1 << 14  # tokens


@given(st.lists(st.binary(min_size=1, max_size=50) | st.integers(0, 9), max_size=40))
def test_slots_hold_what_was_put_until_they_are_freed(steps):
    file = ScratchFile(50)
    held: list[tuple[int, bytes]] = []
    most = 0
    for step in steps:
        if isinstance(step, bytes):
            held.append((file.put(step), step))
        elif held:
            file.free(held.pop(step % len(held))[0])
        most = max(most, len(held))
        for number, data in held:
            assert file.read(number, 0, len(data)) == data
            assert file.read(number, 1, len(data)) == data[1:]
    assert all(number < most for number, _ in held)
    file.close()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=20))
def test_each_lane_keeps_its_last_page(pages):
    file, last = PageFile(3), {}
    for first, (lane, size) in enumerate(pages):
        tokens = np.arange(first, first + size, dtype=np.int32)
        last[lane] = (tokens, file.put(lane, tokens))
        for expected, found in last.values():
            np.testing.assert_array_equal(found, expected)
    file.close()


def test_a_page_of_any_size_is_kept():
    tokens = np.arange(1 << 19, dtype=np.int32)  # 2 MB
    file = PageFile(1)
    np.testing.assert_array_equal(file.put(0, tokens), tokens)
    np.testing.assert_array_equal(file.put(0, tokens[: 1 << 18]), tokens[: 1 << 18])
    file.close()


def test_a_missing_folder_for_temporary_files_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(StorageError, match=r"temporary file(.|\n)*TMPDIR"):
        ScratchFile(10)


def test_a_full_disk_is_reported(monkeypatch):
    file, pages = ScratchFile(10), PageFile(1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageError, match=r"No space left(.|\n)*ahead_bytes"):
        file.put(b"abc")
    with pytest.raises(StorageError, match="No space left"):
        pages.put(0, np.arange(4, dtype=np.int32))
    file.close()
    pages.close()


def test_many_remote_lanes_take_little_memory(tmp_path):
    lanes = 64
    lake = make_lake(tmp_path, [[[PAGE * 4] for _ in range(lanes)]])
    dataset = TokenDataset(lake, seq_len=100, shuffle=Shuffle(lanes=lanes, block_tokens=1))
    dataset._index = replace(dataset._index, remote=Remote())
    batches = iter(dataset.batches(lanes))
    next(batches)
    tracemalloc.start()
    for _, _ in zip(batches, range(400), strict=False):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    batches.close()
    assert peak < lanes * PAGE * 4 / 4  # of the bytes of one page each
