"""Replay a batch: its documents and input rows, and their text if a tokenizer is given.

Reads the tokens of the batch and four small columns of their row groups.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from etl import storage
from etl.errors import LoaderError
from etl.html.card import Shown
from etl.loader.batches.document_boundaries import Format
from etl.loader.dataset import TokenDataset
from etl.loader.fetch.token_transform import TokenTransform
from etl.loader.find_documents import DocumentSpan
from etl.loader.find_step import find_step
from etl.loader.mixture import TokenMixture
from etl.loader.ranks import Shard
from etl.loader.state import State, find_state
from etl.schemas import TokenizerRecord


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Consecutive tokens of one document in a row of a batch."""

    span: DocumentSpan
    text: str | None  # None without a tokenizer


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a batch and its documents; ``sample`` is the index in the order of the epoch."""

    sample: int
    source: str | None  # its name in a mixture
    passages: list[Passage]


@dataclass(frozen=True, kw_only=True)
class ReplaySource:
    """A table with samples in the batch."""

    name: str | None  # its name in a mixture
    table: str
    version: int
    tokenizer: TokenizerRecord | None  # from the lineage


@dataclass(frozen=True, kw_only=True, repr=False)
class Replay(Shown):
    """One batch of one rank."""

    sources: list[ReplaySource]
    order: str  # of the samples, and how it is known
    epoch: int
    rank: int
    world_size: int
    rows: list[Row]


def replay(
    dataset: TokenDataset | TokenMixture,
    *,
    batch_size: int | None = None,
    step: int = 0,
    tokenizer: str | None = None,
) -> Replay:
    """Return the batch of this rank ``step`` steps after the dataset's state (before it, if negative).

    The default batch size is the loader's, as the state records it. ``tokenizer`` is the URL of a
    tokenizer.json that decodes the text. Raises LoaderError if the loader had no such batch, or if the
    tokenizer is not the one of the table.
    """
    found = find_step(dataset, batch_size, step)
    steps = dataset.plan_steps(found.batch_size, drop_last=False)
    samples = steps.samples(found.samples)
    sources = _sources(dataset, samples)
    decoder = None if tokenizer is None else _load_tokenizer(tokenizer, sources)
    # Labels that are shifted by one, and nothing else that the dataset's own format adds.
    plain = Format(pack=dataset.format.pack, pad_id=dataset.format.pad_id)
    with dataset.reader(dataset.epoch, plain) as reader:
        batch = reader.batch(samples)
    rows = []
    for row, sample in enumerate(samples):
        ids = [*batch["input_ids"][row].tolist(), int(batch["labels"][row, -1])]
        name, spans = _locate(dataset, sample)
        passages = [_passage(span, ids, decoder) for span in spans]
        rows.append(Row(sample=sample, source=name, passages=passages))
    return Replay(
        sources=sources,
        order=found.order,
        epoch=dataset.epoch,
        rank=dataset.rank,
        world_size=dataset.world_size,
        rows=rows,
    )


def open_saved(
    lakes: Sequence[str],
    state: State,
    *,
    shard: Shard,
    transforms: Sequence[TokenTransform] = (),
) -> TokenDataset | TokenMixture:
    """Open the dataset of a saved state; ``lakes`` is one URL, or NAME=URL for each source of a mixture.

    ``transforms`` are the transforms of your own that the state names, in any order. Raises LoaderError if
    the lakes do not match the state, or if a transform is missing.
    """
    if "datasets" not in state:
        if len(lakes) != 1:
            raise LoaderError(
                f"the state is of a single table, but {len(lakes)} lakes are given",
                hint="give one lake",
            )
        return TokenDataset.from_state(lakes[0], state, shard=shard, transform=transforms)
    named = dict(lake.split("=", 1) for lake in lakes if "=" in lake)
    if len(named) != len(lakes):
        raise LoaderError(
            f"the state is of a mixture of {', '.join(state['datasets'])}",
            hint="give each source as NAME=LAKE",
        )
    return TokenMixture.from_state(named, state, shard=shard, transform=transforms)


def _locate(
    dataset: TokenDataset | TokenMixture, sample: int
) -> tuple[str | None, list[DocumentSpan]]:
    if isinstance(dataset, TokenMixture):
        return dataset.locate(sample)
    return None, dataset.locate(sample)


def _sources(dataset: TokenDataset | TokenMixture, samples: Sequence[int]) -> list[ReplaySource]:
    """Return the versions of tables that have some samples of the present epoch."""
    if isinstance(dataset, TokenDataset):
        return [_source(None, dataset, dataset.version)]
    locator = dataset.locator(dataset.epoch)
    found = sorted({locator.find_version(sample) for sample in samples})
    return [_source(dataset.names[n], dataset.datasets[n], version) for n, version in found]


def _source(name: str | None, dataset: TokenDataset, version: int) -> ReplaySource:
    tokenizer = dataset.tokenizer()
    return ReplaySource(name=name, table=dataset.where, version=version, tokenizer=tokenizer)


def read_state(path: str) -> State:
    """Return the dataset state in a file: JSON, or a checkpoint written by ``torch.save``.

    Raises LoaderError if the file contains no state, StorageError if it cannot be read.
    """
    url = storage.normalize(path)
    with storage.open_input(url) as file:
        is_json = file.read(1) == b"{"
        file.seek(0)
        try:
            saved: Any = json.loads(file.read()) if is_json else _load_checkpoint(file)
        except ValueError as error:
            expected = "JSON" if is_json else "JSON or a checkpoint of plain values and tensors"
            raise LoaderError(f"not valid {expected} ({error})", where=url) from error
    try:
        return find_state(saved)
    except LoaderError as error:
        raise LoaderError(error.what, where=url, hint=error.hint) from error


def _load_checkpoint(file: Any) -> Any:
    import pickle

    try:
        # weights_only: loading a checkpoint must not run code.
        return torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(str(error).split("\n", 1)[0]) from error


def _load_tokenizer(path: str, sources: Sequence[ReplaySource]) -> Any:
    """Return the tokenizer at a URL; raises LoaderError if the lineage of a source names another one."""
    from tokenizers import Tokenizer

    url = storage.normalize(path)
    with storage.open_input(url) as file:
        content = bytes(file.read())
    for record in (source.tokenizer for source in sources):
        if record is not None and hashlib.sha256(content).hexdigest() != record.sha256:
            raise LoaderError(
                "this is not the tokenizer of the table",
                where=url,
                hint=f"use {record.name} with sha256 {record.sha256}, which the lineage names",
            )
    return Tokenizer.from_buffer(content)


def _passage(span: DocumentSpan, ids: Sequence[int], tokenizer: Any | None) -> Passage:
    if tokenizer is None:
        return Passage(span=span, text=None)
    span_ids = ids[span.start : span.start + span.count]
    text = tokenizer.decode([token for token in span_ids if token >= 0], skip_special_tokens=False)
    return Passage(span=span, text=text)
