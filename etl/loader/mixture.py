"""`TokenMixture`: several token tables as one dataset, in given proportions."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Batch, Format
from etl.loader.dataset import TokenDataset
from etl.loader.find_documents import DocumentSpan
from etl.loader.order.mixture_order import BLOCK, MixtureOrder, compute_shares
from etl.loader.ranks import Shard
from etl.loader.sharded_dataset import Reader, ShardedDataset
from etl.loader.state import State, find_state
from etl.loader.views.view import check_column_name
from etl.schemas import TokenizerRecord

_ROUNDING = 1 - 1e-9  # a weight of exactly 1/4,096 may be rounded


class TokenMixture(ShardedDataset):
    """Samples of several datasets in the proportions of their weights, in a reproducible order.

    Batches also contain ``source``, int64 (B,): the index of each row's dataset in ``names``. An exhausted
    source starts again with the order of its next epoch. An epoch of the mixture has ``num_samples``, by
    default as many as exhaust the first source; the next epoch continues in all sources. Ranks, workers,
    batches and state work as in a TokenDataset; the state also has the samples taken from each source, under
    ``sources``.

    Raises LoaderError if a weight is missing, not positive or below 1/4,096 of the total, if the datasets are
    not compatible, or if their tables were written with different tokenizers.
    """

    def __init__(
        self,
        datasets: Mapping[str, TokenDataset],
        *,
        weights: Mapping[str, float],
        seed: int = 0,
        num_samples: int | None = None,
    ) -> None:
        _check_compatible(datasets, weights)
        self.names = list(datasets)
        self.datasets = list(datasets.values())
        self.format = self.datasets[0].format
        self.columns = self.datasets[0].columns
        for column in self.columns:
            check_column_name(column, ["source"])
        sizes = np.array([dataset.num_samples for dataset in self.datasets], np.int64)
        shares = compute_shares(np.array([weights[name] for name in self.names], np.float64))
        lanes = max(dataset.identity["lanes"] for dataset in self.datasets)
        self.order = MixtureOrder(shares, sizes, MixtureOrder.classes_for(lanes, sizes), seed)
        if num_samples is None:
            used = self.order.class_samples * self.order.classes
            num_samples = max(int((used * BLOCK // shares).min()), 1)
        plans = [dataset.identity["plan"] for dataset in self.datasets]
        parts = [self.names, plans, shares.tolist(), self.order.classes, num_samples, seed]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        first = self.datasets[0]
        super().__init__(
            num_samples=num_samples,
            identity={
                "plan": digest,
                "seed": seed,
                "samples": num_samples,
                "shares": dict(zip(self.names, shares.tolist(), strict=True)),
                "datasets": {name: dict(each.identity) for name, each in datasets.items()},
            },
            shard=first.shard,
        )

    @classmethod
    def from_state(cls, lakes: Mapping[str, str], state: Mapping[str, Any], **options: Any) -> Self:
        """Open the mixture of a saved state and resume there; ``lakes`` are its sources by name.

        ``options`` such as ``shard`` apply to all datasets. Raises LoaderError if the state is not of a
        mixture, or of one with other sources.
        """
        own_state = find_state(state)
        if "datasets" not in own_state:
            raise LoaderError(
                "the state is not of a mixture",
                hint="use TokenDataset.from_state for the state of a single table",
            )
        if own_state["datasets"].keys() != lakes.keys():
            raise LoaderError(
                f"lakes are given for {', '.join(lakes)}, "
                f"but the sources of the state are {', '.join(own_state['datasets'])}",
                hint="give one lake for each source",
            )
        datasets = {
            name: TokenDataset.from_saved_settings(lakes[name], dataset, **options)
            for name, dataset in own_state["datasets"].items()
        }
        mixture = cls(
            datasets,
            weights=own_state["shares"],
            seed=own_state["seed"],
            num_samples=own_state["samples"],
        )
        mixture.load_state_dict(own_state)
        return mixture

    @property
    def where(self) -> str:
        """The names of the sources, for errors."""
        return ", ".join(self.names)

    @property
    def lanes(self) -> int:
        """The number of classes: a rank that reads one class reads one lane of each source."""
        return self.order.classes

    def tables(self) -> list[tuple[str, int]]:
        """Return the URL and the version of each table."""
        return [table for dataset in self.datasets for table in dataset.tables()]

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the views of the datasets read."""
        return [folder for dataset in self.datasets for folder in dataset.cached_folders()]

    @property
    def proportions(self) -> dict[str, float]:
        """The share of samples from each source: its normalized weight, rounded to a 4,096th."""
        return dict(zip(self.names, (self.order.shares / BLOCK).tolist(), strict=True))

    def state_dict(self, *, consumed: int | None = None) -> State:
        """Return the state; ``sources`` has the samples taken from each, over all ranks and epochs."""
        state = super().state_dict(consumed=consumed)
        if get_worker_info() is not None:  # called at every step there, so it must be cheap
            return state
        counts = self.order.counts(state["epoch"] * self.num_samples + state["consumed"])
        return {**state, "sources": dict(zip(self.names, counts.tolist(), strict=True))}

    def reader(
        self, epoch: int, batch_format: Format | None = None
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, in the format of the datasets or another."""
        return _MixtureReader(self, epoch * self.num_samples, batch_format or self.format)

    def locate(self, sample: int, *, epoch: int | None = None) -> tuple[str, list[DocumentSpan]]:
        """Return the source of a sample of an epoch (default: the current one), and its documents.

        Raises LoaderError if the sample is out of range.
        """
        self._check_sample(sample)
        before = (self.epoch if epoch is None else epoch) * self.num_samples
        reader = _MixtureReader(self, before, self.format)
        source, source_epoch, source_sample = reader.find_source_sample(sample)
        spans = self.datasets[source].locate(source_sample, epoch=source_epoch)
        return self.names[source], spans


class _MixtureReader:
    """A reader of a mixture's batches; keeps open readers for the current epochs of its sources."""

    def __init__(self, mixture: TokenMixture, before: int, batch_format: Format) -> None:
        self._mixture = mixture
        self._order = mixture.order
        self._before = before  # samples of earlier epochs
        # Class -> the number of its latest block, its sources and their sample indices.
        self._blocks: dict[int, tuple[int, np.ndarray, np.ndarray]] = {}
        self._readers: dict[tuple[int, int], Reader] = {}  # by source and epoch
        self._open: dict[tuple[int, int], ExitStack] = {}
        # Offsets into a flattened batch cannot be merged from parts of the batch; positions can.
        self._wanted = self._format = batch_format
        if self._format.cu_seqlens:
            self._format = replace(self._format, cu_seqlens=False, position_ids=True)

    def find_source_sample(self, sample: int) -> tuple[int, int, int]:
        """Return the source of a sample, the epoch of that source, and the sample in that epoch."""
        order = self._order
        position, sample_class = divmod(self._before + sample, order.classes)
        number, offset = divmod(position, BLOCK)
        block = self._blocks.get(sample_class)
        if block is None or block[0] != number:
            block = self._blocks[sample_class] = (number, *order.block(sample_class, number))
        _, sources, indices = block
        source = int(sources[offset])
        taken = number * int(order.shares[source]) + int(indices[offset])
        epoch, index = divmod(taken, int(order.class_samples[source]))
        return source, epoch, index * order.classes + sample_class

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as one batch with ``source``, rows in the order of the samples."""
        parts: dict[tuple[int, int], list[int]] = {}
        rows: dict[tuple[int, int], list[int]] = {}
        for row, sample in enumerate(samples):
            source, epoch, source_sample = self.find_source_sample(sample)
            parts.setdefault((source, epoch), []).append(source_sample)
            rows.setdefault((source, epoch), []).append(row)
        batches = [self._reader(*key).batch(part) for key, part in parts.items()]
        row_order = np.argsort([row for part in rows.values() for row in part])
        # In numpy: torch's threads would spin to copy a few kilobytes.
        lists = {
            name: [value for batch in batches for value in batch.pop(name)]
            for name in self._mixture.columns
        }
        columns = {
            name: np.concatenate([batch[name].numpy() for batch in batches]) for name in batches[0]
        }
        columns["source"] = np.repeat([source for source, _ in rows], [*map(len, rows.values())])
        merged: Batch = {n: torch.from_numpy(values[row_order]) for n, values in columns.items()}
        merged |= {name: [values[row] for row in row_order] for name, values in lists.items()}
        return self._with_lengths(merged)

    def _with_lengths(self, batch: Batch) -> Batch:
        wanted = self._wanted
        if not wanted.cu_seqlens:
            return batch
        batch |= wanted.measure_lengths(batch["position_ids"].numpy() == 0)
        if not wanted.position_ids:
            del batch["position_ids"]
        return batch

    def _reader(self, source: int, epoch: int) -> Reader:
        key = (source, epoch)
        if key not in self._readers:
            for old in [k for k in self._open if k[0] == source and k[1] < epoch - 1]:
                del self._readers[old]
                self._open.pop(old).close()
            stack = self._open[key] = ExitStack()
            dataset = self._mixture.datasets[source]
            self._readers[key] = stack.enter_context(
                dataset.reader(epoch, self._format, dataset.mixture_budget())
            )
        return self._readers[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._open.values():
            stack.close()


def _check_compatible(datasets: Mapping[str, TokenDataset], weights: Mapping[str, float]) -> None:
    """Raise LoaderError unless each dataset has a weight, and all have the same kind of batches."""
    if not datasets:
        raise LoaderError("a mixture needs at least one dataset")
    if datasets.keys() != weights.keys():
        raise LoaderError(
            f"weights are given for {', '.join(weights)}, but the datasets are {', '.join(datasets)}",
            hint="give one weight for each dataset",
        )
    for name, weight in weights.items():
        if not 0 < weight < float("inf"):
            raise LoaderError(f"the weight of {name} must be positive and finite, not {weight}")
    total = sum(weights.values())
    for name, weight in weights.items():
        if weight * BLOCK < total * _ROUNDING:
            raise LoaderError(
                f"the weight of {name} is {weight / total:.3g} of the total, less than 1/{BLOCK:,}, the "
                "smallest share of a mixture",
                hint=f"raise it to {total / BLOCK:.3g}, or leave {name} out",
            )

    def settings(dataset: TokenDataset) -> tuple[int, Shard, Format, Sequence[str]]:
        return dataset.seq_len, dataset.shard, dataset.format, list(dataset.columns)

    first_name, first = next(iter(datasets.items()))
    for name, dataset in datasets.items():
        if settings(dataset) != settings(first):
            raise LoaderError(
                "the datasets differ in (seq_len, shard, format, columns): "
                f"{name} has {settings(dataset)}, {first_name} has {settings(first)}",
                hint="open all datasets with the same values",
            )
    _check_tokenizers(datasets)


def _check_tokenizers(datasets: Mapping[str, TokenDataset]) -> None:
    """Raise LoaderError if the lineages of two tables name different tokenizers."""
    first: tuple[str, TokenizerRecord] | None = None
    for name, dataset in datasets.items():
        for record in dataset.tokenizers():
            first = first or (name, record)
            if record.sha256 != first[1].sha256:
                raise LoaderError(
                    f"the tables have different tokenizers: {first[0]} has {first[1].name} (sha256 "
                    f"{first[1].sha256}), {name} has {record.name} (sha256 {record.sha256})",
                    where=dataset.where,
                    hint="mix only tables whose token ids mean the same: tokenize one of them again",
                )
