"""A batch again: the documents and the input rows behind it, and their text where the tokenizer is at hand.

It reads the batch's own tokens and four small columns of the row groups that they lie in.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from etl import storage
from etl.errors import LoaderError
from etl.loader.dataset import TokenDataset
from etl.loader.locate import Part
from etl.loader.mixture import TokenMixture
from etl.loader.state import State, find_state
from schemas import TokenizerRecord


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Consecutive tokens of one document in a row of a batch."""

    part: Part
    text: str | None  # None: the tokenizer is not at hand


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a batch: its sample's place in the order of the epoch, and what it is made of."""

    sample: int
    source: str | None  # of a mixture, its name
    passages: list[Passage]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table that the batch is made from."""

    name: str | None  # in a mixture
    table: str
    version: int
    tokenizer: TokenizerRecord | None  # that of the lineage


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One batch of one rank."""

    sources: list[Source]
    epoch: int
    rank: int
    world_size: int
    rows: list[Row]


def replay(
    dataset: TokenDataset | TokenMixture,
    *,
    batch_size: int,
    step: int = 0,
    tokenizer: str | None = None,
) -> Replay:
    """The batch that this rank gets ``step`` steps after where the dataset stands (before, if negative).

    ``tokenizer`` is the URL of the tokenizer.json that decodes the text, if it is at hand. Raises LoaderError
    if the epoch has no such batch, or if it is another tokenizer than that which made the ids.
    """
    consumed = int(dataset.state_dict()["consumed"])
    start = consumed + step * batch_size * dataset.world_size
    stop = min(start + batch_size * dataset.world_size, dataset.num_samples)
    samples = range(start, stop)[dataset.rank :: dataset.world_size]
    if start < 0 or not samples or batch_size < 1:
        raise LoaderError(
            f"no batch {step:+d} steps from sample {consumed:,} of {dataset.num_samples:,}",
            where=dataset.where,
            hint="the epoch ends there, or begins later",
        )
    sources = _sources(dataset)
    decoder = None if tokenizer is None else _load(tokenizer, sources)
    with dataset.reader(dataset.epoch) as reader:
        batch = reader.batch(samples)
    rows = []
    for row, sample in enumerate(samples):
        ids = [*batch["input_ids"][row].tolist(), int(batch["labels"][row, -1])]
        name, parts = _located(dataset, sample)
        passages = [_passage(part, ids, decoder) for part in parts]
        rows.append(Row(sample=sample, source=name, passages=passages))
    return Replay(
        sources=sources,
        epoch=dataset.epoch,
        rank=dataset.rank,
        world_size=dataset.world_size,
        rows=rows,
    )


def open_saved(
    lakes: Sequence[str], state: State, *, rank: int, world_size: int
) -> TokenDataset | TokenMixture:
    """What a state was saved of: ``lakes`` is one URL, or of a mixture NAME=URL for each source.

    Raises LoaderError if they are not those of the state.
    """
    if "datasets" not in state:
        if len(lakes) != 1:
            raise LoaderError("the state of a single table", hint="give one lake")
        return TokenDataset.from_state(lakes[0], state, rank=rank, world_size=world_size)
    named = dict(lake.split("=", 1) for lake in lakes if "=" in lake)
    if len(named) != len(lakes):
        raise LoaderError(
            f"the state of a mixture of {', '.join(state['datasets'])}",
            hint="give each source as NAME=LAKE",
        )
    return TokenMixture.from_state(named, state, rank=rank, world_size=world_size)


def _located(dataset: TokenDataset | TokenMixture, sample: int) -> tuple[str | None, list[Part]]:
    if isinstance(dataset, TokenMixture):
        return dataset.locate(sample)
    return None, dataset.locate(sample)


def _sources(dataset: TokenDataset | TokenMixture) -> list[Source]:
    if isinstance(dataset, TokenMixture):
        named = zip(dataset.names, dataset.datasets, strict=True)
        return [replace(_sources(each)[0], name=name) for name, each in named]
    where, version, tokenizer = dataset.where, dataset.version, dataset.tokenizer()
    return [Source(name=None, table=where, version=version, tokenizer=tokenizer)]


def read_state(path: str) -> State:
    """The dataset's state in a file: JSON, or what ``torch.save`` made of a checkpoint that holds one.

    Raises LoaderError if there is none in it, StorageError if it cannot be read.
    """
    url = storage.normalize(path)
    with storage.open_input(url) as file:
        is_json = file.read(1) == b"{"
        file.seek(0)
        try:
            saved: Any = json.loads(file.read()) if is_json else _unpickled(file)
        except ValueError as error:
            raise LoaderError(f"no JSON ({error})", where=url) from error
    try:
        return find_state(saved)
    except LoaderError as error:
        raise LoaderError(error.what, where=url, hint=error.hint) from error


def _unpickled(file: Any) -> Any:
    import pickle

    try:
        # weights_only: what is in a checkpoint must not run.
        return torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ValueError(f"nor a checkpoint of plain values and tensors: {reason}") from error


def _load(path: str, sources: Sequence[Source]) -> Any:
    """The tokenizer at a URL, which must be that of each lineage that names one."""
    from tokenizers import Tokenizer

    url = storage.normalize(path)
    with storage.open_input(url) as file:
        content = bytes(file.read())
    for record in (source.tokenizer for source in sources):
        if record is not None and hashlib.sha256(content).hexdigest() != record.sha256:
            raise LoaderError(
                "not the tokenizer that made the ids",
                where=url,
                hint=f"the lineage names {record.name} with sha256 {record.sha256}",
            )
    return Tokenizer.from_buffer(content)


def _passage(part: Part, ids: Sequence[int], tokenizer: Any | None) -> Passage:
    if tokenizer is None:
        return Passage(part=part, text=None)
    own = ids[part.start : part.start + part.count]
    text = tokenizer.decode([token for token in own if token >= 0], skip_special_tokens=False)
    return Passage(part=part, text=text)
