"""TokenMixture: several token tables as one dataset, in given proportions."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.dataset import TokenDataset
from etl.loader.format import Format, lengths
from etl.loader.locate import Part
from etl.loader.mixing import BLOCK, Mixing, shares_of
from etl.loader.sharded import Reader, ShardedDataset
from etl.loader.state import State, find_state

Batch = dict[str, torch.Tensor]


class TokenMixture(ShardedDataset):
    """Samples of several datasets in the proportions of their weights, in a reproducible order.

    Batches have ``source`` besides, int64 (B,): the number of each row's dataset in ``names``. A source
    that is used up begins anew with the order of its next epoch. An epoch of the mixture is
    ``num_samples``, by default as many as it takes to use up the first source; the next epoch goes on in
    all sources where this one ends. Ranks, workers, batches and state are as those of a TokenDataset;
    the state has the samples taken of each source under ``sources``.

    Raises LoaderError if a weight is missing or not positive, or the datasets do not fit together.
    """

    def __init__(
        self,
        datasets: Mapping[str, TokenDataset],
        *,
        weights: Mapping[str, float],
        seed: int = 0,
        num_samples: int | None = None,
    ) -> None:
        _check(datasets, weights)
        self.names = list(datasets)
        self.datasets = list(datasets.values())
        self.format = self.datasets[0].format
        sizes = np.array([dataset.num_samples for dataset in self.datasets], np.int64)
        shares = shares_of(np.array([weights[name] for name in self.names], np.float64))
        lanes = max(dataset.state_dict()["lanes"] for dataset in self.datasets)
        self.mixing = Mixing(shares, sizes, Mixing.classes_for(lanes, sizes), seed)
        if num_samples is None:
            used = self.mixing.rounds * self.mixing.classes
            num_samples = max(int((used * BLOCK // shares).min()), 1)
        plans = [dataset.state_dict()["plan"] for dataset in self.datasets]
        parts = [self.names, plans, shares.tolist(), self.mixing.classes, num_samples, seed]
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
            rank=first.rank,
            world_size=first.world_size,
        )

    @classmethod
    def from_state(cls, lakes: Mapping[str, str], state: Mapping[str, Any], **options: Any) -> Self:
        """The mixture that a state was saved of, at that place, from the lakes of its sources by name.

        ``options`` are those of all its datasets, as ``rank``. Raises LoaderError if it is no state of a
        mixture, or of one with other sources.
        """
        found = find_state(state)
        if "datasets" not in found:
            raise LoaderError(
                "no state that names the datasets of a mixture",
                hint="TokenDataset.from_state takes that of a single table",
            )
        if found["datasets"].keys() != lakes.keys():
            raise LoaderError(
                f"lakes for {', '.join(lakes)} of sources {', '.join(found['datasets'])}",
                hint="give each source its lake",
            )
        datasets = {
            name: TokenDataset.as_it_was(lakes[name], dataset, **options)
            for name, dataset in found["datasets"].items()
        }
        mixture = cls(
            datasets, weights=found["shares"], seed=found["seed"], num_samples=found["samples"]
        )
        mixture.load_state_dict(found)
        return mixture

    @property
    def where(self) -> str:
        """The names of the sources."""
        return ", ".join(self.names)

    @property
    def proportions(self) -> dict[str, float]:
        """The share of each source in the samples: its weight, to a 4,096th."""
        return dict(zip(self.names, (self.mixing.shares / BLOCK).tolist(), strict=True))

    def state_dict(self, *, consumed: int | None = None) -> State:
        """As that of a TokenDataset, with the samples taken of each source, over all ranks and epochs."""
        state = super().state_dict(consumed=consumed)
        if get_worker_info() is not None:  # whose state is asked for at every step
            return state
        counts = self.mixing.counts(state["epoch"] * self.num_samples + state["consumed"])
        return {**state, "sources": dict(zip(self.names, counts.tolist(), strict=True))}

    def reader(self, epoch: int) -> AbstractContextManager[Reader]:
        """What makes batches of the samples of an epoch."""
        return _MixtureReader(self, epoch * self.num_samples)

    def locate(self, sample: int, *, epoch: int | None = None) -> tuple[str, list[Part]]:
        """The source of a sample of an epoch (this one if not given), and the documents behind it.

        Raises LoaderError if there is no such sample.
        """
        if not 0 <= sample < self.num_samples:
            raise LoaderError(f"sample {sample} of {self.num_samples}", where=self.where)
        before = (self.epoch if epoch is None else epoch) * self.num_samples
        source, turn, own = _MixtureReader(self, before).find(sample)
        return self.names[source], self.datasets[source].locate(own, epoch=turn)


class _MixtureReader:
    """Finds the source of each sample, and keeps readers of the epochs that the sources are in."""

    def __init__(self, mixture: TokenMixture, before: int) -> None:
        self._mixture = mixture
        self._mixing = mixture.mixing
        self._before = before  # samples of earlier epochs
        self._blocks: dict[
            int, tuple[int, np.ndarray, np.ndarray]
        ] = {}  # of each class, the latest
        self._readers: dict[tuple[int, int], Reader] = {}  # of a source in one of its epochs
        self._open: dict[tuple[int, int], ExitStack] = {}
        # Offsets into a flattened batch cannot be put together from parts of it; positions can.
        self._format = mixture.format
        if self._format.cu_seqlens:
            self._format = replace(self._format, cu_seqlens=False, position_ids=True)

    def find(self, sample: int) -> tuple[int, int, int]:
        """The source of a sample, the source's epoch, and its sample in that."""
        mixing = self._mixing
        position, group = divmod(self._before + sample, mixing.classes)
        number, place = divmod(position, BLOCK)
        known = self._blocks.get(group)
        if known is None or known[0] != number:
            known = self._blocks[group] = (number, *mixing.block(group, number))
        source = int(known[1][place])
        taken = number * int(mixing.shares[source]) + int(known[2][place])
        epoch, turn = divmod(taken, int(mixing.rounds[source]))
        return source, epoch, turn * mixing.classes + group

    def batch(self, samples: Sequence[int]) -> Batch:
        """The samples as one batch, rows in their order, with ``source``."""
        parts: dict[tuple[int, int], list[int]] = {}
        rows: dict[tuple[int, int], list[int]] = {}
        for row, sample in enumerate(samples):
            source, epoch, own = self.find(sample)
            parts.setdefault((source, epoch), []).append(own)
            rows.setdefault((source, epoch), []).append(row)
        found = [self._reader(*key).batch(own) for key, own in parts.items()]
        order = np.argsort([row for part in rows.values() for row in part])
        # In numpy: torch's threads would spin for what is a copy of some kilobytes.
        columns = {
            name: np.concatenate([part[name].numpy() for part in found]) for name in found[0]
        }
        columns["source"] = np.repeat([source for source, _ in rows], [*map(len, rows.values())])
        batch = {name: torch.from_numpy(values[order]) for name, values in columns.items()}
        return self._with_lengths(batch)

    def _with_lengths(self, batch: Batch) -> Batch:
        wanted = self._mixture.format
        if not wanted.cu_seqlens:
            return batch
        batch |= lengths(batch["position_ids"].numpy() == 0)
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
                dataset.reader(epoch, self._format, dataset.room_in_mixture())
            )
        return self._readers[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._open.values():
            stack.close()


def _check(datasets: Mapping[str, TokenDataset], weights: Mapping[str, float]) -> None:
    """Raise LoaderError unless each dataset has a weight, and all make the same kind of batches."""
    if not datasets:
        raise LoaderError("a mixture of nothing", hint="give one dataset or more")
    if datasets.keys() != weights.keys():
        raise LoaderError(
            f"weights for {', '.join(weights)} of datasets {', '.join(datasets)}",
            hint="give each dataset a weight",
        )
    for name, weight in weights.items():
        if not 0 < weight < float("inf"):
            raise LoaderError(f"weight {weight} of {name}", hint="give a number above 0")

    def facts(dataset: TokenDataset) -> tuple[int, int, int, Format]:
        return dataset.seq_len, dataset.rank, dataset.world_size, dataset.format

    first = next(iter(datasets.values()))
    for name, dataset in datasets.items():
        if facts(dataset) != facts(first):
            raise LoaderError(
                f"{name} has seq_len, rank, world_size, format {facts(dataset)}, "
                f"{next(iter(datasets))} {facts(first)}",
                hint="open them alike",
            )
