"""LitData: chunks of 50 samples, read by its StreamingDataLoader. Ranks come from the environment."""

from pathlib import Path

from litdata import StreamingDataLoader, StreamingDataset, optimize
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State


def _sample(number: int) -> dict[str, int]:
    return {"id": number}


def write(folder: Path) -> None:
    """Write chunks with optimize()."""
    optimize(
        fn=_sample,
        inputs=list(range(SAMPLES)),
        output_dir=str(folder),
        chunk_size=50,
        num_workers=1,
    )


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Save and load the state of the StreamingDataLoader."""
    dataset = StreamingDataset(str(folder), shuffle=True, drop_last=False, seed=SEED)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=seat.workers)
    if states:
        loader.load_state_dict(seat.own(states))
    while loader.current_epoch < seat.epochs or loader.restore:
        for batch in loader:
            yield batch["id"].tolist(), loader.state_dict
