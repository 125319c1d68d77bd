"""LanceDB: its StreamingDataset, which is built on permutations, and its StreamingDataLoader."""

from pathlib import Path

import lancedb
from lancedb.streaming import StreamingDataLoader, StreamingDataset
from seat import SAMPLES, SEED, Batches, Seat, State

_SPLITS = (
    12  # a multiple of ranks times workers; an epoch leaves out the 4 samples that do not divide
)
_BATCH = 12  # a multiple of the splits of a worker: a state needs whole rounds over the splits


def write(folder: Path) -> None:
    """Write a table."""
    lancedb.connect(folder).create_table("samples", [{"id": number} for number in range(SAMPLES)])


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Merge the states of all ranks, and give the result to each."""
    table = lancedb.connect(folder).open_table("samples")
    state = StreamingDataset.merge_state_dicts(states) if states else None
    for epoch in range(state["epoch"] if state else 0, seat.epochs):
        dataset = StreamingDataset(
            table,
            num_splits=_SPLITS,
            shuffle_seed=SEED,
            epoch=epoch,
            rank=seat.rank,
            world_size=seat.world,
        )
        if state is not None:
            dataset.load_state_dict(state)
            state = None
        options = {"multiprocessing_context": "spawn"} if seat.workers else {}
        loader = StreamingDataLoader(
            dataset, batch_size=_BATCH, num_workers=seat.workers, **options
        )
        for batch in loader:
            yield batch["id"].tolist(), dataset.state_dict
