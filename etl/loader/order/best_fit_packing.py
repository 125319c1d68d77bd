"""Best-fit packing: whole documents in windows of ``seq_len`` tokens, planned from their lengths alone.

1. **Pieces.** A document of at most ``seq_len`` tokens is one piece. A longer one is cut into pieces of
   ``seq_len`` tokens and one rest, the only cuts that there are.
2. **Strands.** The documents of several places of the table, one after the other in each, are read side by
   side: strands. Their pieces are put in one order, by the share of its strand that comes before each.
3. **Units.** Consecutive pieces of that order form a unit of at most ``max_tokens`` tokens. Where it ends is
   chosen among the pieces of its second half, so that few tokens of its windows are padding.
4. **Windows.** The pieces of a unit are packed by best-fit decreasing: from the longest to the shortest, each
   is put into the window with the least room in which it fits, or into a new one (Ding et al. 2024, "Fewer
   Truncations Improve Language Modeling", arXiv 2404.10830, section 3).

Pieces do not fill windows without some room, so a unit whose last window would be nearly full needs one
more. The ends with the least padding are tried; if it is less than ``_SLACK`` of a window, it counts as that
much more. The constants were chosen by measurement on real text in random order: with 256 windows in a
unit, padding falls from 0.32 % without a choice to 0.18 %, with 32 windows from 2.4 % to 0.06 %. If each file
has one source, 256 windows of one place have 0.79 % of padding, and windows of eight places 0.28 %.

A sorted list of rooms takes 0.6 µs per piece in Python, which is enough: 0.2 to 1.2 billion tokens per second
for text. A compiled kernel would be faster, but numba alone takes 55 MB.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_SLACK = 0.4  # windows
_TRIES = 16
_ENOUGH = 0.001  # padding per token
_WINDOW_BITS = 32
_WINDOW_MASK = (1 << _WINDOW_BITS) - 1


def cut(lengths: np.ndarray, seq_len: int) -> np.ndarray:
    """Return the lengths of the pieces of documents, (P,) int64, from the documents' lengths, (D,).

    >>> cut(np.array([3, 0, 10, 8]), 4).tolist()
    [3, 4, 4, 2, 4, 4]
    """
    # All pieces are full but the last one of a document that is not a multiple of ``seq_len``.
    full, rest = np.divmod(lengths.astype(np.int64), seq_len)
    ends = np.cumsum(full + (rest > 0))
    pieces = np.full(ends[-1] if len(ends) else 0, seq_len, np.int64)
    pieces[ends[rest > 0] - 1] = rest[rest > 0]
    return pieces


def pack(pieces: np.ndarray, seq_len: int) -> np.ndarray:
    """Return the window of each piece, (P,) int64; windows are in the order of their first pieces.

    >>> pack(np.array([3, 4, 2, 1, 2]), 4).tolist()
    [0, 1, 2, 0, 2]
    """
    _, firsts, windows = np.unique(
        _best_fit(pieces, seq_len), return_index=True, return_inverse=True
    )
    # ``windows`` numbers them by length; rank them by the piece with which each begins instead.
    numbers = np.empty(len(firsts), np.int64)
    numbers[np.argsort(firsts)] = np.arange(len(firsts))
    return numbers[windows]


def _best_fit(pieces: np.ndarray, seq_len: int) -> np.ndarray:
    """Return the window of each piece, (P,) int64, numbered from the longest to the shortest piece.

    Pieces of one length are packed together: they go into a window until it has no room for another.
    """
    # Pieces from the longest to the shortest, and where each length begins. Full pieces (no step from
    # ``seq_len``) need no search: each is a window.
    order = np.argsort(-pieces, kind="stable")
    firsts = np.flatnonzero(np.diff(pieces[order], prepend=seq_len))
    lengths = pieces[order[firsts]]
    num_full = int(firsts[0]) if len(firsts) else len(pieces)
    rooms: list[int] = []  # ascending; each with the number of its window in the lowest bits
    chosen, copies, count = [], [], num_full
    counts = np.diff(firsts, append=len(pieces))
    for length, num_equal in zip((lengths << _WINDOW_BITS).tolist(), counts.tolist(), strict=True):
        rest = num_equal
        while rest:
            # Take the window with the least room in which the piece fits, or a new one. The lowest bits of a
            # room are the number of its window, which does not change the comparison.
            at = bisect_left(rooms, length)
            if at < len(rooms):
                room = rooms.pop(at)
            else:
                room = (seq_len << _WINDOW_BITS) | count
                count += 1
            # Put as many pieces of this length into it as fit: one search for all of them.
            fitting = min(room // length, rest)
            room -= fitting * length
            rest -= fitting
            chosen.append(room & _WINDOW_MASK)
            copies.append(fitting)
            if room > _WINDOW_MASK:  # some room is left, besides the number
                insort(rooms, room)
    windows = np.empty(len(pieces), np.int64)
    windows[order[:num_full]] = np.arange(num_full)
    windows[order[num_full:]] = np.repeat(np.array(chosen, np.int64), np.array(copies, np.int64))
    return windows


def count_windows(pieces: np.ndarray, seq_len: int) -> int:
    """Return the number of windows of some pieces."""
    return int(_best_fit(pieces, seq_len).max(initial=-1)) + 1


def divide(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    *,
    seq_len: int,
    max_tokens: int,
    num_strands: int = 1,
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the tokens of each unit in each of K strands, (K,) int64, and the windows of the unit.

    The pieces come in ``chunks`` of ``interleave``. A unit has at most ``max_tokens`` tokens, which must be
    at least ``seq_len``.
    """
    pieces, strands = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def tokens(size: int) -> np.ndarray:
        totals = np.bincount(strands[:size], pieces[:size], minlength=num_strands)
        return totals.astype(np.int64)

    # A unit is chosen as soon as there are more pieces than it may have, so that few chunks are in memory.
    for chunk in chunks:
        pieces, strands = map(np.concatenate, zip((pieces, strands), chunk, strict=True))
        while int(pieces.sum()) > max_tokens:
            size, windows = _first_unit(pieces, seq_len, max_tokens)
            yield tokens(size), windows
            pieces, strands = pieces[size:], strands[size:]
    if len(pieces):
        yield tokens(len(pieces)), count_windows(pieces, seq_len)


