"""A batch again: the documents and the input rows behind it, and their text where the tokenizer is at hand.

It reads the batch's own tokens and four small columns of the row groups that they lie in.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from etl import storage
from etl.errors import LoaderError
from etl.loader.dataset import TokenDataset
from etl.loader.locate import Part
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
    passages: list[Passage]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One batch of one rank."""

    table: str
    version: int
    epoch: int
    rank: int
    world_size: int
    tokenizer: TokenizerRecord | None  # that of the lineage
    rows: list[Row]


def replay(
    dataset: TokenDataset, *, batch_size: int, step: int = 0, tokenizer: str | None = None
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
    record = dataset.tokenizer()
    decoder = None if tokenizer is None else _load(tokenizer, record)
    with dataset.reader(dataset.epoch) as reader:
        batch = reader.batch(samples)
    rows = []
    for row, sample in enumerate(samples):
        ids = [*batch["input_ids"][row].tolist(), int(batch["labels"][row, -1])]
        parts = dataset.locate(sample)
        rows.append(Row(sample=sample, passages=[_passage(part, ids, decoder) for part in parts]))
    return Replay(
        table=dataset.where,
        version=dataset.version,
        epoch=dataset.epoch,
        rank=dataset.rank,
        world_size=dataset.world_size,
        tokenizer=record,
        rows=rows,
    )


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


def _load(path: str, record: TokenizerRecord | None) -> Any:
    """The tokenizer at a URL, which must be that of the lineage if it names one."""
    from tokenizers import Tokenizer

    url = storage.normalize(path)
    with storage.open_input(url) as file:
        content = bytes(file.read())
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
