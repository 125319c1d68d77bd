"""Find when a training has seen a document: the epochs, steps, ranks and rows. The inverse of ``replay.py``.

Follows from the state alone: which samples were read, in which steps (``read_parts.py``), and which samples
have tokens of the document (``document_samples.py``).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from etl.errors import LoaderError
from etl.loader.changed_plans import ChangedWindows
from etl.loader.dataset import TokenDataset
from etl.loader.document_samples import SampleFinder, StoredDocument, find_documents
from etl.loader.find_documents import DocumentSpan
from etl.loader.mixture import TokenMixture
from etl.loader.ranks import Rank
from etl.loader.read_parts import SKIPPED, UNKNOWN
from etl.loader.state import parts_of
from etl.loader.steps import Steps, divide_step
from etl.loader.table_windows import TableWindows
from etl.plural import many


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """Tokens of a document in a row of a batch that a training has read.

    ``step``, ``rank`` and ``row`` are None where the state does not record how the samples were read.
    """

    epoch: int
    step: int | None  # of the training, counted from 0 over all epochs
    rank: int | None
    row: int | None  # of the batch of that rank
    sample: int  # of the epoch
    span: DocumentSpan


@dataclass(frozen=True, kw_only=True)
class SeenDocument:
    """The document with an id in a table, and when it was seen; never, if it has no exposures."""

    id: str
    source: str | None  # the name of its table in a mixture
    table: str
    version: int
    exposures: list[Exposure]


@dataclass(frozen=True, kw_only=True)
class _ReadEpoch:
    """The samples of an epoch, or of a part of it, that were read in equal steps."""

    epoch: int
    samples: range
    steps: Steps | None  # None: unknown
    steps_end: int = 0  # the sample after the last step of the epoch
    steps_before: int | None = None  # of the training; None: unknown

    def place(self, sample: int) -> tuple[int | None, int | None, int | None]:
        """Return the step, the rank and the row of a sample."""
        if self.steps is None:
            return None, None, None
        number, offset = divmod(sample - self.samples.start, self.steps.stride)
        step = None if self.steps_before is None else self.steps_before + number
        world_size = self.steps.rank.world_size
        if world_size == 1:
            return step, 0, offset
        first = self.samples.start + number * self.steps.stride
        size = min(self.steps.stride, self.steps_end - first)
        ranks = divide_step(size, first % self.steps.lanes, self.steps.lanes, world_size)
        rank = int(ranks[offset])
        return step, rank, int(np.count_nonzero(ranks[:offset] == rank))


def find_exposures(dataset: TokenDataset | TokenMixture, ids: Sequence[str]) -> list[SeenDocument]:
    """Return when the training whose state a dataset has resumed has seen the documents with some ids.

    Reads the ids and lengths of all documents, and no tokens. Exposures are in the order of the training. A
    window that ends with the first token of a document, as its last label, counts as one, as in a replay.
    Raises LoaderError for an id that no table has.
    """
    read = [*_read_epochs(dataset)]
    seen: list[SeenDocument] = []
    for source, name, windows, epochs in _tables(dataset, read):
        stored: dict[str, list[StoredDocument]] = defaultdict(list)
        for document in find_documents(windows.index, ids):
            stored[document.id].append(document)
        found: dict[str, list[tuple[int, Exposure]]] = {id_: [] for id_ in stored}
        for epoch in epochs if stored else ():
            finder = SampleFinder(windows, epoch)
            for id_, documents in stored.items():
                # A sample that has two copies of a document, from a view, is looked at once.
                for number in {n for each in documents for n in finder.find(each)}:
                    own_epoch, sample = _sample_of(dataset, source, epoch, number)
                    orders = [n for n, each in enumerate(read) if each.epoch == own_epoch]
                    orders = [n for n in orders if sample in read[n].samples]
                    spans = finder.locator.locate(number) if orders else []
                    found[id_] += [
                        (order, _expose(read[order], sample, span))
                        for order in orders
                        for span in spans
                        if span.id == id_
                    ]
        for id_, exposures in found.items():
            exposures.sort(key=lambda each: (each[0], each[1].sample, each[1].span.start))
            seen.append(
                SeenDocument(
                    id=id_,
                    source=name,
                    table=windows.index.url,
                    version=windows.index.version,
                    exposures=[exposure for _, exposure in exposures],
                )
            )
    missing = [id_ for id_ in ids if all(document.id != id_ for document in seen)]
    if missing:
        others = f", nor {many(len(missing) - 1, 'other id')}" if missing[1:] else ""
        raise LoaderError(
            f"no document with the id {missing[0]!r} has tokens{others}",
            where=dataset.where,
            hint="`etl trace LAKE --id ID` without --state says what happened to it",
        )
    return seen


def _expose(read: _ReadEpoch, sample: int, span: DocumentSpan) -> Exposure:
    step, rank, row = read.place(sample)
    return Exposure(epoch=read.epoch, step=step, rank=rank, row=row, sample=sample, span=span)


def _read_epochs(dataset: TokenDataset | TokenMixture) -> Iterator[_ReadEpoch]:
    """Yield the parts of each epoch that were read, in the order of the training."""
    steps_before: int | None = 0
    for part in parts_of(dataset.state_dict()):
        if part.size == SKIPPED:
            continue
        for epoch in range(part.epoch, part.end_epoch + 1):
            _, num_samples, lanes, _ = dataset.epochs.of(epoch)
            first = part.first_sample_of(epoch)
            end = part.end if epoch == part.end_epoch else num_samples
            if part.size == UNKNOWN:
                steps_before = None
                yield _ReadEpoch(epoch=epoch, samples=range(first, end), steps=None)
                continue
            steps = Steps.of(part.size, Rank(0, part.world_size), lanes)
            steps_end = first + steps.end(num_samples - first)
            samples = range(first, min(end, steps_end))
            yield _ReadEpoch(
                epoch=epoch,
                samples=samples,
                steps=steps,
                steps_end=steps_end,
                steps_before=steps_before,
            )
            if steps_before is not None:
                steps_before += -(-len(samples) // steps.stride)


def _tables(
    dataset: TokenDataset | TokenMixture, read: Sequence[_ReadEpoch]
) -> Iterator[tuple[int, str | None, TableWindows, range]]:
    """Yield the number and the name of each source, and the windows and epochs of each of its plans."""
    named: list[tuple[str | None, TableWindows | ChangedWindows]]
    if isinstance(dataset, TokenMixture):
        named = [*zip(dataset.names, dataset.sources, strict=True)]
    else:
        named = [(None, dataset.windows)]
    for source, (name, changed) in enumerate(named):
        num_epochs = _num_epochs(dataset, source, read)
        for first, end, windows in changed.plans():
            epochs = range(first, num_epochs if end is None else min(end, num_epochs))
            yield source, name, windows, epochs


def _num_epochs(
    dataset: TokenDataset | TokenMixture, source: int, read: Sequence[_ReadEpoch]
) -> int:
    """Return how many epochs of a table the samples read may be of."""
    if not isinstance(dataset, TokenMixture):
        return max((each.epoch + 1 for each in read), default=0)
    ends = [dataset.epochs.of(each.epoch).first_sample + each.samples.stop for each in read]
    last = int(dataset.stages.numbers_end(max(ends, default=0))[source])
    epochs, _ = dataset.sources[source].epochs.find(np.array([last]))
    return int(epochs[0]) + 1


def _sample_of(
    dataset: TokenDataset | TokenMixture, source: int, epoch: int, sample: int
) -> tuple[int, int]:
    """Return the epoch and the sample of a dataset for a sample of an epoch of one of its tables.

    Of a source without further weight, the sample is -1.
    """
    if not isinstance(dataset, TokenMixture):
        return epoch, sample
    first = dataset.sources[source].epochs.of(epoch).first_sample
    number = dataset.stages.find_sample(source, first + sample)
    if number is None:
        return 0, -1
    epochs, samples = dataset.stages.find(np.array([number]))
    return int(epochs[0]), int(samples[0])
