"""Prefetch by a thread: same batches, same state, no thread left behind; and the time spent waiting."""

import threading
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from etl.errors import LoaderError
from etl.loader import Format, Shuffle, Timed, TokenDataset
from tests.helpers.paths import at
from tests.helpers.token_tables import MIXED, SMALL, expected_rows, make_lake, rows_of


def threads():
    return [t for t in threading.enumerate() if t.name == "tokenlake-prefetch"]


def open_dataset(lake):
    return TokenDataset(lake, seq_len=7, shuffle=MIXED)


@pytest.mark.parametrize("prefetch", [1, 2, 50])
def test_prefetch_keeps_order_and_state(lake, prefetch):
    dataset = open_dataset(lake)
    whole = [row[:-1] for row in expected_rows(dataset, SMALL)]
    rows, states = [], []
    for batch in dataset.batches(2, drop_last=False, prefetch=prefetch):
        rows += batch["input_ids"].tolist()
        states.append(
            dataset.state_dict()
        )  # of the batches returned, however far ahead the thread is
    assert rows == whole
    assert threads() == []
    for steps, state in enumerate(states[:-1], 1):
        resumed = open_dataset(lake)
        resumed.load_state_dict(state)
        assert [row[:-1] for row in rows_of(resumed)] == whole[2 * steps :]


def test_closing_the_iterator_ends_the_thread(lake):
    batches = iter(open_dataset(lake).batches(1, prefetch=2))
    next(batches)
    assert len(threads()) == 1
    batches.close()
    assert threads() == []


def test_an_error_in_the_thread_is_raised_in_the_reader(place):
    lake = make_lake(place, [[[20]] for _ in range(6)])
    dataset = TokenDataset(lake, seq_len=5, shuffle=False)
    file = at(lake) / "tokens" / "003.parquet"
    file.write_bytes(bytes(file.stat().st_size))
    rows: list[torch.Tensor] = []
    with pytest.raises(LoaderError, match=r"003.parquet.* cannot be (decoded|read)"):
        rows += (b["input_ids"] for b in dataset.batches(1, prefetch=4))
    assert threads() == []


def test_the_first_window_of_a_lane_needs_only_its_own_pages(place):
    shape = [[[20] * 400]]
    # Pages of 500 tokens, and the whole table in one block.
    lake = make_lake(place, shape, data_page_size=2000, compression="NONE")
    shuffle = Shuffle(lanes=1, block_tokens=10_000, run_tokens=1)
    dataset = TokenDataset(lake, seq_len=5, shuffle=shuffle)
    first = expected_rows(dataset, shape)[0]
    assert first[0] > 1000
    file = at(lake) / "tokens" / "000.parquet"
    content = bytearray(file.read_bytes())
    values = content.index(np.arange(4, dtype=np.int32).tobytes())
    content[values - 8 : values] = bytes([255] * 8)  # the levels of the first page
    file.write_bytes(content)
    batches = iter(dataset.batches(1))
    assert next(batches)["input_ids"].tolist() == [first[:-1]]
    with pytest.raises(LoaderError, match="row group 0 cannot be decoded"):
        next(batches)


def test_the_time_spent_waiting_is_counted(lake):
    dataset = open_dataset(lake)
    assert dataset.waited == 0
    counts = [dataset.waited for _ in dataset.batches(1)]
    assert counts == sorted(counts)
    assert counts[0] > 0
    before = dataset.waited
    for _ in dataset.batches(1):
        pass
    assert dataset.waited > before

    def slow():
        for item in range(3):
            time.sleep(0.01)
            yield item

    timed = Timed(slow())
    assert list(timed) == [0, 1, 2]
    assert timed.items == 3
    assert timed.waited >= 0.03


def test_a_negative_prefetch_is_refused(lake):
    with pytest.raises(LoaderError, match="prefetch must be at least 0, not -1"):
        open_dataset(lake).batches(2, prefetch=-1)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_on_a_device_keep_order_and_state(lake, prefetch):
    """On the CPU and on the device meta, which has no values; a GPU is used if there is one."""
    dataset = TokenDataset(lake, seq_len=7, shuffle=MIXED, format=Format.huggingface())
    expected = [*open_dataset(lake).batches(2, drop_last=False)]
    devices = ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        dataset.set_epoch(0)
        loader = dataset.batches(2, drop_last=False, prefetch=prefetch, device=device)
        for step, (batch, known) in enumerate(zip(loader, expected, strict=True), 1):
            assert batch["input_ids"].device.type == device
            assert isinstance(batch["max_length_q"], int)
            assert dataset.state_dict()["consumed"] == min(2 * step, dataset.num_samples)
            if device != "meta":
                assert batch["input_ids"].tolist() == known["input_ids"].tolist()
        dataset.load_state_dict({**dataset.state_dict(), "epoch": 0, "consumed": 0})
    assert threads() == []


def test_workers_do_not_copy_to_a_device(lake):
    loader = DataLoader(open_dataset(lake).batches(2, device="cpu"), batch_size=None, num_workers=1)
    with pytest.raises(LoaderError, match="cannot copy batches to a device"):
        next(iter(loader))
