"""Small token tables with known tokens: token i of a table is the number i."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from upath import UPath

from etl.delta.table import Table
from etl.lake.table_specs import SPECS
from etl.loader import Shuffle, TokenDataset, TokenMixture
from etl.parquet.data_file import DataFile
from etl.schemas import TOKENIZED, TOKENS

Shape = Sequence[Sequence[Sequence[int]]]
"""Files -> row groups -> documents, each by its number of tokens."""

SHAPES = st.lists(
    st.lists(
        st.lists(st.one_of(st.integers(0, 1), st.integers(0, 40)), max_size=8),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)
"""Tables with empty documents, empty row groups and documents of one token."""

SMALL: Shape = [
    [[5, 0, 17], [1, 1, 30], []],
    [[64]],
    [[9, 8, 7], [40, 0], [3]],
    [[25, 25], [0], [31]],
]
"""A table of 266 tokens in four files and ten row groups, two of them without tokens."""


WRITERS: dict[str, dict[str, object]] = {
    "plain": {},
    "dictionary": {"use_dictionary": True},
    "pages v2": {"data_page_version": "2.0", "compression": "zstd"},
}
"""Variants of how a token column is written; the loader has two ways to read it."""

MIXED = Shuffle(lanes=3, block_tokens=28, run_tokens=20)
"""Settings that shuffle even a table of a few hundred tokens."""


@dataclass(frozen=True)
class Document:
    """The location of a document: its address, its file's number, its row group, its tokens."""

    source: str
    row: int
    file: int
    row_group: int
    tokens: range


def documents(shape: Shape) -> Iterator[Document]:
    start = 0
    for file, groups in enumerate(shape):
        row = 0
        for group, lengths in enumerate(groups):
            for length in lengths:
                tokens = range(start, start + length)
                yield Document(f"s3://in/{file}.jsonl", row, file, group, tokens)
                start += length
                row += 1


def group_tokens(shape: Shape) -> list[int]:
    return [sum(lengths) for groups in shape for lengths in groups]


def make_lake(
    folder: UPath,
    shape: Shape,
    *,
    framed: bool = False,
    left_out: Collection[Document] = (),
    **options: Any,
) -> str:
    """Create a lake whose token table has this shape; file i of it is ``i.parquet``, in table order.

    ``framed`` documents have 1 as their first token and 0 as their last one instead of their numbers. If
    documents are ``left_out``, row groups without others are, too.
    Pages are tiny, so row groups have many; ``options`` are as in pq.ParquetWriter.
    """
    options = {"use_dictionary": False, "data_page_size": 64, "write_batch_size": 2, **options}
    lake = folder / "lake"
    table = Table.create(str(lake / "tokens"), TOKENS, SPECS["tokens"].layout)
    docs = [doc for doc in documents(shape) if doc not in left_out]
    fragments = [
        _write(
            lake / "tokens" / f"{file:03d}.parquet",
            groups,
            [d for d in docs if d.file == file],
            {**options, "tokens_of": _framed if framed else list},
        )
        for file, groups in enumerate(shape)
    ]
    table.commit(fragments, transactions={})
    return str(lake)


def grow_lake(lake: str, shape: Shape, added: Shape) -> int:
    """Add files to a lake that ``make_lake`` has made with a shape; return the new version."""
    table, first = Table.open(f"{lake}/tokens"), len(shape)
    docs = [doc for doc in documents([*shape, *added]) if doc.file >= first]
    options = {
        "use_dictionary": False,
        "data_page_size": 64,
        "write_batch_size": 2,
        "tokens_of": list,
    }
    fragments = [
        _write(
            UPath(lake) / "tokens" / f"{number:03d}.parquet",
            groups,
            [doc for doc in docs if doc.file == number],
            {**options},
        )
        for number, groups in enumerate(added, first)
    ]
    table.commit(fragments, transactions={})
    return Table.open(f"{lake}/tokens").version


def _framed(tokens: range) -> list[int]:
    return [1, *tokens[1:-1], 0] if len(tokens) > 1 else [1] * len(tokens)


