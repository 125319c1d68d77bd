"""Temporary files of the read-ahead: what was put is read, in bounded memory, and errors name the folder."""

import gc
import os
import re
import resource
import tempfile
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import StorageError
from etl.loader import Format, Remote, Shuffle, TokenDataset, TokenMixture
from etl.loader.fetch.scratch_file import PageFile, ScratchFile
from tests.helpers.token_tables import make_lake

PAGE = 1 << 14  # tokens
DESCRIPTORS = Path("/proc/self/fd")


def deleted_files() -> list[str]:
    """Return the files that this process has open, but that have no name."""
    targets = []
    for descriptor in DESCRIPTORS.iterdir():
        with suppress(FileNotFoundError):  # a thread closed it, or it listed the folder
            targets.append(str(descriptor.readlink()))
    # "pym" is memory that multiprocessing shares with workers; psutil reads files of /proc.
    others = re.compile(r".*/pym-|/proc/")
    return sorted(t for t in targets if t.endswith(" (deleted)") and not others.match(t))


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


def test_a_limit_of_the_size_of_files_is_reported():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"File too large(.|\n)*TMPDIR"):
            PageFile(8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("last", [2, 1000])
@pytest.mark.parametrize(
    "batch_format",
    [Format(), Format(pad_id=0), Format(pack="best_fit")],
    ids=["packed", "padded", "best_fit"],
)
@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="needs /proc")
def test_files_are_deleted_as_soon_as_a_pass_ends(tmp_path, batch_format, last):
    lake = make_lake(tmp_path, [[[60] * 3] * 8] * 2)
    shuffle = Shuffle(lanes=4, block_tokens=40, run_tokens=300)
    dataset = TokenDataset(lake, seq_len=5, shuffle=shuffle, format=batch_format)
    index = replace(dataset.windows.index, remote=Remote())
    dataset.windows = replace(dataset.windows, index=index)
    gc.collect()
    gc.disable()  # readers and lanes form cycles
    try:
        before = deleted_files()
        for _ in range(3):
            batches = iter(dataset.batches(4))
            for _, _ in zip(batches, range(last), strict=False):
                pass
            del batches
        assert deleted_files() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("is_mixture", [False, True])
def test_the_units_of_many_lanes_take_little_memory(tmp_path, is_mixture):
    lanes, unit_tokens = 16, 1 << 17
    lake = make_lake(tmp_path, [[[1000] * 4 for _ in range(2 * lanes * unit_tokens // 4000)]])
    shuffle = Shuffle(lanes=lanes, block_tokens=unit_tokens, run_tokens=unit_tokens // 8)
    dataset = TokenDataset(lake, seq_len=1000, shuffle=shuffle, format=Format(pack="best_fit"))
    mixture = TokenMixture({"only": dataset}, weights={"only": 1})
    tracemalloc.start()
    for _ in (mixture if is_mixture else dataset).batches(lanes):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < lanes * unit_tokens * 4


def test_many_remote_lanes_take_little_memory(tmp_path):
    lanes = 64
    lake = make_lake(tmp_path, [[[PAGE * 4] for _ in range(lanes)]])
    dataset = TokenDataset(lake, seq_len=100, shuffle=Shuffle(lanes=lanes, block_tokens=1))
    index = replace(dataset.windows.index, remote=Remote())
    dataset.windows = replace(dataset.windows, index=index)
    batches = iter(dataset.batches(lanes))
    next(batches)
    tracemalloc.start()
    for _, _ in zip(batches, range(400), strict=False):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    batches.close()
    assert peak < lanes * PAGE * 4 / 4  # of the bytes of one page each
