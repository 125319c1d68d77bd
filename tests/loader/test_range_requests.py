"""Tables in an object store: the same samples despite faults, few requests, and a limited wait."""

import os
import shutil
import subprocess
import sys
import time
from copy import copy as copy_of
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from etl.delta.table import Table
from etl.errors import LoaderError, StorageError, TokenlakeError
from etl.lake.table_specs import SPECS
from etl.loader import FillInTheMiddle, Format, Remote, Shard, Shuffle, TokenDataset
from etl.loader.fetch.footers import CHUNKS
from etl.loader.fetch.range_requests import Ranges, read_footer
from etl.loader.fetch.request_parts import RequestParts
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochPlan
from etl.parquet.data_file import DataFileWriter
from etl.schemas import TOKENIZED, TOKENS
from tests.helpers.paths import at, copy
from tests.helpers.s3_proxy import FAULTS, always, faulty, seeded
from tests.helpers.struck_tables import strike
from tests.helpers.token_tables import (
    MIXED,
    SHAPES,
    SMALL,
    WRITERS,
    expected_rows,
    group_tokens,
    make_lake,
    rows_of,
)

SMALL_REQUESTS = Remote(request_bytes=600, ahead_bytes=2000, timeout_s=5)


def upload(lake: str, bucket: str) -> str:
    """Copy a lake into a bucket; the paths in its log are relative."""
    return str(copy(lake, at(f"{bucket}/lake")))


def write_marked_lake(folder: Path, lengths: list[int]) -> str:
    """Write a token table with marks of its pages, as `etl run` does."""
    table = Table.create(str(folder / "tokens"), TOKENS, SPECS["tokens"].layout)
    layout = replace(SPECS["tokens"].layout, page_bytes=1 << 13)
    writer = DataFileWriter(table.url, TOKENS, layout, name="a" * 32)
    first = 0
    for row, length in enumerate(lengths):
        tokens = list(range(first, first + length))
        first += length
        columns = {"id": str(row), "source": "s3://in/a.jsonl", "row": row, "num_tokens": length}
        rows = [{**columns, "tokens": tokens, "token_end": 0}]
        writer.append(pa.Table.from_pylist(rows, schema=TOKENIZED))
    table.commit(writer.close(), transactions={})
    return str(folder)


def as_if_remote(dataset: TokenDataset, remote: Remote) -> TokenDataset:
    """Make a dataset read its local files like remote ones."""
    index = replace(dataset.windows.index, remote=remote)
    dataset.windows = replace(dataset.windows, index=index)
    return dataset


@pytest.fixture
def remote_lake(s3, lake):
    return upload(lake, s3)


