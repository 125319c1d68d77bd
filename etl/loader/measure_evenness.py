"""Measure how evenly the batches of a dataset mix the sources of its documents.

The source of a document is the input file in its address. Reads two small columns of the row groups of a few
batches, and no tokens.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import numpy as np

from etl import storage
from etl.delta.table import Table
from etl.errors import LoaderError
from etl.loader.fetch.range_requests import Remote
from etl.loader.fetch.read_index import read_index
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.best_fit_packing import UnitWindows
from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.evenness import Evenness, variance_ratio
from etl.loader.order.shuffle_settings import Shuffle
from etl.loader.order.unit_plan import UnitPlan

_CACHED = 1024  # row groups, 16 bytes for each document
_BATCH, _SEQ_LEN = 1024, 4096  # a large batch, for which differences between orders show
_MIN_BATCHES, _MAX_BATCHES = 4, 16  # a batch takes 20 ms
_READS = 1024  # row groups read for a table, each in about 1 ms


class _Sources:
    """The documents of row groups: their lengths, and their sources as numbers."""

    def __init__(self, index: TableIndex, *, is_padded: bool) -> None:
        self._index = index
        self._is_padded = is_padded
        self._numbers: dict[str, int] = {}
        self.read = lru_cache(_CACHED)(self._read)  # several lanes and batches need a row group

    def _read(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the length and the source of each document of a row group of the table."""
        names = ["source", "num_tokens"]
        rows = self._index.read_row_group(number, names, read_dictionary=["source"])
        rows = self._index.select(number, rows)
        lengths = np.array(rows["num_tokens"].to_pylist(), np.int64)
        lengths = self._index.lengths_as_read(number, lengths)
        numbers = [np.empty(0, np.int64)]
        for chunk in rows["source"].chunks:
            names = chunk.dictionary.to_pylist()
            known = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
            numbers.append(np.array(known, np.int64)[np.asarray(chunk.indices)])
        return (lengths > 0) if self._is_padded else lengths, np.concatenate(numbers)


def measure_evenness(
    index: TableIndex,
    plan: EpochPlan,
    *,
    epoch: int,
    batch_size: int,
    max_batches: int,
    is_padded: bool,
) -> Evenness:
    """Return the evenness of at most ``max_batches`` batches, spread over an epoch.

    A batch has ``batch_size`` samples over all ranks. Raises LoaderError if an epoch has fewer than two.
    """
    count = plan.num_samples // max(batch_size, 1)
    if batch_size < 1 or min(count, max_batches) < 2:
        raise LoaderError(
            f"evenness needs at least 2 batches, but an epoch has {plan.num_samples} samples and "
            f"batch_size is {batch_size}",
            where=index.url,
            hint="use a smaller batch_size",
        )
    numbers = np.linspace(0, count - 1, min(count, max_batches)).astype(np.int64)
    sources, stream = _Sources(index, is_padded=is_padded), plan.stream(epoch)
    find, parts, total, squares = _window_finder(plan, stream, epoch), [], 0, 0
    for batch in numbers.tolist():
        windows = np.sort([*map(find, range(batch * batch_size, (batch + 1) * batch_size))])
        if isinstance(plan, UnitPlan):
            documents = _packed_documents(sources, plan, stream, windows)
        else:
            documents = _documents(sources, stream, windows * plan.seq_len, plan.seq_len)
        for lengths, source, tokens in documents:
            total, squares = total + int(lengths.sum()), squares + int((lengths**2).sum())
            parts.append((np.full(len(source), batch), source, tokens))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    shares = batch_of, source_of, tokens_of = [column[columns[2] > 0] for column in columns]
    window_tokens = plan.window_tokens if isinstance(plan, UnitPlan) else plan.seq_len
    pairs = np.unique(batch_of * (source_of.max() + 1) + source_of)
    return Evenness(
        document_ratio=variance_ratio(*shares, draw_tokens=squares / total),
        window_ratio=variance_ratio(*shares, draw_tokens=window_tokens),
        sources=len(np.unique(source_of)),
        sources_per_batch=len(pairs) / len(numbers),
        batches=len(numbers),
        batch_tokens=int(tokens_of.sum()) // len(numbers),
    )


