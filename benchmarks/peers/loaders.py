"""The loaders that loader_vs_peers.py compares; each runs in a separate environment.

A loader is two functions: one writes the data; the other opens it and returns batches and, for a number of
batches read, the state to resume from.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

BATCH, WINDOW, SEED = 8, 2049, 0
CHUNK_TOKENS = 16 << 20  # per file or shard: 64 MB, as in the peers' examples

State = Any
Opened = tuple[Iterable[Any], Callable[[int], State]]


class Rest(Sampler[int]):
    """A permutation of all windows from a position on: how a map-style dataset resumes."""

    def __init__(self, size: int, state: State) -> None:
        self.order = np.random.default_rng(SEED).permutation(size)[(state or 0) * BATCH :]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order.tolist())

    def __len__(self) -> int:
        return len(self.order)


def _map_style(dataset: Any, workers: int, state: State) -> Opened:
    sampler = Rest(len(dataset), state)
    loader = DataLoader(
        dataset, batch_size=BATCH, sampler=sampler, num_workers=workers, drop_last=True
    )
    return loader, lambda done: done


class Windows(Dataset[torch.Tensor]):
    """A flat file of int32 tokens, mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.tokens = np.memmap(path, np.int32, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) // WINDOW

    def __getitem__(self, window: int) -> torch.Tensor:
        found = self.tokens[window * WINDOW : (window + 1) * WINDOW]
        return torch.from_numpy(found.astype(np.int64))


def write_memmap(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write one flat file."""
    del ends
    tokens.tofile(folder / "tokens.bin")


def open_memmap(folder: Path, workers: int, state: State) -> Opened:
    """Open the minimum: no versions, no documents, 4 bytes per token on disk."""
    return _map_style(Windows(folder / "tokens.bin"), workers, state)


def open_tokenlake(folder: Path, workers: int, state: State) -> Opened:
    """Open Tokenlake's table; a batch is input_ids and labels, 8 x 2048 each."""
    from etl.loader import TokenDataset

    dataset = TokenDataset(str(folder), seq_len=WINDOW - 1, seed=SEED)
    if state is not None:
        dataset.load_state_dict(state)
    batches = dataset.batches(BATCH)
    loader = DataLoader(batches, batch_size=None, num_workers=workers) if workers else batches
    return loader, lambda done: dataset.state_dict(samples_seen=done * BATCH)


def open_mosaic(folder: Path, workers: int, state: State) -> Opened:
    """Open MosaicML Streaming: MDS shards of packed windows, with its global shuffle (py1e)."""
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(
        local=str(folder),
        shuffle=True,
        shuffle_seed=SEED,
        batch_size=BATCH,
        allow_unsafe_types=True,
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True)
    if state is not None:
        loader.load_state_dict(state)
    return _field(loader, "tokens"), lambda _: loader.state_dict()


def write_mosaic(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write windows of int32 as fixed-size arrays; compression would be undone once, into a local copy."""
    del ends
    from streaming import MDSWriter

    columns = {"tokens": f"ndarray:int32:{WINDOW}"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=CHUNK_TOKENS * 4) as out:
        for window in range(len(tokens) // WINDOW):
            out.write({"tokens": np.array(tokens[window * WINDOW : (window + 1) * WINDOW])})


def write_litdata(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write concatenated documents with LitData's optimize()."""
    from litdata import TokensLoader, optimize

    cuts = np.searchsorted(ends, np.arange(CHUNK_TOKENS, len(tokens), CHUNK_TOKENS))
    spans = list(pairwise([0, *ends[cuts].tolist(), len(tokens)]))
    path, names = str(folder.parent / "corpus.bin"), str(folder)
    np.asarray(tokens).tofile(path)
    optimize(
        fn=_Documents(path, ends),
        inputs=spans,
        output_dir=names,
        chunk_size=CHUNK_TOKENS // WINDOW * WINDOW,
        item_loader=TokensLoader(block_size=WINDOW),
        num_workers=1,
    )
    Path(path).unlink()


class _Documents:
    """The function that LitData's optimize calls for each range: its documents as tensors."""

    def __init__(self, path: str, ends: np.ndarray) -> None:
        self.path, self.ends = path, ends

    def __call__(self, span: tuple[int, int]) -> Iterator[torch.Tensor]:
        tokens = np.memmap(self.path, np.int32, mode="r")
        first, last = np.searchsorted(self.ends, span, side="right")
        begin = span[0]
        for end in [*self.ends[first:last].tolist(), span[1]]:
            if end > begin:
                yield torch.from_numpy(np.array(tokens[begin:end]))
            begin = end


def open_litdata(folder: Path, workers: int, state: State) -> Opened:
    """Open LitData: TokensLoader over 64 MB chunks, shuffled by chunk, then by window in each."""
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    dataset = StreamingDataset(
        str(folder), item_loader=TokensLoader(block_size=WINDOW), shuffle=True, seed=SEED
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True)
    if state is not None:
        loader.load_state_dict(state)
    return _as_int64(loader), lambda _: loader.state_dict()


def write_huggingface(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write Parquet files of packed windows, 1,000 in a row group."""
    del ends
    import pyarrow as pa
    import pyarrow.parquet as pq

    windows, per_file = len(tokens) // WINDOW, CHUNK_TOKENS // WINDOW
    for first in range(0, windows, per_file):
        part = np.array(tokens[first * WINDOW : min(first + per_file, windows) * WINDOW])
        lists = pa.ListArray.from_arrays(
            pa.array(np.arange(0, len(part) + 1, WINDOW, dtype=np.int32)), pa.array(part)
        )
        path = folder / f"{first:08d}.parquet"
        pq.write_table(pa.table({"tokens": lists}), path, row_group_size=1000)


def open_huggingface(folder: Path, workers: int, state: State) -> Opened:
    """Open HF datasets: streaming Parquet, shuffled shards and a buffer of 1,000 windows (its default)."""
    from datasets import load_dataset

    files = sorted(map(str, folder.glob("*.parquet")))
    dataset = load_dataset(
        "parquet", data_files=files, split="train", streaming=True, cache_dir=str(folder / "cache")
    )
    dataset = dataset.shuffle(seed=SEED, buffer_size=1000).with_format("torch")
    if state is not None:
        dataset.load_state_dict(state)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True)
    return _field(loader, "tokens"), lambda _: dataset.state_dict()


def write_megatron(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write one .bin and .idx of packed windows."""
    del ends
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "tokens.bin"), dtype=np.int32)
    for window in range(len(tokens) // WINDOW):
        item = torch.from_numpy(np.array(tokens[window * WINDOW : (window + 1) * WINDOW]))
        builder.add_document(item, [WINDOW])
    builder.finalize(str(folder / "tokens.idx"))


def open_megatron(folder: Path, workers: int, state: State) -> Opened:
    """Open Megatron-core: the memory-mapped indexed dataset with a shuffled sampler."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset = IndexedDataset(str(folder / "tokens"))

    def collate(items: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.stack(items).astype(np.int64))

    sampler = Rest(len(dataset), state)
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        sampler=sampler,
        num_workers=workers,
        drop_last=True,
        collate_fn=collate,
    )
    return loader, lambda done: done


def write_megatron_gpt(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write one .bin and .idx of whole documents, as its tools do."""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "tokens.bin"), dtype=np.int32)
    for start, end in pairwise([0, *ends.tolist()]):
        if end > start:
            builder.add_document(torch.from_numpy(np.array(tokens[start:end])), [end - start])
    builder.finalize(str(folder / "tokens.idx"))


