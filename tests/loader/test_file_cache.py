"""What opening computes is kept on the machine: footers of remote tables, and units of whole documents."""

import shutil

import numpy as np
import pytest

from etl.loader import Format, TokenDataset
from etl.loader.fetch.file_cache import cached_arrays
from etl.loader.fetch.range_requests import Ranges
from tests.helpers.paths import at, copy
from tests.helpers.token_tables import MIXED, SMALL, make_lake, rows_of

BEST_FIT = {"seq_len": 7, "shuffle": MIXED, "format": Format(pack="best_fit", pad_id=0)}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokenlake" / "loader"


def test_arrays_are_computed_once_and_again_if_they_are_damaged(cache):
    computed: list[int] = []

    def compute():
        computed.append(len(computed))
        return {"a": np.arange(3), "b": np.array([(1, True)], [("x", "i4"), ("y", "?")])}

    def read(key):
        return {
            name: values.tolist() for name, values in cached_arrays("kind", key, compute).items()
        }

    expected = {"a": [0, 1, 2], "b": [(1, True)]}
    assert [read([1, "x"]) for _ in range(3)] == [expected] * 3
    assert read([1, "y"]) == expected
    assert len(computed) == 2
    next(cache.glob("kind-*/a.npy")).write_bytes(b"damaged")
    assert [read([1, key]) for key in "xyxy"] == [expected] * 4
    assert len(computed) == 3


def test_a_cache_that_cannot_be_written_is_not_used(cache, monkeypatch):
    cache.parent.parent.write_text("")
    arrays = [cached_arrays("kind", 0, lambda: {"a": np.arange(3)}) for _ in range(2)]
    assert [part["a"].tolist() for part in arrays] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("options", [{"seq_len": 7, "shuffle": MIXED}, BEST_FIT])
def test_a_second_process_reads_no_footers_of_a_remote_table(
    cache, tmp_path, s3, monkeypatch, options
):
    lake = make_lake(tmp_path / "lake", SMALL)
    expected = rows_of(TokenDataset(lake, **options), 2)
    remote = f"{s3}/lake"
    copy(lake, at(remote))
    read, requests = Ranges.read, []

    def read_and_note(ranges, uri, start, stop, *, size):
        requests.append(uri)
        return read(ranges, uri, start, stop, size=size)

    monkeypatch.setattr(Ranges, "read", read_and_note)
    assert rows_of(TokenDataset(remote, **options), 2) == expected
    assert requests
    requests.clear()
    dataset = TokenDataset(remote, **options)
    assert requests == []
    assert rows_of(dataset, 2) == expected


def test_units_of_another_table_at_the_same_place_are_computed_again(cache, tmp_path):
    for number, shape in enumerate(([[[5, 2, 6, 1], [3]]], [[[9, 2, 6, 1], [3]]])):
        lake = make_lake(tmp_path / "lake", shape)
        alone = TokenDataset(make_lake(tmp_path / f"lake-{number}", shape), **BEST_FIT)
        assert rows_of(TokenDataset(lake, **BEST_FIT)) == rows_of(alone)
        shutil.rmtree(lake)
    assert len([*cache.iterdir()]) == 4
