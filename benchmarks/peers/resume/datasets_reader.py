"""Hugging Face datasets: streaming, read directly or, as its documentation shows, by a StatefulDataLoader."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import IterableDataset, load_dataset
from datasets.distributed import split_dataset_by_node
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State, in_epoch
from torchdata.stateful_dataloader import StatefulDataLoader

_PER_FILE = 50


def write(folder: Path) -> None:
    """Write Parquet files."""
    folder.mkdir()
    for first in range(0, SAMPLES, _PER_FILE):
        table = pa.table({"id": range(first, first + _PER_FILE)})
        pq.write_table(table, folder / f"{first:04d}.parquet")


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Shuffle the files, and the samples in a buffer of as many as the variant says."""
    files = sorted(map(str, folder.glob("*.parquet")))
    dataset = load_dataset(
        "parquet", data_files=files, split="train", streaming=True, cache_dir=f"{folder}-cache"
    )
    buffer, _, reader = seat.variant.partition(" ")
    dataset = dataset.shuffle(seed=SEED, buffer_size=int(buffer))
    dataset = split_dataset_by_node(dataset, seat.rank, seat.world)
    if reader == "DataLoader":
        loader = StatefulDataLoader(dataset, batch_size=BATCH, num_workers=seat.workers)
    else:
        loader = dataset.batch(BATCH)
    saved = seat.own(states) or {"epoch": 0}
    if "loader" in saved:
        loader.load_state_dict(saved["loader"])
    for epoch in range(saved["epoch"], seat.epochs):
        for part in (dataset, loader):
            if isinstance(part, IterableDataset):
                part.set_epoch(epoch)
        for batch in loader:
            yield [int(number) for number in batch["id"]], in_epoch(epoch, loader)
