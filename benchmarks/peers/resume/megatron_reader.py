"""Megatron-core: GPTDataset, which fixes the order of all epochs, from the sample that is next.

The package has no sampler. The samples here are those of ``MegatronPretrainingSampler`` in Megatron-LM: the
state is the number of samples that all ranks have consumed.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from seat import BATCH, SAMPLES, SEED, Batches, Seat, State
from torch.utils.data import DataLoader

_SEQ_LEN = 8


def write(folder: Path) -> None:
    """Write documents that are one window each."""
    folder.mkdir()
    builder = IndexedDatasetBuilder(str(folder / "tokens.bin"), dtype=np.int32)
    for number in range(SAMPLES):
        builder.add_document(torch.full([_SEQ_LEN], number, dtype=torch.int32), [_SEQ_LEN])
    builder.finalize(str(folder / "tokens.idx"))


def _micro_batches(total: int, consumed: int, seat: Seat) -> Iterator[list[int]]:
    step = BATCH * seat.world
    for first in range(consumed, total - step + 1, step):
        own = first + seat.rank * BATCH
        yield list(range(own, own + BATCH))


def _open(folder: Path, seat: Seat) -> GPTDataset:
    config = GPTDatasetConfig(
        random_seed=SEED,
        sequence_length=_SEQ_LEN,
        blend=([str(folder / "tokens")], None),
        split="1,0,0",
        path_to_cache=f"{folder}-cache",
        tokenizer=SimpleNamespace(vocab_size=SAMPLES, eod=-2, pad=-1, unique_identifiers={}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        add_extra_token_to_sequence=False,
    )
    sizes = [SAMPLES * seat.epochs, 0, 0]
    return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[0]


def read(folder: Path, seat: Seat, states: list[State]) -> Batches:
    """Count consumed samples, as the trainer does."""
    dataset = _open(folder, seat)
    consumed = states[0] if states else 0
    sampler = _micro_batches(SAMPLES * seat.epochs, consumed, seat)
    for batch in DataLoader(dataset, batch_sampler=list(sampler), num_workers=seat.workers):
        consumed += BATCH * seat.world
        yield batch["tokens"][:, 0].tolist(), partial(int, consumed)
