"""How the documents of a table begin and end: counted in a sample of its row groups."""

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

import numpy as np

from etl.loader.decode import RowGroups
from etl.loader.files import LocalFiles
from etl.loader.index import Index

_ROW_GROUPS = 8
_PIECES = 2  # of each: the first pages, some 130,000 tokens


class Ends(NamedTuple):
    """Shares of the documents that were looked at; None where none was."""

    begin_with_bos: float | None
    end_with_eos: float | None


def sample_ends(index: Index, bos: Collection[int], eos: Collection[int]) -> Ends:
    """How many documents begin with one of the ids of BOS, and end with one of those of EOS.

    Those at the front of up to eight row groups are looked at, evenly spread over the table; documents
    without tokens are left out. Raises as ``RowGroups.pieces`` does.
    """
    row_groups = RowGroups(index, LocalFiles(index))
    groups = np.flatnonzero(index.group_tokens)
    places = np.linspace(0, len(groups) - 1, min(_ROW_GROUPS, len(groups))).astype(np.int64)
    firsts, lasts = [], []
    for group in groups[places].tolist():
        bounds = np.unique(row_groups.begins(group))
        pieces = islice(row_groups.pieces(group), _PIECES)
        tokens = np.concatenate([piece.tokens for piece in pieces])
        begins, ends = bounds[:-1], bounds[1:]
        firsts.append(tokens[begins[begins < len(tokens)]])
        lasts.append(tokens[ends[ends <= len(tokens)] - 1])
    return Ends(_share(firsts, bos), _share(lasts, eos))


def _share(found: list[np.ndarray], wanted: Collection[int]) -> float | None:
    tokens = np.concatenate([*found, np.zeros(0, np.int32)])
    return float(np.isin(tokens, list(wanted)).mean()) if len(tokens) else None
