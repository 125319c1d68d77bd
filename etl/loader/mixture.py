"""`TokenMixture`: several token tables as one dataset, in given proportions."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Format
from etl.loader.dataset import TokenDataset
from etl.loader.find_documents import DocumentSpan
from etl.loader.mixture_reader import MixtureLocator, MixtureReader
from etl.loader.one_pass import Reader
from etl.loader.order.mixture_order import BLOCK, compute_shares
from etl.loader.order.mixture_stages import MixtureStages, WindowsOf
from etl.loader.order.schedule import Schedule
from etl.loader.ranks import Shard
from etl.loader.sharded_dataset import ShardedDataset
from etl.loader.state import State, find_state
from etl.loader.steps import Steps
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

    If all datasets have the same Schedule of ``seq_len``, it counts the samples of the mixture: with
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
            Schedule(
                [(start, self._windows_of(length)) for start, length in first.epochs.seq_lens]
            ),
            by_name,
            seed=seed,
            num_samples=num_samples,
        )
        self.sources = [
            dataset.windows.with_seq_lens(self._stages.seq_lens_of(number))
            for number, dataset in enumerate(self.datasets)
        ]
        """The windows of the sources, which change their length where the mixture does."""
        plans = [dataset.identity["plan"] for dataset in self.datasets]
        parts = [_FORMAT, self.names, plans, self._stages.parameters(), seed]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        super().__init__(
            where=", ".join(self.names),
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
            epochs=self._stages,
            shard=first.place.shard,
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
        plans = [dataset.windows.epochs.whole_epoch(seq_len) for dataset in self.datasets]
        sizes = np.array([plan.num_samples for plan in plans], np.int64)
        return WindowsOf(seq_len, sizes, max(plan.lanes for plan in plans))

    def tables(self) -> list[tuple[str, int]]:
        """Return the URL and the version of each table."""
        return [table for dataset in self.datasets for table in dataset.tables()]

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the views of the datasets read."""
        return [folder for dataset in self.datasets for folder in dataset.cached_folders()]

    @property
    def proportions(self) -> dict[str, float]:
        """The share of samples from each source: its normalized weight, rounded to a 4,096th.

        If the weights change, it is the share at the next sample.
        """
        sample = self.epochs.of(self.epoch).first_sample + self._position.consumed
        stage = self._stages.of_sample(sample)
        shares = stage.order.shares[stage.order.phase(sample - stage.first_sample)]
        return dict(zip(self.names, (shares / BLOCK).tolist(), strict=True))

    def state_dict(
        self,
        *,
        consumed: int | None = None,
        samples_seen: int | None = None,
        steps: Steps | None = None,
    ) -> State:
        """Return the position as a TokenDataset does, and the samples taken from each source.

        The samples count over all ranks and epochs.
        """
        state = super().state_dict(consumed=consumed, samples_seen=samples_seen, steps=steps)
        if get_worker_info() is not None:  # called at every step there, so it must be cheap
            return state
        stage = self._stages.of_pass(state["epoch"])
        before = stage.pass_start(state["epoch"]) + state["consumed"]
        counts = stage.taken + stage.order.counts(before)
        return {**state, "sources": dict(zip(self.names, counts.tolist(), strict=True))}

    def reader(
        self, epoch: int, batch_format: Format | None = None, *, world_size: int = 1
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, in the format of the datasets or another."""
        return MixtureReader(
            self.sources,
            self._stages.of_pass(epoch),
            epoch,
            batch_format or self.format,
            columns=self.columns,
            world_size=world_size,
        )

    def locate(self, sample: int, *, epoch: int | None = None) -> tuple[str, list[DocumentSpan]]:
        """Return the source of a sample of an epoch (default: the current one), and its documents.

        Raises LoaderError if the sample is out of range.
        """
        epoch = self.epoch if epoch is None else epoch
        self.epochs.of(epoch).check(sample, where=self.where)
        return self.locator(epoch).locate(sample)

    def locator(self, epoch: int) -> MixtureLocator:
        """Return what finds the documents of many samples of an epoch faster than ``locate``."""
        stage = self._stages.of_pass(epoch)
        return MixtureLocator(self.names, MixtureReader(self.sources, stage, epoch, self.format))


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
        columns, shard = list(dataset.columns), dataset.place.shard
        return dataset.identity["seq_len"], shard, dataset.format, columns, dataset.repeat

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
