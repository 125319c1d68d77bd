"""The cache of remote ranges: entries are correct or missing, within the limit, for all processes."""

import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.errors import StorageError
from etl.loader import Remote, TokenDataset
from etl.loader.fetch.disk_cache import Cache
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, make_lake, rows_of

KEYS = st.sampled_from("ab")


def content(key: str, size: int = 1000) -> bytes:
    return key.encode() * size


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*"))


def open_as_remote(lake: str, folder: Path, cache_bytes: int = 1 << 20) -> TokenDataset:
    """Open a dataset that reads its local files like remote ones."""
    remote = Remote(request_bytes=600, cache=str(folder), cache_bytes=cache_bytes, attempts=1)
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    index = replace(dataset.windows.index, remote=remote)
    dataset.windows = replace(dataset.windows, index=index)
    return dataset


@given(st.lists(st.tuples(KEYS, st.sampled_from(["put", "get", "damage", "cut"])), max_size=40))
@settings(max_examples=60)
@example([("a", "put"), ("a", "damage"), ("a", "get")])
@example([("a", "put"), ("a", "cut"), ("a", "get"), ("a", "put"), ("a", "get")])
def test_a_cache_returns_the_stored_data_or_none(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("cache")
    writer, reader = Cache(str(folder), 1 << 20), Cache(str(folder), 1 << 20)  # as in two processes
    intact: set[str] = set()
    for key, step in steps:
        path = writer._path(key)
        if step == "put":
            writer.put(key, content(key))
            intact.add(key)
        elif step == "get":
            assert reader.get(key, 1000) == (content(key) if key in intact else None)
        elif path.exists():
            data = path.read_bytes()
            path.write_bytes(data[:500] + b"?" + data[501:] if step == "damage" else data[:-9])
            intact.discard(key)
    assert not [path for path in files(folder) if path.suffix == ".part"]


def test_a_file_under_the_name_of_another_key_is_ignored(tmp_path):
    cache = Cache(str(tmp_path), 1 << 20)
    cache.put("a", content("a"))
    cache._path("b").parent.mkdir(exist_ok=True)
    cache._path("a").replace(cache._path("b"))
    assert cache.get("b", 1000) is None
    assert files(tmp_path) == []  # it was deleted


def test_the_least_recently_used_entries_are_evicted(tmp_path):
    cache = Cache(str(tmp_path), 10_500)
    for age, key in enumerate("abcdefghi"):
        cache.put(key, content(key))
        os.utime(cache._path(key), (1000 + age, 1000 + age))
    assert cache.get("a", 1000) == content("a")  # used again, just now
    abandoned = tmp_path / "00" / "x.part"
    abandoned.parent.mkdir(exist_ok=True)
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (1000, 1000))
    with cache._path("b").open("rb") as reading:
        cache.put("j", content("j"))
        assert reading.read()[:1000] == content("b")  # an open file stays readable
    kept = {key for key in "abcdefghij" if cache.get(key, 1000) is not None}
    assert kept == set("acdefghij")
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 10_500
    assert not abandoned.exists()


def test_the_second_epoch_needs_only_the_cache(tmp_path):
    lake = make_lake(tmp_path, SMALL)
    dataset = open_as_remote(lake, tmp_path / "cache")
    expected = [expected_rows(dataset, SMALL, epoch) for epoch in (0, 1)]
    assert rows_of(dataset) == expected[0]
    for path in Path(lake, "tokens").glob("*.parquet"):
        path.unlink()
    dataset.set_epoch(1)
    assert rows_of(dataset) == expected[1]
    largest = max(files(tmp_path / "cache"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    dataset.set_epoch(2)
    with pytest.raises(StorageError, match=r"tokens/.*parquet: bytes .* cannot be read"):
        rows_of(dataset)


def read(dataset: TokenDataset, rank: int) -> None:
    """Read three epochs with a cache that is too small for the table."""
    for epoch in range(rank, rank + 3):
        dataset.set_epoch(epoch)
        assert rows_of(dataset) == expected_rows(dataset, SMALL, epoch)


def test_processes_share_a_cache_that_is_too_small(tmp_path):
    lake = make_lake(tmp_path, SMALL)
    context = multiprocessing.get_context("fork")
    folder = tmp_path / "cache"
    dataset = open_as_remote(lake, folder, cache_bytes=9000)
    processes = [context.Process(target=read, args=(dataset, rank)) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert 0 < sum(path.stat().st_size for path in files(folder)) <= 9000 + 2 * 3000
    assert not [path for path in files(folder) if path.suffix == ".part"]


def test_a_killed_process_does_not_damage_the_cache(tmp_path):
    lake = make_lake(tmp_path, SMALL)
    folder = tmp_path / "cache"
    dataset = open_as_remote(lake, folder, cache_bytes=9000)
    process = multiprocessing.get_context("fork").Process(target=read, args=(dataset, 0))
    process.start()
    while not files(folder) and process.is_alive():
        time.sleep(0.001)
    process.kill()
    process.join()
    read(dataset, 1)


def test_the_error_names_an_unusable_folder(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        StorageError, match=r"file/cache: the cache cannot be used(.|\n)*hint: set Remote\(cache="
    ):
        Cache(str(tmp_path / "file" / "cache"), 1000)
