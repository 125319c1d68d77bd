"""The loader in other processes: ranks of torch.distributed, imports, and messages of workers."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import torch.distributed
import torch.multiprocessing
from torch.utils.data import DataLoader, default_convert

from etl.loader import TokenDataset
from etl.loader.batches.worker_message import WorkerBatch
from tests.helpers.token_tables import MIXED, SMALL, make_lake, merged

ROOT = Path(__file__).parent.parent.parent


def train(rank: int, folder: str) -> None:
    """Read the share of one rank, with an all-reduce at every step."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    dataset = TokenDataset(f"{folder}/lake", seq_len=7, shuffle=MIXED)
    rows = []
    for batch in dataset.batches(2, drop_last=False):
        torch.distributed.all_reduce(batch["input_ids"].sum())
        rows += batch["input_ids"].tolist()
    Path(folder, f"{dataset.rank}.json").write_text(json.dumps(rows))
    torch.distributed.destroy_process_group()


def test_two_ranks_of_torch_distributed_share_the_epoch(tmp_path):
    lake = make_lake(tmp_path, SMALL)
    torch.multiprocessing.spawn(train, args=(str(tmp_path),), nprocs=2)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    alone = TokenDataset(lake, seq_len=7, shuffle=MIXED)
    expected = [sample["input_ids"].tolist() for sample in alone]
    assert merged(ranks, expected, 2) == expected[: len(expected) // 2 * 2]


def test_reading_tokens_imports_no_pipeline_libraries(tmp_path):
    lake = make_lake(tmp_path, SMALL)
    code = f"""
import sys
from etl.loader import Format, LossLog, TokenDataset
marks = Format(sample_numbers=True, document_ids=True)
dataset = TokenDataset({lake!r}, seq_len=10, format=marks)
batches = list(dataset.batches(2))
dataset.locate(3)
with LossLog(dataset, run="a") as log:
    log.write(0, batches[0], batches[0]["labels"].float())
heavy = ("dask", "distributed", "numba", "pandas", "polars", "tokenizers", "pyarrow.dataset")
print(len(batches), *sorted(set(sys.modules) & set(heavy)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["13"]


def test_a_message_unpickles_as_a_dictionary_of_equal_tensors():
    big = torch.tensor([1 << 40, -1])
    batch = {
        "ids": torch.arange(6).reshape(2, 3),
        "big": big,
        "ends": torch.zeros(2, dtype=torch.int32),
    }
    received = pickle.loads(pickle.dumps(WorkerBatch(batch)))
    assert type(received) is dict
    assert {name: values.dtype for name, values in received.items()} == {
        "ids": torch.int64,
        "big": torch.int64,
        "ends": torch.int32,
    }
    assert all(torch.equal(received[name], batch[name]) for name in batch)
    received["ids"] += 1  # writable, like a tensor of this process
    assert type(default_convert(WorkerBatch(batch))) is WorkerBatch  # a DataLoader keeps the type


def test_windows_are_sent_once_and_large_ones_too():
    windows = torch.randint(0, 1 << 20, (8, 2049))
    batch = {"input_ids": windows[:, :-1].contiguous(), "labels": windows[:, 1:].contiguous()}
    message = pickle.dumps(WorkerBatch(batch))
    assert len(message) < 4 * windows.numel() + 1000
    assert all(torch.equal(values, batch[n]) for n, values in pickle.loads(message).items())
    batch["labels"][0, 0] = -100  # no longer the same window
    received = pickle.loads(pickle.dumps(WorkerBatch(batch)))
    assert all(torch.equal(values, batch[name]) for name, values in received.items())


def test_rows_that_a_worker_collates_are_sent_as_bytes(tmp_path):
    dataset = TokenDataset(make_lake(tmp_path, SMALL), seq_len=7, shuffle=MIXED)
    loader = DataLoader(
        dataset, batch_size=2, num_workers=1, collate_fn=lambda rows: type(rows[0]).__name__
    )
    assert set(loader) == {"WorkerBatch"}
