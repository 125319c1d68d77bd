"""torchdata: StatefulDataLoader over an iterable or a map-style dataset, or its nodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State, in_epoch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info
from torchdata.nodes import Batcher, Loader, ParallelMapper, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler


class Numbers(Dataset[int]):
    """A map-style dataset: sample i is i."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> int:
        return number


class Shuffled(IterableDataset[int]):
    """A share of a permutation for each worker, with a position that can be saved, as in the tutorial."""

    def __init__(self, seat: Seat) -> None:
        self.seat, self.epoch, self.position = seat, 0, 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        generator = torch.Generator().manual_seed(SEED + self.epoch)
        order = torch.randperm(SAMPLES, generator=generator).tolist()
        share = order[self.seat.rank * workers + worker :: self.seat.world * workers]
        while self.position < len(share):
            self.position += 1
            yield share[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        """Return the position in this worker's share."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at a position."""
        self.position = state["position"]


def write(folder: Path) -> None:
    """Write nothing: the samples are their numbers."""
    folder.mkdir()


def _open(seat: Seat) -> tuple[Any, Any]:
    """Return a loader, and what has the epoch."""
    if seat.variant == "iterable":
        dataset = Shuffled(seat)
        return StatefulDataLoader(dataset, BATCH, num_workers=seat.workers), dataset
    sampler = StatefulDistributedSampler(
        Numbers(), num_replicas=seat.world, rank=seat.rank, shuffle=True, seed=SEED
    )
    if seat.variant == "map-style":
        return StatefulDataLoader(
            Numbers(), BATCH, sampler=sampler, num_workers=seat.workers
        ), sampler
    node = Batcher(SamplerWrapper(sampler), BATCH, drop_last=False)
    mapper = ParallelMapper(node, default_collate, num_workers=seat.workers, method="process")
    return Loader(mapper), sampler


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Save and load the state of this rank's loader; the training saves the epoch."""
    del folder
    loader, shuffled = _open(seat)
    saved = seat.own(states) or {"epoch": 0}
    if "loader" in saved:
        loader.load_state_dict(saved["loader"])
    for epoch in range(saved["epoch"], seat.epochs):
        if isinstance(shuffled, StatefulDistributedSampler):
            shuffled.set_epoch(epoch)
        else:
            shuffled.epoch = epoch
        for batch in loader:
            yield (
                batch.tolist(),
                in_epoch(epoch, loader),
            )
