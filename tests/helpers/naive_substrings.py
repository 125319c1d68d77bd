"""Repeated windows of documents by a dictionary of all windows, and documents with many of them."""

import base64
import random
from collections.abc import Sequence

from hypothesis import strategies as st


def repeated_windows(documents: Sequence[bytes], size: int) -> list[list[tuple[int, int, int]]]:
    """Return (start, document of the first, start there) of each repeated window, by document.

    A window is repeated if an equal one begins in an earlier document, or at least its size before in
    the same one.
    """
    first: dict[bytes, tuple[int, int]] = {}
    found: list[list[tuple[int, int, int]]] = []
    for number, document in enumerate(documents):
        found.append([])
        for start in range(len(document) - size + 1):
            keeper, there = first.setdefault(document[start : start + size], (number, start))
            if keeper < number or start - there >= size:
                found[-1].append((start, keeper, there))
    return found


def cut_masks(documents: Sequence[bytes], size: int) -> list[list[bool]]:
    """Return which bytes of each document are in a repeated window."""
    masks = [[False] * len(document) for document in documents]
    for mask, windows in zip(masks, repeated_windows(documents, size), strict=True):
        for start, _, _ in windows:
            mask[start : start + size] = [True] * size
    return masks


def runs(mask: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the ranges of True.

    >>> runs([True, False, True, True])
    [(0, 1), (2, 4)]
    """
    bounds = [
        k for k in range(len(mask) + 1) if (k > 0 and mask[k - 1]) != (k < len(mask) and mask[k])
    ]
    return list(zip(bounds[::2], bounds[1::2], strict=True))


def snapped(text: str, start: int, end: int, *, words: bool) -> tuple[int, int]:
    """Return the range of bytes that is cut for repeated bytes from ``start`` to ``end``."""
    ends = {0: 0} | {len(text[: k + 1].encode()): k + 1 for k in range(len(text))}
    start, end = min(at for at in ends if at >= start), max(at for at in ends if at <= end)
    if words:
        size = max(ends)
        blank = [at for at, k in ends.items() if at in (0, size) or text[k - 1].isspace()]
        start = min((at for at in blank if start <= at <= start + 64), default=start)
        end = max((at for at in blank if end - 64 <= at <= end), default=end)
    return start, end


def corpus(rng: random.Random, size: int) -> list[str]:
    """Return documents with repeats of about ``size`` bytes: chains, runs, periods, tables, base64."""
    letters = rng.choice(["ab", "abcd", "abcdefghijklmnopqrstuvwxyz", "añ東 😀b", " -|x"])

    def text(length: int) -> str:
        return "".join(rng.choices(letters, k=length))

    def part(pool: list[str]) -> str:
        source = rng.choice(pool)
        length = size + rng.randrange(-2, 3) if rng.random() < 0.6 else rng.randrange(1, 4 * size)
        start = rng.randrange(max(1, len(source) - length + 1))
        table = "".join(f"|{rng.randrange(99)}" + " " * (size // 3) for _ in range(6)) + "|\n"
        others = [
            text(rng.randrange(2 * size)),
            text(rng.randrange(1, 8)) * rng.randrange(1, size),
            text(rng.randrange(size // 2, size + 2)) * rng.randrange(1, 4),
            rng.choice(letters) * rng.randrange(1, 4 * size),
            table,
            base64.b64encode(rng.randbytes(rng.randrange(1, 2 * size))).decode(),
        ]
        return rng.choice([source[start : start + length]] * 3 + others)

    pool = [text(rng.randrange(1, 4 * size))]
    documents = []
    for _ in range(rng.randrange(2, 12)):
        document = "".join(part(pool) + text(rng.randrange(3)) for _ in range(rng.randrange(1, 6)))
        documents.append(document)
        pool.append(document)
    return documents


@st.composite
def corpora(draw: st.DrawFn, sizes: Sequence[int] = (4, 8, 20, 33)) -> tuple[list[str], int]:
    """Return documents and the size of windows; half of the documents are drawn for shrinking."""
    size = draw(st.sampled_from(sizes))
    if draw(st.booleans()):
        return corpus(random.Random(draw(st.integers(0, 2**32))), size), size
    piece = st.text("ab", max_size=2 * size) | st.sampled_from(
        ["é" * size, "-" * 2 * size, "ab" * size]
    )
    pieces = draw(st.lists(piece, min_size=1, max_size=4))
    numbers = st.lists(st.sampled_from(range(len(pieces))), max_size=5)
    documents = draw(st.lists(numbers, max_size=5))
    return ["".join(pieces[k] for k in numbers) for numbers in documents], size
