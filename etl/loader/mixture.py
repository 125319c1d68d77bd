"""`TokenMixture`: several token tables as one dataset, in given proportions."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Batch, Format
from etl.loader.dataset import TokenDataset
from etl.loader.find_documents import DocumentSpan, Locator
from etl.loader.one_pass import Reader
from etl.loader.order.mixture_order import BLOCK, compute_shares
from etl.loader.order.mixture_stages import MixtureStage, MixtureStages, WindowsOf
from etl.loader.order.schedule import Schedule
from etl.loader.ranks import Shard
from etl.loader.sharded_dataset import ShardedDataset
from etl.loader.state import State, find_state
from etl.loader.views.view import check_column_name
from etl.schemas import TokenizerRecord

_FORMAT = 2  # increase it when the order changes: older states are then refused
_ROUNDING = 1 - 1e-9  # a weight of exactly 1/4,096 may be rounded


class TokenMixture(ShardedDataset):
    """Samples of several datasets in the proportions of their weights, in a reproducible order.

    Batches also contain ``source``, int64 (B,): the index of each row's dataset in ``names``. An exhausted
    source starts again with the order of its next epoch. An epoch of the mixture has ``num_samples``, by
    default as many as exhaust the first source; the next epoch continues in all sources. Ranks, workers,
    batches and state work as in a TokenDataset; the state also has the samples taken from each source, under
    ``sources``.

    Weights may change with the sample number, which continues over epochs:
    ``weights=Schedule([(0, {"web": 1.0, "code": 0.0}), (1_000_000, {"web": 0.5, "code": 0.5})])``. A change
    comes at the nearest multiple of the number of lanes.

    If all datasets have the same Schedule of ``seq_len``, its samples are those of the mixture: with
    ``seq_len=Schedule([(0, 2048), (1_000_000, 8192)])``, sample 1,000,000 of the mixture is its first window
    of 8,192 tokens. All windows of an epoch have one length, ``mixture.seq_len``: it ends where the length
    changes, and each source continues in its own epoch with the tokens that no window had.

    Each source has lanes as if it were read alone, so that K of them take about K times the memory of one:
    ``Shuffle(lanes=256 // K)`` keeps it. With best-fit packing, two sources take about 40 MB.

    Raises LoaderError if a weight is missing, not positive (in a Schedule, for all samples) or below 1/4,096
    of the total, if the datasets are not compatible, or if their tables have different tokenizers.
    """

    def __init__(
        self,
        datasets: Mapping[str, TokenDataset],
        *,
        weights: Mapping[str, float] | Schedule[Mapping[str, float]],
        seed: int = 0,
        num_samples: int | None = None,
    ) -> None:
        phases = weights if isinstance(weights, Schedule) else Schedule([(0, weights)])
        _check_weights(datasets, phases)
        _check_compatible(datasets)
        self.names = list(datasets)
        self.datasets = list(datasets.values())
        self.format = self.datasets[0].format
        self.columns = self.datasets[0].columns
        self.seq_lens = self.datasets[0].seq_lens
        for column in self.columns:
            check_column_name(column, ["source"])
        by_name = Schedule(
            [
                (start, np.array([value[n] for n in self.names], np.float64))
                for start, value in phases
            ]
        )
        first = self.datasets[0]
        self._stages = MixtureStages(
            Schedule([(start, self._windows_of(length)) for start, length in first.seq_lens]),
            by_name,
            seed=seed,
            num_samples=num_samples,
        )
        self._sources = [
            dataset.with_seq_lens(self._stages.seq_lens_of(number))
            for number, dataset in enumerate(self.datasets)
        ]
        plans = [dataset.identity["plan"] for dataset in self.datasets]
        parts = [_FORMAT, self.names, plans, self._stages.parameters(), seed]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        super().__init__(
            num_samples=self._stages.of_pass(0).samples_of(0),
            identity={
                "plan": digest,
                "seed": seed,
                "samples": num_samples,
                "shares": [
                    [start, dict(zip(self.names, compute_shares(row).tolist(), strict=True))]
                    for start, row in by_name
                ],
                "datasets": {name: dict(each.identity) for name, each in datasets.items()},
            },
            shard=first.shard,
            repeat=first.repeat,
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
            weights=Schedule([(start, shares) for start, shares in own_state["shares"]]),
            seed=own_state["seed"],
            num_samples=own_state["samples"],
        )
        mixture.load_state_dict(own_state)
        return mixture

    def _windows_of(self, seq_len: int) -> WindowsOf:
        plans = [dataset.whole_epoch(seq_len) for dataset in self.datasets]
        sizes = np.array([plan.num_samples for plan in plans], np.int64)
        return WindowsOf(seq_len, sizes, max(plan.lanes for plan in plans))

    @property
    def where(self) -> str:
        """The names of the sources, for errors."""
        return ", ".join(self.names)

    def lanes_of(self, epoch: int) -> int:
        """Return the number of classes of an epoch: a rank that reads one reads one lane of each source."""
        return self._stages.of_pass(epoch).order.classes

    @property
    def seq_len(self) -> int:
        """The number of tokens of a window, in this pass if it changes."""
        return self._stages.of_pass(self.epoch).seq_len

    def samples_of(self, epoch: int) -> int:
        """Return the number of samples of an epoch, over all ranks."""
        return self._stages.of_pass(epoch).samples_of(epoch)

    def samples_before(self, epoch: int) -> int:
        """Return the number of samples of all epochs before one, over all ranks."""
        stage = self._stages.of_pass(epoch)
        return stage.first_sample + stage.pass_start(epoch)

    def find_epochs(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epochs of samples counted over all epochs, (n,) int64, and the samples in these."""
        return self._stages.find_passes(numbers)

    def tables(self) -> list[tuple[str, int]]:
        """Return the URL and the version of each table."""
        return [table for dataset in self.datasets for table in dataset.tables()]

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the views of the datasets read."""
        return [folder for dataset in self.datasets for folder in dataset.cached_folders()]

    @property
    def proportions(self) -> dict[str, float]:
        """The share of samples from each source: its normalized weight, rounded to a 4,096th.

        If the weights change, it is that of the next sample.
        """
        sample = self.samples_before(self.epoch) + self._passes.consumed
        stage = self._stages.of_sample(sample)
        shares = stage.order.shares[stage.order.phase(sample - stage.first_sample)]
        return dict(zip(self.names, (shares / BLOCK).tolist(), strict=True))

    def _state(self, epoch: int, consumed: int) -> State:
        """Return a state; ``sources`` has the samples taken from each, over all ranks and epochs."""
        state = super()._state(epoch, consumed)
        if get_worker_info() is not None:  # called at every step there, so it must be cheap
            return state
        stage = self._stages.of_pass(epoch)
        before = stage.pass_start(epoch) + consumed
        counts = stage.taken + stage.order.counts(before)
        return {**state, "sources": dict(zip(self.names, counts.tolist(), strict=True))}

    def reader(
        self, epoch: int, batch_format: Format | None = None, *, world_size: int = 1
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, in the format of the datasets or another."""
        return _MixtureReader(self, epoch, batch_format or self.format, world_size)

    def source(self, number: int) -> TokenDataset:
        """Return a dataset of the mixture; its windows change their length where those of the mixture do."""
        return self._sources[number]

    def stage(self, epoch: int) -> MixtureStage:
        """Return the stage of an epoch."""
        return self._stages.of_pass(epoch)

    def locate(self, sample: int, *, epoch: int | None = None) -> tuple[str, list[DocumentSpan]]:
        """Return the source of a sample of an epoch (default: the current one), and its documents.

        Raises LoaderError if the sample is out of range.
        """
        epoch = self.epoch if epoch is None else epoch
        self._check_sample(sample, epoch)
        return self.locator(epoch).locate(sample)

    def locator(self, epoch: int) -> "MixtureLocator":
        """Return what finds the documents of many samples of an epoch faster than ``locate``."""
        return MixtureLocator(self, epoch)


class MixtureLocator:
    """Finds the sources and the documents behind the samples of one epoch of a mixture."""

    def __init__(self, mixture: TokenMixture, epoch: int) -> None:
        self._mixture = mixture
        self._reader = _MixtureReader(mixture, epoch, mixture.format)
        self._locators: dict[tuple[int, int], Locator] = {}  # by source and its epoch

    def locate(self, sample: int) -> tuple[str, list[DocumentSpan]]:
        """Return the source of a sample, and its documents."""
        source, epoch, source_sample = self._reader.find_source_sample(sample)
        if (source, epoch) not in self._locators:
            self._locators[source, epoch] = self._mixture.source(source).locator(epoch)
        spans = self._locators[source, epoch].locate(source_sample)
        return self._mixture.names[source], spans


class _Block(NamedTuple):
    """The samples of a block of a class of a mixture: each (BLOCK,)."""

    sources: np.ndarray  # int32
    epochs: np.ndarray  # int32, of the source
    samples: np.ndarray  # int64, in that epoch


class _MixtureReader:
    """A reader of a mixture's batches; keeps open readers for the current epochs of its sources."""

    def __init__(
        self, mixture: TokenMixture, epoch: int, batch_format: Format, world_size: int = 1
    ) -> None:
        self._mixture = mixture
        self._stage = mixture.stage(epoch)
        self._before = self._stage.pass_start(epoch)  # samples of the stage
        self._world_size = world_size
        # Class -> the phase and number of its latest block, and its samples.
        self._blocks: dict[int, tuple[tuple[int, int], _Block]] = {}
        self._readers: dict[tuple[int, int], Reader] = {}  # by source and epoch
        self._open: dict[tuple[int, int], ExitStack] = {}
        # Offsets into a flattened batch cannot be merged from parts of the batch; positions can.
        self._wanted = self._format = batch_format
        if self._format.cu_seqlens:
            self._format = replace(self._format, cu_seqlens=False, position_ids=True)

    def find_source_sample(self, sample: int) -> tuple[int, int, int]:
        """Return the source of a sample, the epoch of that source, and the sample in that epoch."""
        order = self._stage.order
        position, sample_class = divmod(self._before + sample, order.classes)
        phase, number, offset = order.find_block(position)
        known = self._blocks.get(sample_class)
        if known is None or known[0] != (phase, number):
            known = ((phase, number), self._find_block(sample_class, phase, number))
            self._blocks[sample_class] = known
        block = known[1]
        return int(block.sources[offset]), int(block.epochs[offset]), int(block.samples[offset])

    def _find_block(self, sample_class: int, phase: int, number: int) -> "_Block":
        sources, numbers = self._stage.order.block(sample_class, phase, number)
        numbers += self._stage.taken[sources]
        epochs = np.empty_like(numbers)
        for source in np.unique(sources).tolist():
            chosen = sources == source
            found = self._mixture.source(source).find_epochs(numbers[chosen])
            epochs[chosen], numbers[chosen] = found
        return _Block(sources.astype(np.int32), epochs.astype(np.int32), numbers)

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
        positions = batch["position_ids"].numpy()
        starts = np.flatnonzero(positions == 0)
        batch |= wanted.measure_lengths(np.append(starts, positions.size))
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
            dataset = self._mixture.source(source)
            budget = dataset.mixture_budget(epoch)
            self._readers[key] = stack.enter_context(
                dataset.reader(epoch, self._format, budget, world_size=self._world_size)
            )
        return self._readers[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._open.values():
            stack.close()


def _check_weights(
    datasets: Mapping[str, TokenDataset], phases: Schedule[Mapping[str, float]]
) -> None:
    """Raise LoaderError unless each dataset has a weight, and none is too small."""
    if not datasets:
        raise LoaderError("a mixture needs at least one dataset")
    for weights in phases.values:
        if datasets.keys() != weights.keys():
            raise LoaderError(
                f"weights are given for {', '.join(weights)}, but the datasets are {', '.join(datasets)}",
                hint="give one weight for each dataset",
            )
        total = sum(weights.values())
        for name, weight in weights.items():
            is_later = weight == 0 < total and any(value[name] for value in phases.values)
            if not (0 < weight < float("inf") or is_later):
                raise LoaderError(f"the weight of {name} must be positive and finite, not {weight}")
            if not is_later and weight * BLOCK < total * _ROUNDING:
                raise LoaderError(
                    f"the weight of {name} is {weight / total:.3g} of the total, less than 1/{BLOCK:,}, "
                    "the smallest share of a mixture",
                    hint=f"raise it to {total / BLOCK:.3g}, or leave {name} out",
                )


def _check_compatible(datasets: Mapping[str, TokenDataset]) -> None:
    """Raise LoaderError unless all datasets have the same kind of batches."""

    def settings(dataset: TokenDataset) -> tuple[object, Shard, Format, Sequence[str], bool]:
        columns = list(dataset.columns)
        return dataset.identity["seq_len"], dataset.shard, dataset.format, columns, dataset.repeat

    first_name, first = next(iter(datasets.items()))
    for name, dataset in datasets.items():
        if settings(dataset) != settings(first):
            raise LoaderError(
                "the datasets differ in (seq_len, shard, format, columns, repeat): "
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