@settings(max_examples=25)
@given(
    SHAPES,
    st.tuples(
        st.integers(1, 30),
        st.sampled_from([True, False, MIXED, Shuffle(lanes=2, block_tokens=30, run_tokens=200)]),
        st.sampled_from([Format(), Format(document_ids=True), Format(pad_id=0)]),
        st.sampled_from([None, FillInTheMiddle(prefix=1, suffix=2, middle=3)]),
    ),
    st.sampled_from([*WRITERS]),
    st.tuples(st.sampled_from([0, 300, 5000]), st.sampled_from([1, 700, 1 << 20])),
)
def test_read_ahead_changes_no_sample(tmp_path_factory, shape, opening, writer, sizes):
    seq_len, shuffle, batch_format, transform = opening
    assume(sum(group_tokens(shape)) > seq_len)
    lake = make_lake(tmp_path_factory.mktemp("table"), shape, **WRITERS[writer])

    def open_dataset():
        options = {"seq_len": seq_len, "shuffle": shuffle, "format": batch_format}
        return TokenDataset(lake, transform=transform, **options)

    ahead_bytes, request_bytes = sizes
    local = open_dataset()
    remote = as_if_remote(
        open_dataset(), Remote(ahead_bytes=ahead_bytes, request_bytes=request_bytes)
    )
    for dataset in (local, remote):
        dataset.load_state_dict(dataset.state_dict(consumed=local.num_samples // 3))
    rows = [
        [{k: v.tolist() for k, v in b.items()} for b in d.batches(3, drop_last=False)]
        for d in (local, remote)
    ]
    assert rows[0] == rows[1]


def test_samples_may_be_taken_in_any_order(tmp_path):
    shape = [[[30] * 2] * 6] * 3
    lake = make_lake(tmp_path, shape)
    shuffle = Shuffle(lanes=2, block_tokens=20, run_tokens=400)
    local = TokenDataset(lake, seq_len=7, shuffle=shuffle)
    remote = as_if_remote(
        TokenDataset(lake, seq_len=7, shuffle=shuffle), Remote(request_bytes=1, ahead_bytes=4000)
    )
    samples = [0, 1, 40, 41, 120, 3, 2, 90, *range(150, -1, -7), *range(0, 150, 11)]
    labels = []
    for dataset in (local, remote):
        with dataset.reader(0) as reader:
            labels.append([reader.batch([sample])["labels"].tolist() for sample in samples])
    assert labels[0] == labels[1]


def test_read_ahead_stays_within_the_budget_and_serves_the_lane_that_runs_out_first(tmp_path):
    lake = make_lake(tmp_path, [[[60] * 3] * 8] * 4)
    dataset = as_if_remote(
        TokenDataset(lake, seq_len=5, shuffle=Shuffle(lanes=4, block_tokens=40, run_tokens=300)),
        Remote(ahead_bytes=9000, request_bytes=2000),
    )
    counts, late = set(), []
    with dataset.reader(0) as reader:
        files = reader.files
        for sample in range(4, dataset.num_samples):
            reader.batch([0, 1, 2, 3, 4] if sample == 4 else [sample])
            ahead = [request.part for lane in files._lanes for request in lane.ahead]
            sizes = [part.stop - part.start for part in ahead]
            assert sum(sizes) == 9000 - files._free_bytes <= 9000
            assert max(sizes, default=0) <= 2000
            counts.add(len(ahead))
            last = [lane.ahead[-1].part.end for lane in files._lanes if lane.ahead]
            waiting = [lane.next_part.end for lane in files._lanes if lane.next_part]
            # Of the parts of a lane, each was requested before any that is needed later.
            late.append(bool(last and waiting) and min(waiting) < max(last))
        assert len(files._lanes) == 4
        assert ahead == []
        lanes = list(files._lanes)
    assert max(counts) >= 3
    assert (len(late) > 100, sum(late)) == (True, 0)
    assert [lane._held for lane in lanes] == [[]] * 4  # closing releases the parts


@given(SHAPES, st.integers(1, 200), st.integers(64, 5000), st.data())
@example([[[0, 1, 0, 0, 0, 5, 40, 40], [1], []]], 2, 64, None)
@settings(max_examples=30)
def test_parts_cover_a_lane_and_depend_only_on_the_table(
    tmp_path_factory, shape, run_tokens, part_bytes, data
):
    assume(sum(group_tokens(shape)) > 1)
    lake = make_lake(tmp_path_factory.mktemp("table"), shape)
    dataset = TokenDataset(lake, seq_len=1, shuffle=Shuffle(run_tokens=run_tokens))
    index, plan = dataset.windows.index, dataset._plan
    runs = np.append(plan.runs(), len(index.group_tokens))

    def parts_of(groups):
        tokens = int(index.group_tokens[groups].sum())
        parts = RequestParts(index, runs, groups, first=0, last=tokens, part_bytes=part_bytes)
        return list(parts.parts(int(groups[0])))

    groups = plan.stream(0).groups
    whole = parts_of(groups)
    assert all(0 < part.stop - part.start <= part_bytes for part in whole)
    assert [part.end for part in whole] == sorted(part.end for part in whole)
    for group in groups.tolist():
        chunk = index.chunk(group, "tokens")
        own = sorted(part for part in whole if part.file == index.file(group))
        stop = chunk.start + chunk.size
        ranges = [range(max(part.start, chunk.start), min(part.stop, stop)) for part in own]
        ranges = [part for part in ranges if part]
        assert ranges[0].start == chunk.start
        assert ranges[-1].stop == stop
        assert all(a.stop == b.start for a, b in pairwise(ranges))
    first = 0 if data is None else data.draw(st.integers(0, len(groups) - 1))
    cuts = {part[:3] for part in whole}
    assert {part[:3] for part in parts_of(groups[first:])[1:]} <= cuts


@pytest.mark.parametrize("bytes_per_token", [1.1, 1.7])
def test_requests_to_a_large_table_have_four_to_eight_megabytes(bytes_per_token):
    counts = np.random.default_rng(0).integers(1_300_000, 1_500_000, 20 * 85, dtype=np.int32)
    sizes = (counts * bytes_per_token).astype(np.int64).reshape(20, 85)
    chunks = np.zeros(len(counts), CHUNKS)
    chunks["tokens"]["start"] = (np.cumsum(sizes, axis=1) - sizes).ravel()
    chunks["tokens"]["size"] = sizes.ravel()
    chunks["num_tokens"]["codec"] = -1
    files = counts.reshape(20, 85).sum(axis=1, dtype=np.int64)
    index = TableIndex(
        url="s3://lake/tokens",
        version=1,
        paths=pa.array(map(str, range(20))),
        file_tokens=files,
        file_bytes=sizes.sum(axis=1),
        first_group=np.arange(0, 20 * 85 + 1, 85),
        group_tokens=counts,
        group_documents=counts,
        chunks=chunks,
    )
    total = int(files.sum())
    plan = EpochPlan(counts, 2048, 0, Shuffle(lanes=16).resolved(total))
    groups, request_bytes = plan.stream(0).groups, Remote().request_bytes
    runs = np.append(plan.runs(), len(counts))
    parts = RequestParts(index, runs, groups, first=0, last=total, part_bytes=request_bytes)
    requests = np.array([part.stop - part.start for part in parts.parts(int(groups[0]))])
    assert requests.sum() == sizes.sum()
    assert np.median(requests) > 4e6
    assert requests.max() <= request_bytes
    assert np.mean(requests < 4e6) < 0.2  # at the borders of files and runs


@pytest.mark.parametrize(
    ("seed", "prefetch"),
    [
        (1, 0),
        pytest.param(2, 2, marks=pytest.mark.slow),
        pytest.param(1, 2, marks=pytest.mark.slow),
        pytest.param(2, 0, marks=pytest.mark.slow),
    ],
)
def test_an_epoch_through_a_failing_store_is_exact(
    remote_lake, s3_endpoint, monkeypatch, seed, prefetch
):
    remote = Remote(request_bytes=600, ahead_bytes=2000, timeout_s=1.5)
    dataset = TokenDataset(remote_lake, seq_len=7, shuffle=MIXED, remote=remote)
    with faulty(s3_endpoint, seeded(seed, share=0.35, most=2)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        batches = dataset.batches(2, drop_last=False, prefetch=prefetch)
        rows = [row for batch in batches for row in batch["input_ids"].tolist()]
        assert len({r.fault for r in proxy.requests}) > 3
    assert rows == [row[:-1] for row in expected_rows(dataset, SMALL)]


@pytest.mark.parametrize(("method", "workers"), [("fork", 2), ("spawn", 1)])
@pytest.mark.slow
def test_workers_read_a_remote_table(remote_lake, tmp_path, method, workers):
    remote = replace(SMALL_REQUESTS, cache=str(tmp_path / "cache"))
    dataset = TokenDataset(remote_lake, seq_len=7, shuffle=MIXED, remote=remote)
    next(
        iter(copy_of(dataset).batches(2))
    )  # this process has a client, and threads, before it forks
    batches = dataset.batches(2, drop_last=False)
    loader = DataLoader(
        batches, batch_size=None, num_workers=workers, multiprocessing_context=method
    )
    rows = [row for batch in loader for row in batch["input_ids"].tolist()]
    assert rows == [row[:-1] for row in expected_rows(dataset, SMALL)]


@pytest.mark.slow
def test_forked_workers_print_nothing(remote_lake):
    code = f"""
from copy import copy
from torch.utils.data import DataLoader
from etl.loader import TokenDataset
dataset = TokenDataset({remote_lake!r}, seq_len=7)
next(iter(copy(dataset).batches(2)))
loader = DataLoader(
    dataset.batches(2), batch_size=None, num_workers=2, multiprocessing_context="fork"
)
print(len(list(loader)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("18\n", "")


def test_neighbours_are_fetched_together_and_only_once(s3, s3_endpoint, tmp_path, monkeypatch):
    shape = [[[50] * 4] * 10] * 2
    lake = upload(make_lake(tmp_path, shape), s3)
    for request_bytes in (1 << 20, 700):
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
        remote = Remote(request_bytes=request_bytes)
        dataset = TokenDataset(lake, seq_len=10, shuffle=False, remote=remote)
        chunks = dataset.windows.index.chunks
        first, last = chunks["tokens"]["start"][::10], chunks["num_tokens"][9::10]
        spans = last["start"] + last["size"] - first
        parts = int(np.ceil(spans / request_bytes).sum())
        with faulty(s3_endpoint, always("500", path="nothing")) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            assert len(rows_of(dataset, 4)) == dataset.num_samples
            gets = [(get.path, get.range) for get in proxy.gets(".parquet")]
        assert len(gets) == len(set(gets)) == parts  # and no footers
        assert parts == 2 or request_bytes == 700


@pytest.mark.parametrize("world_size", [1, 4])
def test_the_bytes_at_the_border_of_lanes_are_not_fetched_twice(tmp_path, monkeypatch, world_size):
    fetched = 0
    read = Ranges.read

    def read_and_count(ranges, uri, start, stop, *, size):
        nonlocal fetched
        fetched += stop - start if stop <= data else 0  # without the footer
        return read(ranges, uri, start, stop, size=size)

    monkeypatch.setattr(Ranges, "read", read_and_count)
    lake = make_lake(tmp_path, [[[400]] * 200])
    file = Path(lake, "tokens", "000.parquet")
    data = file.stat().st_size - 8 - pq.read_metadata(file).serialized_size
    shuffle = Shuffle(lanes=4, run_tokens=12_000, block_tokens=100)  # lanes begin inside of runs
    for rank in range(world_size):
        shard = Shard(rank=rank, world_size=world_size)
        dataset = TokenDataset(lake, seq_len=10, shuffle=shuffle, shard=shard)
        rows_of(as_if_remote(dataset, Remote(request_bytes=1 << 20)), 4)
    # Each of four lanes begins in a row group of which another one reads the front.
    assert 0.5 * data < fetched < 1.1 * data


@pytest.mark.parametrize("struck", [0, 1, 20])
def test_lanes_that_begin_in_a_row_group_fetch_only_their_pages(s3, tmp_path, monkeypatch, struck):
    fetched = []
    read = Ranges.read

    def read_and_count(ranges, uri, start, stop, *, size):
        fetched.append((uri, start, stop))
        return read(ranges, uri, start, stop, size=size)

    monkeypatch.setattr(Ranges, "read", read_and_count)
    local_lake = write_marked_lake(tmp_path / "lake", [300] * 200)
    strike(f"{local_lake}/tokens", {("s3://in/a.jsonl", 7 * row) for row in range(struck)})
    lake = upload(local_lake, s3)
    settings = {"seq_len": 100, "shuffle": Shuffle(lanes=8, run_tokens=1, block_tokens=1)}
    local = TokenDataset(local_lake, **settings)
    expected = rows_of(local, 8)
    dataset = TokenDataset(lake, **settings)
    assert len(dataset.windows.index.group_tokens) == 1
    fetched.clear()
    assert rows_of(dataset, 8) == expected
    in_ranks = []
    for rank in range(4):
        shard = Shard(rank=rank, world_size=4)
        dataset = TokenDataset(lake, **settings, shard=shard)
        in_ranks += rows_of(dataset, 2)
    assert len(in_ranks) == len(expected) // 4 * 4
    assert sorted(in_ranks) == sorted(row for row in expected if row in in_ranks)
    size = int(local.windows.index.chunks["tokens"]["size"].sum())
    data = [stop - start for _, start, stop in fetched if stop <= size]
    # Twice the table, and pages at the ends of lanes; without marks, nine times the table.
    assert 2 * size < sum(data) < 3 * size


@pytest.mark.slow
def test_a_failing_store_is_reported_with_file_and_range(remote_lake, s3_endpoint, monkeypatch):
    remote = replace(SMALL_REQUESTS, timeout_s=0.3, attempts=2)
    names = r"s3://.*/lake/tokens/000\.parquet: bytes [\d,]+ to [\d,]+ cannot be read"
    dataset = TokenDataset(remote_lake, seq_len=7, shuffle=False, remote=remote)
    with faulty(s3_endpoint, always("500"), pause_s=2) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        for fault in FAULTS:
            proxy.schedule = always(fault, path="000.parquet")
            begin = time.monotonic()
            last = {"stall": "Timeout", "slow": "Timeout"}.get(fault, "")
            message = rf"{names} after 2 attempts; the last error: .*{last}"
            with pytest.raises(StorageError, match=message):
                rows_of(dataset)
            assert time.monotonic() - begin < 30
        proxy.schedule = always("503")
        with pytest.raises(
            StorageError, match=r"tokens/000\.parquet: (.|\n)*hint: run `etl verify`"
        ):
            read_footer(f"{remote_lake}/tokens/000.parquet", 1900, Ranges(remote))


def test_missing_and_damaged_files_are_reported(s3, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    local_lake = make_lake(tmp_path, SMALL)
    lake = upload(local_lake, s3)
    remote = replace(SMALL_REQUESTS, attempts=2)
    dataset = TokenDataset(lake, seq_len=7, shuffle=False, remote=remote)
    files = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    path = f"{lake}/tokens/002.parquet"
    content = Path(local_lake, "tokens", "002.parquet").read_bytes()

    def open_again():
        return TokenDataset(lake, seq_len=7, shuffle=False, remote=remote)

    def open_without_cache():
        shutil.rmtree(cache)
        return open_again()

    for damage in (
        lambda: files.rm(path),
        lambda: files.pipe(path, content[: len(content) // 3]),
        lambda: files.pipe(path, content[:4] + bytes(len(content) - 8) + b"PAR1"),
    ):
        damage()
        for use in (lambda: rows_of(dataset), lambda: rows_of(open_again()), open_without_cache):
            with pytest.raises(TokenlakeError, match=r"002\.parquet: (.|\n)*etl verify") as caught:
                use()
        del caught
        files.pipe(path, content)
        open_again()  # fills the cache
    Path(local_lake, "tokens", "002.parquet").unlink()
    with pytest.raises(
        StorageError, match=r"002\.parquet: cannot be read(.|\n)*hint: run `etl ver"
    ):
        TokenDataset(local_lake, seq_len=7)


@pytest.mark.parametrize("name", ["request_bytes", "cache_bytes", "timeout_s", "attempts"])
def test_settings_must_be_positive(name):
    with pytest.raises(LoaderError, match=f"{name} of Remote must be positive, not 0"):
        Remote(**{name: 0})
