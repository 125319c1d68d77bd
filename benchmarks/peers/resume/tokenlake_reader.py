"""Tokenlake: ``dataset.batches`` without a DataLoader, or read by torchdata's StatefulDataLoader."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State
from token_data import Corpus, write_table
from torchdata.stateful_dataloader import StatefulDataLoader

from etl.loader import TokenDataset

_SEQ_LEN = 8


def write(folder: Path) -> None:
    """Write documents that are one window each; the last label needs one more token."""
    tokens = np.repeat(np.arange(SAMPLES, dtype=np.int32), _SEQ_LEN)
    ends = np.arange(1, SAMPLES + 1) * _SEQ_LEN
    ends[-1] += 1
    write_table(Corpus(folder, np.append(tokens, tokens[-1]), ends, 0), folder)


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Load the state into the dataset if the ranks or workers changed, else into the loader."""
    dataset = TokenDataset(str(folder), seq_len=_SEQ_LEN, seed=SEED)
    if seat.variant == "batches":
        loader, stateful = dataset.batches(BATCH, prefetch=seat.workers), dataset
    else:
        loader = stateful = StatefulDataLoader(
            dataset.batches(BATCH), batch_size=None, num_workers=seat.workers
        )
    saved = seat.own(states) or {"epoch": 0}
    if states:
        same = saved["world"] == seat.world and saved["workers"] == seat.workers
        (stateful if same else dataset).load_state_dict(saved["loader"])
    for epoch in range(saved["epoch"], seat.epochs):
        for batch in loader:
            yield batch["input_ids"][:, 0].tolist(), partial(_state, stateful, seat, epoch)


def _state(loader: TokenDataset | StatefulDataLoader[Any], seat: Seat, epoch: int) -> State:
    place = {"epoch": epoch, "world": seat.world, "workers": seat.workers}
    return place | {"loader": loader.state_dict()}
