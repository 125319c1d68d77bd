"""`TokenMixture`: several token tables as one dataset, in given proportions."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Format
from etl.loader.check_mixture import check_compatible, check_weights
from etl.loader.dataset import TokenDataset
from etl.loader.find_documents import DocumentSpan
from etl.loader.mixture_reader import MixtureLocator, MixtureReader
from etl.loader.one_pass import Reader
from etl.loader.order.mixture_order import BLOCK
from etl.loader.order.mixture_stages import MixtureStages, WindowsOf
from etl.loader.order.schedule import Schedule
from etl.loader.plan_change import NO_CHANGE, PlanChange, Weights
from etl.loader.sharded_dataset import ShardedDataset
from etl.loader.state import OtherOrderError, State, find_state, whole_number
from etl.loader.steps import Steps
from etl.loader.views.view import check_column_name

_DEFAULTS = {"version": None, "view": None, "lanes": None, "block_tokens": None, "run_tokens": None}
"""The settings of a source that is added to a mixture, where they differ from the first source."""


class TokenMixture(ShardedDataset):
    """Samples of several datasets in the proportions of their weights, in a reproducible order.

    Batches also contain ``source``, int64 (B,): the index of each row's dataset in ``names``. An exhausted
    source starts again with the order of its next epoch. An epoch of the mixture has ``num_samples``, by
    default as many as exhaust the first source with the first weights; the next epoch continues in all
    sources. Ranks, workers, batches and state work as in a TokenDataset; the state also has the samples taken
    from each source, under ``sources``.

    Weights may change with the sample number, which continues over epochs:
    ``weights=Schedule([(0, {"web": 1.0, "code": 0.0}), (1_000_000, {"web": 0.5, "code": 0.5})])``. Weights
    may also be set while training, with ``set_weights``, or changed with a saved state, with ``from_state``.

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
        weights: Weights | Schedule[Weights],
        seed: int = 0,
        num_samples: int | None = None,
    ) -> None:
        phases = weights if isinstance(weights, Schedule) else Schedule([(0, weights)])
        check_weights(datasets, phases)
        check_compatible(datasets)
        self.names = list(datasets)
        self.datasets = list(datasets.values())
        self.format = self.datasets[0].format
        self.columns = self.datasets[0].columns
        for column in self.columns:
            check_column_name(column, ["source"])
        by_name = Schedule([(start, self._row(value)) for start, value in phases])
        first = self.datasets[0]
        self.stages = MixtureStages(
            Schedule(
                [(start, self._windows_of(length)) for start, length in first.epochs.seq_lens]
            ),
            by_name,
            seed=seed,
            num_samples=num_samples,
            sources={name: dataset.windows.epochs for name, dataset in datasets.items()},
        )
        """Which sample of which source each sample is."""
        own_epochs = zip(self.datasets, self.stages.source_epochs, strict=True)
        self.sources = [dataset.windows.with_epochs(epochs) for dataset, epochs in own_epochs]
        """The windows of the sources, which change their length where the mixture does."""
        super().__init__(
            where=", ".join(self.names),
            identity={
                "seed": seed,
                "num_samples": num_samples,
                "weights": self._weights(),
                "datasets": {name: dict(each.identity) for name, each in datasets.items()},
            },
            epochs=self.stages,
            shard=first.place.shard,
            repeat=first.repeat,
        )

    @classmethod
    def from_state(
        cls,
        lakes: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        change: PlanChange = NO_CHANGE,
        **options: Any,
    ) -> Self:
        """Open the mixture of a saved state, and resume there, with some changes from there on.

        ``lakes`` are its sources by name, with the sources that the change adds: each a lake, which is
        opened like the first source of the state, or a dataset. ``options`` such as ``shard`` apply to all
        datasets. Raises LoaderError if the state is not of a mixture, or of one with other sources, if a
        version that is still to be read is no longer there, or if a change is not possible.
        """
        own_state = find_state(state)
        if "datasets" not in own_state:
            raise LoaderError(
                "the state is not of a mixture",
                hint="use TokenDataset.from_state for the state of a single table",
            )
        saved = own_state["datasets"]
        change.check_sources(saved, lakes)
        datasets = {
            name: TokenDataset.from_saved_settings(lakes[name], settings, **options)
            for name, settings in saved.items()
        }
        first = next(iter(saved.values()))
        for name in (name for name in lakes if name not in saved):
            lake = lakes[name]
            if isinstance(lake, str):
                lake = TokenDataset.from_saved_settings(lake, {**first, **_DEFAULTS}, **options)
            datasets[name] = lake

        weights = Schedule[Weights]([(start, shares) for start, shares in own_state["weights"]])
        mixture = cls._open(datasets, weights, own_state)
        mixture.load_state_dict(own_state)
        changes = change.of_sources(saved)
        for name, settings in changes.items():
            datasets[name] = datasets[name].changed(
                lakes[name], settings, first_epoch=mixture.next_epoch_of(name), **options
            )
        if change.weights is None and not changes:
            return mixture.opened()
        # The fingerprint of the state makes sure that the order so far stays what it was.
        at = mixture.samples_taken
        if change.weights is not None:
            weights = change.weights_from(at, weights)
        changed = cls._open(datasets, weights, own_state)
        try:
            if at:
                changed.load_state_dict(mixture.state_dict())
            return changed.opened()
        except OtherOrderError as error:
            raise LoaderError(
                "the length of the windows is going to change, and where to end an epoch of a source is "
                "already planned",
                where=mixture.where,
                hint="change the weights in earlier epochs of the sources, or after the length has changed",
            ) from error

    @classmethod
    def _open(
        cls, datasets: Mapping[str, TokenDataset], weights: Schedule[Weights], state: State
    ) -> Self:
        """Open the mixture of a state at its beginning; in each phase, sources may have no weight."""
        # Without sources that were, or will be, added by a change that is not in the weights.
        used = {name: 0.0 for name in datasets if any(name in value for value in weights.values)}
        return cls(
            {name: datasets[name] for name in used},
            weights=Schedule([(start, {**used, **value}) for start, value in weights]),
            seed=state["seed"],
            num_samples=state["num_samples"],
        )

    def next_epoch_of(self, name: str) -> int:
        """Return the first epoch of a source, which may have no weight yet, that has not begun."""
        if name not in self.names:
            return 0
        source = self.names.index(name)
        end = self.stages.numbers_end(self.samples_taken)[source : source + 1]
        epochs, samples = self.sources[source].epochs.find(end)
        return int(epochs[0]) + int(samples[0] > 0)

    def _epochs_of_sources(self) -> list[int]:
        """Return the first epoch of each source of which samples may still come."""
        begins = np.split(self.stages.numbers_begin(self.samples_taken), len(self.sources))
        finds = (each.epochs.find(begin) for each, begin in zip(self.sources, begins, strict=True))
        return [int(epochs[0]) for epochs, _ in finds]

    def opened(self) -> Self:
        """Open all tables that are still to be read, and return the mixture."""
        for windows, epoch in zip(self.sources, self._epochs_of_sources(), strict=True):
            windows.open_from(epoch)
        return self

    def set_weights(self, weights: Weights, *, at: int) -> None:
        """Change the weights from a sample on, while the mixture is read; later changes are dropped.

        ``at`` counts the samples of all ranks and epochs, like ``samples_taken``. All ranks must call this
        with the same values before one of them has read the sample; states and replays then have the change.
        A source that has no weight is not read from there on, and continues where it was when it has one
        again. Raises LoaderError if the sample may have been read, if workers read ahead, if a weight is
        missing or not valid, or if a later change of the windows' length is planned.
        """
        at = whole_number("at", at, where=self.where)
        every = [
            (start, dict(zip(self.names, row, strict=True))) for start, row in self.stages.shares
        ]
        datasets = dict(zip(self.names, self.datasets, strict=True))
        check_weights(datasets, Schedule[Weights](every).then(at, weights))
        with self._position.changing(at):
            if at < self.stages.seq_lens.starts[-1]:
                raise LoaderError(
                    f"the length of the windows changes at sample {self.stages.seq_lens.starts[-1]:,}, "
                    f"so that the weights cannot be set for sample {at:,}",
                    where=self.where,
                    hint="set them for later samples, or use from_state(..., change=PlanChange(weights=...))",
                )
            self.stages = self.stages.with_weights(self._row(weights), at=at)
            self.epochs, self.identity = self.stages, {**self.identity, "weights": self._weights()}
            self._position.replan(self.identity, self.stages)

    def _windows_of(self, seq_len: int) -> WindowsOf:
        firsts = [dataset.windows.epochs.whole_epoch(seq_len) for dataset in self.datasets]
        sizes = np.array([epoch.num_samples for epoch in firsts], np.int64)
        return WindowsOf(seq_len, sizes, np.array([epoch.lanes for epoch in firsts]))

    def _row(self, weights: Weights) -> np.ndarray:
        """Return weights in the order of the sources, (K,) float64."""
        return np.array([weights[name] for name in self.names], np.float64)

    def _weights(self) -> list[tuple[int, dict[str, int]]]:
        """Return the samples of each source in a block, from each sample on at which they change."""
        return [
            (start, {name: n for name, n in zip(self.names, row.tolist(), strict=True) if n})
            for start, row in self.stages.shares
        ]

    def tables(self) -> list[tuple[str, int]]:
        """Return the URL of each table, with each version that is still read."""
        read = zip(self.datasets, self._epochs_of_sources(), strict=True)
        return [(each.where, n) for each, epoch in read for n in each.windows.versions(epoch)]

    def cached_folders(self) -> Sequence[Path]:
        """Return the local folders that the views of the datasets read."""
        return [folder for dataset in self.datasets for folder in dataset.cached_folders()]

    @property
    def samples_taken(self) -> int:
        """The samples of all epochs and ranks before the next one."""
        return self.epochs.of(self.epoch).first_sample + self._position.consumed

    @property
    def proportions(self) -> dict[str, float]:
        """The share of samples from each source: its normalized weight, rounded to a 4,096th.

        If the weights change, it is the share at the next sample.
        """
        sample = self.samples_taken
        stage = self.stages.of_sample(sample)
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
        stage = self.stages.of_pass(state["epoch"])
        before = stage.pass_start(state["epoch"]) + state["consumed"]
        counts = stage.taken + stage.order.counts(before)
        return {**state, "sources": dict(zip(self.names, counts.tolist(), strict=True))}

    def reader(
        self, epoch: int, batch_format: Format | None = None, *, world_size: int = 1
    ) -> AbstractContextManager[Reader]:
        """Return a reader of an epoch's batches, in the format of the datasets or another."""
        return MixtureReader(
            self.sources,
            lambda: self.stages,
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
        reader = MixtureReader(self.sources, lambda: self.stages, epoch, self.format)
        return MixtureLocator(self.names, reader)
