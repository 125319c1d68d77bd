"""Grain: its DataLoader, or ElasticIterator, which is for resuming on another number of shards."""

from pathlib import Path

import grain
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State


def write(folder: Path) -> None:
    """Write nothing: the source is a range."""
    folder.mkdir()


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Save and load the state of this rank's iterator."""
    del folder
    iterator = iter(_data_loader(seat) if seat.variant == "DataLoader" else _elastic(seat))
    if states:
        iterator.set_state(seat.own(states))
    for batch in iterator:
        yield batch.tolist(), iterator.get_state


def _data_loader(seat: Seat) -> grain.DataLoader:
    sampler = grain.samplers.IndexSampler(SAMPLES, shuffle=True, seed=SEED, num_epochs=seat.epochs)
    return grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, SAMPLES, 1),
        sampler=sampler,
        operations=[grain.transforms.Batch(BATCH)],
        worker_count=seat.workers,
        shard_options=_shard(seat),
    )


def _elastic(seat: Seat) -> grain.experimental.ElasticIterator:
    dataset = grain.MapDataset.range(SAMPLES).seed(SEED).shuffle().repeat(seat.epochs)
    workers = grain.multiprocessing.MultiprocessingOptions(seat.workers) if seat.workers else None
    return grain.experimental.ElasticIterator(
        dataset, BATCH * seat.world, _shard(seat), multiprocessing_options=workers
    )


def _shard(seat: Seat) -> grain.sharding.ShardOptions:
    return grain.sharding.ShardOptions(seat.rank, seat.world)
