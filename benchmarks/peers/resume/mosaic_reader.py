"""MosaicML Streaming: MDS shards, read by its StreamingDataLoader. Ranks come from the environment."""

from pathlib import Path

import torch.distributed
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory


def write(folder: Path) -> None:
    """Write shards of 1 KB."""
    with MDSWriter(out=str(folder), columns={"id": "int"}, size_limit=1024) as out:
        for number in range(SAMPLES):
            out.write({"id": number})


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Load the state of rank 0 on all ranks; a killed run leaves shared memory, which is removed first."""
    if seat.world > 1:
        torch.distributed.init_process_group("gloo")  # as a trainer does; the library uses it
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder), shuffle=True, shuffle_seed=SEED, batch_size=BATCH)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=seat.workers)
    if states:
        loader.load_state_dict(states[0])
    for _ in range(seat.epochs - (states[0]["epoch"] if states else 0)):
        for batch in loader:
            yield batch["id"].tolist(), loader.state_dict