def interleave(lengths: Sequence[np.ndarray], seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces of some strands in one order, (P,) int64, and the strand of each, (P,) int64.

    ``lengths`` are the lengths of the documents of each strand, (D,). All strands begin and end together.

    >>> interleave([np.array([1, 1, 1, 1]), np.array([3, 3])], 4)
    (array([1, 3, 1, 1, 3, 1]), array([0, 1, 0, 0, 1, 0]))
    """
    pieces = [cut(each, seq_len) for each in lengths]
    strands = np.repeat(np.arange(len(pieces)), [*map(len, pieces)])
    # Order by the share of its strand that is before the middle of a piece: strands of different lengths then
    # end together, which leaves no unit of one strand alone.
    middles = [(np.cumsum(each) - each / 2) / max(int(each.sum()), 1) for each in pieces]
    order = np.argsort(np.concatenate(middles), kind="stable")
    return np.concatenate(pieces)[order], strands[order]


def _first_unit(pieces: np.ndarray, seq_len: int, max_tokens: int) -> tuple[int, int]:
    """Return the number of pieces of the first unit, and the number of its windows."""
    # The unit may end with each piece of its second half.
    ends = np.cumsum(pieces)
    last = int(np.searchsorted(ends, max_tokens, side="right")) - 1
    first = min(int(np.searchsorted(ends, max_tokens // 2)), last)
    # Packing takes long, so only the most promising ends are packed. Windows that would be nearly full
    # probably need one more: such an end must not look like the best.
    tokens = ends[first : last + 1]
    padding = -tokens % seq_len  # in as few windows as the tokens need
    is_tight = padding < _SLACK * seq_len
    expected = (padding + is_tight * _SLACK * seq_len) / tokens
    best, size, windows = np.inf, 0, 0
    for i in np.argsort(expected, kind="stable")[:_TRIES].tolist():
        if best <= _ENOUGH:
            break
        if padding[i] / tokens[i] >= best:
            continue  # it is worse even if its windows are full
        count = count_windows(pieces[: first + i + 1], seq_len)
        share = (count * seq_len - int(tokens[i])) / int(tokens[i])
        if share < best:
            best, size, windows = share, first + i + 1, count
    return size, windows


@dataclass(frozen=True)
class UnitWindows:
    """The W windows of a unit, each a sequence of pieces in the order of the unit's strands; P pieces.

    The memory of a unit has the tokens of all strands, each followed by the token after it.
    """

    starts: np.ndarray  # (P,) int64: the first token of each piece in the memory of the unit
    tokens: np.ndarray  # (P,) int64: the same in the table
    counts: np.ndarray  # (P,) int64: its tokens
    continues: np.ndarray  # (P,) bool: whether the document continues after the piece
    firsts: np.ndarray  # (W + 1,) int64: window w has the pieces firsts[w]:firsts[w + 1]

    @staticmethod
    def of(strands: Iterable[tuple[np.ndarray, range]], seq_len: int) -> "UnitWindows":
        """Pack the tokens of each strand: a span of the table, and the documents around it.

        Documents are given by their first tokens in the table, (D + 1,) int64: consecutive documents that
        cover the span, and the end of the last one.
        """
        parts, base = [], 0
        for document_starts, span in strands:
            # A unit may begin and end inside a document that was cut: keep what is in the span.
            first = int(np.searchsorted(document_starts, span.start, side="right")) - 1
            last = int(np.searchsorted(document_starts, span.stop))
            bounds = document_starts[first : last + 1]
            counts = cut(np.diff(np.clip(bounds, span.start, span.stop)), seq_len)
            starts = np.cumsum(counts) - counts
            ends = span.start + starts + counts
            # Where the document continues, the next token is the label of the last one.
            is_end = bounds[np.searchsorted(bounds, ends)] == ends
            parts.append((base + starts, span.start + starts, counts, ~is_end))
            base += len(span) + 1  # the token after the strand is in the memory, too
        starts, tokens, counts, continues = map(np.concatenate, zip(*parts, strict=True))
        # Group the pieces by window. The sort is stable, so they stay in the order of the strands.
        windows = pack(counts, seq_len)
        order = np.argsort(windows, kind="stable")
        firsts = np.searchsorted(windows[order], np.arange(windows.max(initial=-1) + 2))
        return UnitWindows(starts[order], tokens[order], counts[order], continues[order], firsts)

    def pieces(self, window: int) -> slice:
        """Return the pieces of a window."""
        return slice(int(self.firsts[window]), int(self.firsts[window + 1]))