def open_megatron_gpt(folder: Path, workers: int, state: State) -> Opened:
    """Open Megatron-core as its trainer does: the dataset for GPT, which shuffles windows of documents."""
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    indexed = IndexedDataset(str(folder / "tokens"))
    config = GPTDatasetConfig(
        random_seed=SEED,
        sequence_length=WINDOW - 1,
        blend=([str(folder / "tokens")], None),
        split="1,0,0",
        path_to_cache=str(folder / "cache"),
        tokenizer=SimpleNamespace(vocab_size=1 << 20, eod=0, pad=-1, unique_identifiers={}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    windows = (int(indexed.sequence_lengths.sum()) - 1) // (WINDOW - 1)
    sizes = [windows, 0, 0]
    dataset = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[0]
    rest = range((state or 0) * BATCH, len(dataset))  # the dataset has shuffled its windows
    loader = DataLoader(
        dataset, batch_size=BATCH, sampler=rest, num_workers=workers, drop_last=True
    )
    return ({"input_ids": batch["tokens"], **batch} for batch in loader), lambda done: done


def write_datatrove(tokens: np.ndarray, ends: np.ndarray, folder: Path) -> None:
    """Write files of 4-byte tokens, each with the ends of its documents, as its tokenizer does."""
    for first in range(0, len(tokens), CHUNK_TOKENS):
        part = np.asarray(tokens[first : first + CHUNK_TOKENS]).astype(np.uint32)
        path = folder / f"{first:012d}.ds"
        part.tofile(path)
        within = ends[(ends > first) & (ends <= first + len(part))] - first
        within.astype(np.uint64).tofile(path.with_suffix(".ds.index"))


def open_datatrove(folder: Path, workers: int, state: State) -> Opened:
    """Open datatrove: its folder of .ds files with a shuffled sampler."""
    from datatrove.utils.dataset import DatatroveFolderDataset

    dataset = DatatroveFolderDataset(
        str(folder), seq_len=WINDOW - 1, filename_pattern="*.ds", token_size=4, shuffle=False
    )
    loader, at = _map_style(dataset, workers, state)
    return _field(loader, "input_ids"), at


class _field:  # noqa: N801 - a view, used like a function
    """One column of each batch, as int64."""

    def __init__(self, batches: Iterable[Any], name: str) -> None:
        self.batches, self.name = batches, name

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (batch[self.name].to(torch.int64) for batch in self.batches)


class _as_int64:  # noqa: N801 - as above
    """Each batch as int64."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (batch.to(torch.int64) for batch in self.batches)


WRITE: dict[str, Callable[[np.ndarray, np.ndarray, Path], None]] = {
    "memmap": write_memmap,
    "mosaic": write_mosaic,
    "litdata": write_litdata,
    "huggingface": write_huggingface,
    "megatron": write_megatron,
    "megatron-gpt": write_megatron_gpt,
    "datatrove": write_datatrove,
}
OPEN: dict[str, Callable[[Path, int, State], Opened]] = {
    "memmap": open_memmap,
    "tokenlake": open_tokenlake,
    "mosaic": open_mosaic,
    "litdata": open_litdata,
    "huggingface": open_huggingface,
    "megatron": open_megatron,
    "megatron-gpt": open_megatron_gpt,
    "datatrove": open_datatrove,
}
