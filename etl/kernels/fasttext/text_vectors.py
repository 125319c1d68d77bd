"""Sum the vectors of the words and n-grams of texts, as fastText does (Joulin et al. 2016, arXiv 1607.01759).

A text is one line. Each token has a vector: the vector of the word, if the model knows it, plus the vectors
of the n-grams of characters of ``<token>``. Then follow the token ``</s>`` and the n-grams of tokens.

Most tokens occurred in the texts before, so a table keeps the vectors of recent ones: of real text, it has
six to eight of ten. The vector of a token is always summed first, so that a result does not depend on what is
in the table. It differs from fastText's by rounding: both add float32, in different orders.

Each step is taken for all tokens of a text, and for the n-grams of all tokens that the table does not have.
Loops over the few n-grams of one token would end where no processor can predict it, and loads from memory
would wait for each other.

``W`` is the width of a vector: the model's dimension, rounded up to a multiple of 16, with zeros at the end.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import classes as all_classes
from etl.kernels.bytes.lanes import FNV_BASIS, FNV_PRIME, LANES, add_rows, fill_lanes, prefetch
from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.simd import SIZE
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.fasttext import LABEL_PREFIX, token_table
from etl.kernels.fasttext.char_ngrams import NgramLanes, hash_ngrams, make_lanes
from etl.kernels.fasttext.model import Key, Model, find_word, hash_key
from etl.kernels.fasttext.token_table import (
    COUNT,
    HASH,
    LABEL,
    ROW,
    USED,
    TokenTable,
    empty_slot,
    find_slot,
    has_token,
    last_slot,
    load_key,
    make_table,
    set_end,
    vector_width,
)
from etl.kernels.fasttext.tokens import cut, next_token
from etl.kernels.fasttext.vectors import Ngrams, add_ngrams, add_row, vector_at
from etl.kernels.jit import inner, kernel

NO_LIMIT: Final = 1 << 62
"""The value of ``max_chars`` for whole texts."""

_COLLECTED: Final = 1024  # tokens, at most; n-grams, before the last token's
_TOKEN_PRIME: Final = np.uint64(116049371)  # of fastText, for n-grams of tokens
_PREFIX: Final = int.from_bytes(LABEL_PREFIX[:8].encode(), "little")
_PREFIX_END: Final = ord(LABEL_PREFIX[8])

_NO_CLASSES: Final = np.frombuffer(b"\0", np.uint8)  # read-only, as the real ones


class _Work(NamedTuple):
    """Buffers of one call; of the tokens that were collected, and of their n-grams."""

    starts: NDArray[np.int64]  # (_COLLECTED,)
    stops: NDArray[np.int64]  # (_COLLECTED,)
    slots: NDArray[np.int32]  # (_COLLECTED + 1,) the last one is that of the text
    lanes: NgramLanes
    ngrams: Ngrams
    open_tokens: NDArray[np.uint64]  # (max_tokens,) of n-grams of tokens


def sum_vectors(
    texts: Texts, model: Model, *, max_chars: int = NO_LIMIT, lines: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the sums of the vectors of each text (n, W), and how many there are (n,); nulls count as empty.

    Only the first ``max_chars`` characters are read. With ``lines``, texts are stripped, and every character
    that ends a line separates tokens, such as U+2028.
    """
    settings = model.settings
    width = -(-settings.dimension // LANES) * LANES
    sums = np.zeros((len(texts.offsets) - 1, width), np.float32)
    counts = np.zeros(len(sums), np.int64)
    _sum_all(
        texts.offsets,
        texts.data,
        model,
        _make_table(model, width),
        _make_buffers(settings.max_chars, settings.max_tokens),
        max_chars,
        lines,
        all_classes() if lines else _NO_CLASSES,
        sums.reshape(-1),
        counts,
    )
    return sums, counts


def _make_table(model: Model, width: int) -> TokenTable:
    """Return a table that has only ``</s>``."""
    table, end = make_table(width), model.settings.end
    if end >= model.settings.num_words:
        set_end(table, LABEL, np.zeros(0, np.float32))
    elif end >= 0:
        set_end(table, 1, vector_at(end, model))
    return table


def _make_buffers(max_chars: int, max_tokens: int) -> _Work:
    num_ngrams = _COLLECTED * max_tokens + SIZE * max_chars + LANES
    return _Work(
        starts=np.zeros(_COLLECTED, np.int64),
        stops=np.zeros(_COLLECTED, np.int64),
        slots=np.zeros(_COLLECTED + 1, np.int32),
        lanes=make_lanes(max_chars),
        ngrams=Ngrams(np.zeros(num_ngrams, np.uint32), np.zeros(num_ngrams, np.int32)),
        open_tokens=np.zeros(max_tokens, np.uint64),
    )


@kernel
def _sum_all(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    model: Model,
    table: TokenTable,
    work: _Work,
    max_chars: int,
    lines: bool,
    classes: NDArray[np.uint8],
    sums: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> None:
    last, width, window = last_slot(table), vector_width(table), 1
    for text in range(len(counts)):
        at, end = offsets[text], cut(data, offsets[text], offsets[text + 1], max_chars)
        if lines:
            at, end = strip(data, at, end, classes)
        # The slot after the last one belongs to the text: n-grams of tokens are added up there, since
        # they are of this text only.
        empty_slot(table, last + 1)
        block, inside, num, num_tokens = at - SIZE, np.int64(0), 0, 0
        # Long texts are collected in parts; ``</s>``, the token of slot ``last``, ends a text.
        while num == 0 or work.slots[num - 1] != last:
            num, block, inside = _collect_tokens(data, at, end, lines, block, inside, table, work)
            count, num_tokens, window = _sum_tokens(
                data, num, num_tokens, window, model, table, work, sums, text * width
            )
            counts[text] += count


@inner
def _collect_tokens(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    lines: bool,
    block: int,
    inside: int,
    table: TokenTable,
    work: _Work,
) -> tuple[int, int, int]:
    """Store the next tokens of a text and their slots, which begin to be loaded; the last one is ``</s>``.

    Return how many there are, and the state of ``next_token``.
    """
    last, slot, num = last_slot(table), 0, 0
    while num < _COLLECTED and slot != last:
        start, stop, block, inside = next_token(data, at, end, lines, block, inside)
        slot = last
        if start < end:
            slot = find_slot(load_key(data, start, stop, work.lanes.codes), last)
            # A slot is a random place in memory. Up to 1,024 are requested before the first one is read.
            prefetch(table.rows, slot * ROW)
        work.starts[num], work.stops[num], work.slots[num] = start, stop, slot
        num += 1
    return num, block, inside


@inner
def _sum_tokens(
    data: NDArray[np.uint8],
    num: int,
    num_tokens: int,
    window: int,
    model: Model,
    table: TokenTable,
    work: _Work,
    sums: NDArray[np.float32],
    place: int,
) -> tuple[int, int, int]:
    """Add the vectors of the collected tokens and their n-grams.

    Vectors that the table does not have are computed at the end of a window: after the last token, or
    before a slot would be needed for another token. Return how many vectors were added, the number of
    tokens of the text so far, and the next window.
    """
    last, total, first, size = last_slot(table), 0, 0, 0
    work.slots[num] = last + 1
    # The text's own slot counts once, with the last token.
    num_slots = num + 1 if work.slots[num - 1] == last else num
    for k in range(num + 1):
        slot, is_known = np.int64(work.slots[k]), True
        if slot < last:
            start, stop = work.starts[k], work.stops[k]
            key = load_key(data, start, stop, work.lanes.codes)
            is_known = has_token(table.rows, slot, key, stop - start)
        # The vectors of new tokens are summed together, at the end of a window, so that many n-grams are
        # loaded at once. A window also ends before a slot in use would be overwritten: its vector is not
        # added to the text yet.
        if k == num or (not is_known and table.rows[slot * ROW + USED] == window):
            add_ngrams(work.ngrams, size, model, table)
            end = num_slots if k == num else k
            total += _add_slots(first, end, table, work, sums, place)
            window, first, size = window + 1, k, 0
        if not is_known:
            size = _add_token(data, start, stop, key, slot, model, table, work, size)
        row = slot * ROW
        # A window has a number, so that no slot needs to be cleared for the next one.
        table.rows[row + USED] = window
        if model.settings.max_tokens > 1 and k < num and table.rows[row + COUNT] != LABEL:
            size = _collect_token_ngrams(
                table.rows[row + HASH], num_tokens, last + 1, model, work, size
            )
            num_tokens += 1
    return total, num_tokens, window


@inner
def _hash(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return FNV-1a of a token."""
    hashed = np.uint64(FNV_BASIS)
    for k in range(at, stop):
        hashed = (hashed ^ np.uint64(np.int8(data[k]))) * np.uint64(FNV_PRIME)
    return hashed & np.uint64(0xFFFFFFFF)


@inner
def _add_token(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    key: Key,
    slot: int,
    model: Model,
    table: TokenTable,
    work: _Work,
    size: int,
) -> int:
    """Give a token a slot with the vector of its word, and collect its n-grams of characters.

    Return how many n-grams were collected.
    """
    rows, row = table.rows, slot * ROW
    rows[row], rows[row + 1], rows[row + 2], rows[row + 3] = key
    rows[row + token_table.SIZE] = stop - at
    if model.settings.max_tokens > 1:
        rows[row + HASH] = _hash(data, at, stop)
    empty_slot(table, slot)
    word = find_word(data, at, stop, hash_key(key), model.vocabulary)
    is_label = word >= model.settings.num_words
    if word < 0:
        is_label = stop - at > 8 and key[0] == _PREFIX and data[at + 8] == _PREFIX_END
    # A label in a text is not a word: fastText skips it.
    if is_label:
        rows[row + COUNT] = LABEL
        return size
    if word >= 0:
        add_row(word, model, table.vectors, slot * vector_width(table))
        rows[row + COUNT] = 1
    if model.settings.max_chars == 0:
        return size
    chars = model.settings.min_chars, model.settings.max_chars
    # The n-grams are of ``<token>``: two bytes more. A token of any length is read in parts, and the
    # buffers hold the n-grams of one part more than ``_COLLECTED``.
    for part in range(0, stop - at + 2, SIZE):
        if size > _COLLECTED:
            add_ngrams(work.ngrams, size, model, table)
            size = 0
        before = size
        size = hash_ngrams(data, at, stop, part, chars, work.lanes, work.ngrams.hashes, size)
        for k in range(before, size, LANES):
            fill_lanes(work.ngrams.slots, k, slot)
    return size


@inner
def _collect_token_ngrams(
    hashed: int, num_tokens: int, slot: int, model: Model, work: _Work, size: int
) -> int:
    """Collect the n-grams that end with a token, for a slot, and return how many n-grams were collected.

    The hash of an n-gram is a polynomial of the hashes of its tokens.
    """
    hashes, num_buckets = work.open_tokens, np.uint64(model.settings.num_buckets)
    # fastText keeps a hash as an int32, and extends its sign.
    signed = np.uint64(np.int64(np.int32(hashed)))
    # hashes[n] has the n-gram of n + 1 tokens that ended before this one: each is extended by the token.
    # From the longest down, since each reads the next shorter one.
    for n in range(min(num_tokens, model.settings.max_tokens - 1), 0, -1):
        hashes[n] = hashes[n - 1] * _TOKEN_PRIME + signed
        work.ngrams.hashes[size] = hashes[n] % num_buckets
        work.ngrams.slots[size] = slot
        size += 1
    hashes[0] = signed
    return size


@inner
def _add_slots(
    first: int, stop: int, table: TokenTable, work: _Work, sums: NDArray[np.float32], place: int
) -> int:
    """Add the vectors of slots, and return how many were added up in them."""
    width, total = vector_width(table), 0
    for z in range(0, width, LANES):
        add_rows(sums, place + z, table.vectors, z, work.slots, first, stop, width)
    for k in range(first, stop):
        total += max(table.rows[np.int64(work.slots[k]) * ROW + COUNT], 0)
    return total
