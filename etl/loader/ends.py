"""The shares of documents that begin with BOS and end with EOS, in a sample of row groups."""

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

import numpy as np

from etl.loader.decode import RowGroups
from etl.loader.files import LocalFiles
from etl.loader.index import Index

_ROW_GROUPS = 8
_PIECES = 2  # of each row group: its first pages, about 130,000 tokens


class Ends(NamedTuple):
    """Shares of the sampled documents; None if there were none."""

    begin_with_bos: float | None
    end_with_eos: float | None


def sample_ends(index: Index, bos: Collection[int], eos: Collection[int]) -> Ends:
    """Return the shares of documents that begin with an id in ``bos`` and end with an id in ``eos``.

    The sample is the front of up to eight row groups, evenly spread over the table, without empty documents.
    Raises as ``RowGroups.pieces`` does.
    """
    row_groups = RowGroups(index, LocalFiles(index))
    groups = np.flatnonzero(index.group_tokens)
    sampled = np.linspace(0, len(groups) - 1, min(_ROW_GROUPS, len(groups))).astype(np.int64)
    firsts, lasts = [], []
    for group in groups[sampled].tolist():
        bounds = np.unique(row_groups.begins(group))
        pieces = islice(row_groups.pieces(group), _PIECES)
        tokens = np.concatenate([piece.tokens for piece in pieces])
        begins, ends = bounds[:-1], bounds[1:]
        firsts.append(tokens[begins[begins < len(tokens)]])
        lasts.append(tokens[ends[ends <= len(tokens)] - 1])
    return Ends(_share(firsts, bos), _share(lasts, eos))


def _share(parts: list[np.ndarray], ids: Collection[int]) -> float | None:
    tokens = np.concatenate([*parts, np.zeros(0, np.int32)])
    return float(np.isin(tokens, list(ids)).mean()) if len(tokens) else None
