"""Read the samples of a mixture from its sources, and find the documents behind them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch

from etl.loader.batches.document_boundaries import Batch, Format
from etl.loader.changed_plans import ChangedWindows
from etl.loader.find_documents import DocumentSpan, Locator
from etl.loader.one_pass import Reader
from etl.loader.order.mixture_stages import MixtureStages
from etl.loader.table_windows import TableWindows


class _Block(NamedTuple):
    """The samples of a block of a class of a mixture: each (BLOCK,)."""

    sources: np.ndarray  # int32
    epochs: np.ndarray  # int32, of the source
    samples: np.ndarray  # int64, in that epoch


class MixtureReader:
    """A reader of a mixture's batches; keeps open readers for the current epochs of its sources.

    ``stages`` returns the present plan, which may change for samples that are not yet read.
    """

    def __init__(
        self,
        sources: Sequence[TableWindows | ChangedWindows],
        stages: Callable[[], MixtureStages],
        epoch: int,
        batch_format: Format,
        *,
        columns: Sequence[str] = (),
        world_size: int = 1,
    ) -> None:
        self.sources = sources
        self._stages, self._epoch = stages, epoch
        self._stage = stages().of_pass(epoch)
        self._before = self._stage.pass_start(epoch)  # samples of the stage
        self._columns = columns
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
        sample_class = (self._before + sample) % order.classes
        phase, number, offset = order.find_block(self._before + sample)
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
            found = self.sources[source].epochs.find(numbers[chosen])
            epochs[chosen], numbers[chosen] = found
        return _Block(sources.astype(np.int32), epochs.astype(np.int32), numbers)

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return samples as one batch with ``source``, rows in the order of the samples."""
        self._stage = self._stages().of_pass(self._epoch)  # weights may have been set
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
            for name in self._columns
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
            reader = self.sources[source].reader(
                epoch, self._format, world_size=self._world_size, is_mixture=True
            )
            self._readers[key] = stack.enter_context(reader)
        return self._readers[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack in self._open.values():
            stack.close()


class MixtureLocator:
    """Finds the sources and the documents behind the samples of one epoch of a mixture."""

    def __init__(self, names: Sequence[str], reader: MixtureReader) -> None:
        self._names = names
        self._reader = reader
        self._locators: dict[tuple[int, int], Locator] = {}  # by source and its epoch

    def find_version(self, sample: int) -> tuple[int, int]:
        """Return the number of the source of a sample, and the version of its table."""
        source, epoch, _ = self._reader.find_source_sample(sample)
        return source, self._reader.sources[source].of(epoch).index.version

    def locate(self, sample: int) -> tuple[str, list[DocumentSpan]]:
        """Return the source of a sample, and its documents."""
        source, epoch, source_sample = self._reader.find_source_sample(sample)
        if (source, epoch) not in self._locators:
            self._locators[source, epoch] = self._reader.sources[source].locator(epoch)
        spans = self._locators[source, epoch].locate(source_sample)
        return self._names[source], spans