def _write(
    path: UPath, groups: Sequence[Sequence[int]], docs: list[Document], options: dict[str, Any]
) -> DataFile:
    ends = dict(zip(docs, accumulate(len(d.tokens) for d in docs), strict=True))
    tokens_of = options.pop("tokens_of")
    options = {"compression": "lz4", **options}
    with path.open("wb") as file, pq.ParquetWriter(file, TOKENIZED, **options) as writer:
        for number, lengths in enumerate(groups):
            rows = [
                {
                    "id": f"{d.file}-{d.row}",
                    "source": d.source,
                    "row": d.row,
                    "tokens": tokens_of(d.tokens),
                    "num_tokens": len(d.tokens),
                    "token_end": ends[d],
                }
                for d in docs
                if d.row_group == number
            ]
            if rows or not lengths:
                writer.write_table(pa.Table.from_pylist(rows, TOKENIZED))
    statistics: dict[str, object] = {"numRecords": len(docs)}
    if docs:
        statistics["maxValues"] = {"token_end": ends[docs[-1]]}
    return DataFile(path.name, path.stat().st_size, len(docs), {}, json.dumps(statistics))


def stream_of(shape: Shape, groups: Sequence[int]) -> np.ndarray:
    """Return the tokens of the table's row groups in a given order."""
    ends = np.cumsum([0, *group_tokens(shape)])
    parts = [np.arange(ends[g], ends[g + 1]) for g in groups]
    return np.concatenate([*parts, np.empty(0, np.int64)])


def streams_of(lake: str, shape: Shape, epochs: int, shuffle: bool | Shuffle) -> list[list[int]]:
    """Return the tokens of some epochs of a table, in their order."""
    plan = TokenDataset(lake, seq_len=1, shuffle=shuffle)._plan
    return [stream_of(shape, plan.stream(e).groups.tolist()).tolist() for e in range(epochs)]


def naive_passes(
    streams: list[list[int]], phases: list[tuple[int, int]]
) -> list[tuple[int, list[list[int]]]]:
    """Cut the streams of some epochs window by window; return the epoch and the windows of each pass."""
    passes: list[tuple[int, list[list[int]]]] = []
    sample = 0
    for epoch, stream in enumerate(streams):
        token = 0
        while True:
            size = next(value for start, value in reversed(phases) if start <= sample)
            if token + size + 1 > len(stream):
                break
            if token == 0 or any(start == sample for start, _ in phases):
                passes.append((epoch, []))
            passes[-1][1].append(stream[token : token + size + 1])
            token, sample = token + size, sample + 1
    return passes


def rows_of(dataset: TokenDataset | TokenMixture, batch_size: int = 1) -> list[list[int]]:
    """Return the windows that a rank gets, each as seq_len + 1 tokens."""
    rows = []
    for batch in dataset.batches(batch_size, drop_last=False):
        inputs, labels = batch["input_ids"].tolist(), batch["labels"].tolist()
        rows += [[*row, label[-1]] for row, label in zip(inputs, labels, strict=True)]
    return rows


def expected_rows(dataset: TokenDataset, shape: Shape, epoch: int = 0) -> list[list[int]]:
    """Return all windows of an epoch in the order of the plan, cut from the table with lists."""
    plan, size = dataset._plan, dataset.seq_len
    stream = stream_of(shape, plan.stream(epoch).groups.tolist()).tolist()
    starts = [plan.window(epoch, g) * size for g in range(plan.num_samples)]
    return [stream[start : start + size + 1] for start in starts]


def merged(ranks: Sequence[Sequence[Any]], order: Sequence[Any], batch_size: int = 1) -> list[Any]:
    """Return the rows of all ranks step by step, the rows of a step in the order of the plan.

    The rows of a rank in a step must be in that order, too.
    """
    places = {json.dumps(row): place for place, row in enumerate(order)}
    rows = []
    for first in range(0, max(map(len, ranks)), batch_size):
        step = []
        for rank in ranks:
            part = [places[json.dumps(row)] for row in rank[first : first + batch_size]]
            assert part == sorted(part)
            step += part
        rows += [order[place] for place in sorted(step)]
    return rows