def measure_table(url: str, *, shuffle: bool, max_files: int | None = None) -> Evenness | None:
    """Return the evenness of a token table as the loader reads it by default, or from front to back.

    Batches have 1,024 windows of 4,096 tokens, or less if the table is small. Returns None if the table is
    too small for two batches. If ``max_files`` is given, a table of more files, or in an object store, is not
    measured either: reading its footers takes seconds.
    """
    if max_files is not None:
        files = Table.open(url).files("path", by=())
        if not storage.is_local(url) or sum(1 for _ in files) > max_files:
            return None
    index = read_index(url, version=None, remote=Remote())
    settings = Shuffle().resolved(index.num_tokens, is_remote=index.remote is not None)
    seq_len = max(min(_SEQ_LEN, index.num_tokens // _SEQ_LEN), 1)
    if index.num_tokens <= 2 * seq_len:
        return None
    plan = EpochPlan(index.group_tokens, seq_len, 0, settings if shuffle else None)
    batch_size = max(min(_BATCH, plan.num_samples // 16), 1)
    batches = _MAX_BATCHES
    if len(index.group_tokens) > _READS:
        batches = min(max(_READS // min(batch_size, plan.lanes), _MIN_BATCHES), _MAX_BATCHES)
    return measure_evenness(
        index, plan, epoch=0, batch_size=batch_size, max_batches=batches, is_padded=False
    )


def _window_finder(plan: EpochPlan, stream: EpochStream, epoch: int) -> Callable[[int], int]:
    """Return a function that returns the window of the epoch's stream for a sample."""
    if isinstance(plan, UnitPlan):
        return partial(plan.find_window, epoch, stream)
    block = lru_cache(max(plan.lanes, 1))(partial(plan.block, epoch))

    def find(sample: int) -> int:
        position, lane = divmod(sample, plan.lanes)
        start, order = block(lane, position // plan.block_windows)
        return start + int(order[position % plan.block_windows])

    return find


def _packed_documents(
    sources: _Sources, plan: UnitPlan, stream: EpochStream, windows: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the documents of each unit with some best-fit windows of the stream, as ``_documents`` does."""
    indices = np.array([stream.group_index(window) for window in windows.tolist()])
    for index in np.unique(indices).tolist():
        unit = int(stream.groups[index])
        strands, read = [], []
        for _, span in plan.unit_spans(unit):
            groups = plan.span_groups(span)
            lengths, source = map(np.concatenate, zip(*map(sources.read, groups), strict=True))
            starts = plan.row_groups.start(groups[0]) + np.cumsum([0, *lengths.tolist()])
            strands.append((starts, span))
            read.append((lengths, source))
        packed = UnitWindows.of(strands, plan.window_tokens)
        slices = [packed.pieces(w) for w in (windows[indices == index] - stream.start(index))]
        first = np.concatenate([packed.tokens[pieces] for pieces in slices])
        counts = np.concatenate([packed.counts[pieces] for pieces in slices])
        for (starts, span), (lengths, source) in zip(strands, read, strict=True):
            inside = (first >= span.start) & (first < span.stop)
            owners = np.searchsorted(starts, first[inside], side="right") - 1
            tokens = np.zeros_like(lengths)
            np.add.at(tokens, owners, counts[inside])
            yield lengths, source, tokens


def _documents(
    sources: _Sources, stream: EpochStream, starts: np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the documents of each row group with tokens of some windows of the stream.

    Each has its length, its source and its tokens in the windows. ``starts`` are ascending.
    """
    indices = {i for start in starts.tolist() for i in stream.group_indices(start, start + size)}
    for i in sorted(indices):
        lengths, source = sources.read(int(stream.groups[i]))
        lengths = lengths.astype(np.int64)
        ends = stream.start(i) + np.cumsum(lengths)
        yield lengths, source, _before(starts, size, ends) - _before(starts, size, ends - lengths)


def _before(starts: np.ndarray, size: int, positions: np.ndarray) -> np.ndarray:
    """Return how many tokens of the windows come before each position of the stream."""
    last = np.searchsorted(starts, positions, side="right") - 1
    within = np.minimum(positions - starts[np.maximum(last, 0)], size)
    return np.where(last < 0, 0, last * size + within)
