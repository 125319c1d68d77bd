"""Sum the vectors of the words and n-grams of texts, as fastText does (Joulin et al. 2016, arXiv 1607.01759).

A text is one line. Its tokens are separated by space, tab, line feed, vertical tab, form feed, carriage
return and NUL. Each token has a vector: that of the word, if the model knows it, plus those of the n-grams
of characters of ``<token>``. Then follow the token ``</s>`` and the n-grams of tokens. An n-gram has the
vector of its bucket: FNV-1a of its bytes (or a polynomial of the hashes of its tokens) modulo the number of
buckets. A pruned model keeps the vectors of some buckets only.

Most tokens occurred in the texts before, so a table keeps the vectors of recent ones: of real text, it has
six to eight of ten. The vector of a token is always summed first, so that a result does not depend on
what is in the table. It differs from fastText's by rounding: both add float32, in different orders.

``W`` is the width of a vector: the model's dimension, rounded up to a multiple of 16, with zeros at the end.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import classes as all_classes
from etl.kernels.bytes.line_breaks import strip
from etl.kernels.bytes.simd import (
    CONTINUED,
    FNV_BASIS,
    FNV_PRIME,
    LANES,
    SIZE,
    add_floats,
    clear_first_bit,
    copy_64,
    count_ones,
    first_bit,
    fnv_steps,
    load_float,
    load_up_to_eight,
    low_bits,
    make_byte_finder,
)
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.fasttext import LABEL_PREFIX
from etl.kernels.jit import inner, kernel, rare

NO_LIMIT: Final = 1 << 62
"""The value of ``max_chars`` for whole texts."""

_SLOT_BITS: Final = 12
_SLOTS: Final = 1 << _SLOT_BITS  # of the table of tokens
_KEY_BYTES: Final = 32  # longer tokens are not kept
_PART: Final = 512  # characters of a token that are hashed at once, a multiple of LANES
_MAX_WIDTH: Final = 4  # of a character, in bytes
_TOKEN_PRIME: Final = np.uint64(116049371)  # of fastText, for n-grams of tokens
_SIX_BITS: Final = np.uint64(63)
_LOW: Final = np.uint64(0xFFFFFFFF)
_FIRST_BYTE: Final = -64  # the least signed byte that begins a character
_EOS: Final = int.from_bytes(b"</s>", "little")
_PREFIX: Final = int.from_bytes(LABEL_PREFIX[:8].encode(), "little")
_PREFIX_END: Final = ord(LABEL_PREFIX[8])
_LABEL: Final = -1  # as the number of vectors of a token

_EOS_BYTES: Final = np.frombuffer(b"</s>", np.uint8)
_NO_CLASSES: Final = np.frombuffer(b"\0", np.uint8)  # read-only, as the real ones

_find_spaces = make_byte_finder(b"\0\t\n\v\f\r ")
_find_breaks = make_byte_finder(b"\0\t\n\v\f\r \x1c\x1d\x1e", b"\xc2\xe2")
_find_continued = make_byte_finder(CONTINUED)


class Settings(NamedTuple):
    """The numbers that determine which n-grams a model has."""

    dimension: int
    num_words: int
    num_buckets: int
    is_pruned: int  # 1 if only some buckets have vectors
    min_chars: int
    max_chars: int  # 0: no n-grams of characters
    max_tokens: int  # 1: no n-grams of tokens


class Vocabulary(NamedTuple):
    """The words, then the labels of a model, indexed by their hashes."""

    file: NDArray[np.uint8]  # that contains them
    starts: NDArray[np.int64]  # (entries,)
    ends: NDArray[np.int64]  # (entries,)
    firsts: NDArray[np.int64]  # (2^k + 1,) by the high bits of a hash: the first of its entries
    hashes: NDArray[np.uint32]  # (entries,) sorted
    ids: NDArray[np.int32]  # (entries,) in the order of the hashes
    shift: int  # 32 - k


class Vectors(NamedTuple):
    """The vectors of words, then those of buckets: dense, or the codes of a product quantizer."""

    dense: NDArray[
        np.uint8
    ]  # bytes of float32 (rows, dimension), aligned or not; empty if quantized
    codes: NDArray[np.uint8]  # (rows, parts)
    norms: NDArray[np.float32]  # (rows,) or empty
    centroids: NDArray[np.float32]  # (parts, 256, numbers of a part)
    buckets: NDArray[np.int64]  # (blocks, 2) of 64 buckets: which have a vector, how many before do
    maybe: NDArray[np.int64]  # (2^k / 64,) by the low k bits of a bucket: 0 if it has no vector


class Model(NamedTuple):
    """A model without its labels."""

    settings: Settings
    vocabulary: Vocabulary
    vectors: Vectors


class _Tokens(NamedTuple):
    """The table of tokens that occurred, by a hash of their bytes; the last slot is for long ones."""

    keys: NDArray[np.int64]  # (slots, 4) bytes of a token, padded with zeros
    hashes: NDArray[np.uint64]  # (slots,) FNV-1a
    counts: NDArray[np.int64]  # (slots,) the number of vectors that were added up, or _LABEL
    vectors: NDArray[np.float32]  # (slots * W,)


class _Scratch(NamedTuple):
    """Buffers of one call."""

    codes: NDArray[np.int8]  # (4 P,) the first bytes of characters, then the second ones, and so on
    widths: NDArray[np.int8]  # (P,) the number of bytes of each character
    hashes: NDArray[np.uint32]  # (P,) of the n-grams that begin with each character
    open_tokens: NDArray[np.uint64]  # (max_tokens + 1,) of n-grams of tokens
    ngrams: NDArray[np.uint32]  # of one part of a token


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
    plane = _PART + settings.max_chars + LANES
    tokens = _Tokens(
        np.zeros((_SLOTS + 2, 4), np.int64),
        np.zeros(_SLOTS + 2, np.uint64),
        np.zeros(_SLOTS + 2, np.int64),
        np.zeros((_SLOTS + 2) * width, np.float32),
    )
    scratch = _Scratch(
        np.zeros(_MAX_WIDTH * plane, np.int8),
        np.zeros(plane, np.int8),
        np.zeros(plane, np.uint32),
        np.zeros(settings.max_tokens, np.uint64),
        np.zeros(_PART * settings.max_chars + LANES, np.uint32),
    )
    classes = all_classes() if lines else _NO_CLASSES
    _sum_all(
        texts.offsets,
        texts.data,
        model,
        tokens,
        scratch,
        max_chars,
        lines,
        classes,
        _EOS_BYTES,
        sums.reshape(-1),
        counts,
    )
    return sums, counts


@kernel
def _sum_all(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    model: Model,
    tokens: _Tokens,
    scratch: _Scratch,
    max_chars: int,
    lines: bool,
    classes: NDArray[np.uint8],
    eos: NDArray[np.uint8],
    sums: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> None:
    width = len(tokens.vectors) // len(tokens.counts)
    max_tokens = model.settings.max_tokens
    _add_token(eos, 0, 4, _EOS, _SLOTS + 1, model, tokens, scratch)
    for k in range(len(counts)):
        at, end = offsets[k], _cut(data, offsets[k], offsets[k + 1], max_chars)
        if lines:
            at, end = strip(data, at, end, classes)
        total, num_tokens, ended = 0, 0, False
        while not ended:
            at = _next_token(data, at, end, lines)
            stop = _token_end(data, at, end, lines)
            if at < end:
                slot = _find_token(data, at, stop, model, tokens, scratch)
                ended = tokens.keys[slot, 0] == _EOS
            else:
                slot, ended = _SLOTS + 1, True
            at = stop
            count = tokens.counts[slot]
            if count == _LABEL:
                continue
            for z in range(0, width, LANES):
                add_floats(sums, k * width + z, tokens.vectors, slot * width + z)
            total += count
            if max_tokens > 1:
                total += _add_token_ngrams(
                    np.uint64(tokens.hashes[slot]), num_tokens, model, scratch, sums, k * width
                )
            num_tokens += 1
        counts[k] = total


# Text into tokens.


@inner
def _cut(data: NDArray[np.uint8], at: int, end: int, max_chars: int) -> int:
    """Return the byte after the first ``max_chars`` characters."""
    if end - at <= max_chars:
        return end
    while at < end:
        starts = ~_find_continued(data, at)[0] & low_bits(end - at)
        num_starts = count_ones(starts)
        if num_starts > max_chars:
            for _ in range(max_chars):
                starts = clear_first_bit(starts)
            return at + first_bit(starts)
        max_chars -= num_starts
        at += SIZE
    return end


@inner
def _break_width(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the bytes of the line break of two or three bytes at an offset, or 0."""
    if data[at] == 0xC2:
        return 2 if at + 1 < end and data[at + 1] == 0x85 else 0
    if at + 2 < end and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] & 0xFE == 0xA8:
        return 3
    return 0


@inner
def _is_space(byte: int, lines: bool) -> bool:
    """Return whether a byte separates tokens."""
    return byte <= 0x20 and (
        byte == 0x20 or 0x09 <= byte <= 0x0D or byte == 0 or (lines and 0x1C <= byte <= 0x1E)
    )


@inner
def _next_token(data: NDArray[np.uint8], at: int, end: int, lines: bool) -> int:
    """Return the first byte from ``at`` on that belongs to a token, or ``end``."""
    while at < end:
        if _is_space(data[at], lines):
            at += 1
            continue
        width = _break_width(data, at, end) if lines else 0
        if width == 0:
            return at
        at += width
    return end


@inner
def _token_end(data: NDArray[np.uint8], at: int, end: int, lines: bool) -> int:
    """Return the byte after the token at an offset."""
    if not lines:
        while at < end:
            spaces = _find_spaces(data, at)[0]
            if spaces:
                return min(at + first_bit(spaces), end)
            at += SIZE
        return end
    while at < end:
        spaces, leads = _find_breaks(data, at)
        while leads:
            lead = first_bit(leads)
            if at + lead < end and _break_width(data, at + lead, end):
                spaces |= np.int64(1) << lead
                break
            leads = clear_first_bit(leads)
        if spaces:
            return min(at + first_bit(spaces), end)
        at += SIZE
    return end


# Tokens into vectors.


@inner
def _find_token(
    data: NDArray[np.uint8], at: int, stop: int, model: Model, tokens: _Tokens, scratch: _Scratch
) -> int:
    """Return the slot of the table that has a token, after adding it if it is not there."""
    size = stop - at
    one = load_up_to_eight(data, at, stop)
    two = three = four = np.int64(0)
    if size > 8:
        two = load_up_to_eight(data, at + 8, stop)
        if size > 16:
            three = load_up_to_eight(data, at + 16, stop)
            if size > 24:
                four = load_up_to_eight(data, at + 24, stop)
    mixed = np.uint64(one) * np.uint64(0x9E3779B97F4A7C15)
    mixed = ((mixed ^ (mixed >> np.uint64(29))) + np.uint64(two)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = ((mixed ^ (mixed >> np.uint64(31))) + np.uint64(three)) * np.uint64(0x94D049BB133111EB)
    mixed = ((mixed ^ (mixed >> np.uint64(30))) + np.uint64(four)) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(64 - _SLOT_BITS)) if size <= _KEY_BYTES else np.int64(_SLOTS)
    key = tokens.keys[slot]
    if size > _KEY_BYTES or key[0] != one or key[1] != two or key[2] != three or key[3] != four:
        key[0], key[1], key[2], key[3] = one, two, three, four
        _add_token(data, at, stop, one, slot, model, tokens, scratch)
    return slot


@rare
def _add_token(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    head: int,
    slot: int,
    model: Model,
    tokens: _Tokens,
    scratch: _Scratch,
) -> None:
    """Store the vector of a token in a slot: of the word, and of its n-grams of characters."""
    hashed = np.uint64(FNV_BASIS)
    for k in range(at, stop):
        hashed = (hashed ^ np.uint64(np.int8(data[k]))) * np.uint64(FNV_PRIME)
    hashed &= _LOW
    tokens.hashes[slot] = hashed
    width = len(tokens.vectors) // len(tokens.counts)
    first = slot * width
    for z in range(first, first + width):
        tokens.vectors[z] = 0
    word = _find_word(data, at, stop, hashed, model.vocabulary)
    is_label = word >= model.settings.num_words
    if word < 0:
        is_label = stop - at > 8 and head == _PREFIX and data[at + 8] == _PREFIX_END
    if is_label:
        tokens.counts[slot] = _LABEL
        return
    count = 0
    if word >= 0:
        _add_row(word, model, tokens.vectors, first)
        count = 1
    if model.settings.max_chars > 0 and head != _EOS:
        count += _add_char_ngrams(data, at, stop, model, scratch, tokens.vectors, first)
    tokens.counts[slot] = count


@inner
def _find_word(
    data: NDArray[np.uint8], at: int, stop: int, hashed: int, vocabulary: Vocabulary
) -> int:
    """Return the number of a word or label, or -1. Of equal entries, the last one counts, as in fastText."""
    prefix = np.int64(hashed >> np.uint64(vocabulary.shift))
    found = -1
    for k in range(vocabulary.firsts[prefix], vocabulary.firsts[prefix + 1]):
        if np.uint64(vocabulary.hashes[k]) == hashed:
            entry = np.int64(vocabulary.ids[k])
            start = vocabulary.starts[entry]
            if vocabulary.ends[entry] - start == stop - at:
                z = 0
                while z < stop - at and vocabulary.file[start + z] == data[at + z]:
                    z += 1
                if z == stop - at:
                    found = entry
    return found


@inner
def _add_char_ngrams(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    model: Model,
    scratch: _Scratch,
    sums: NDArray[np.float32],
    place: int,
) -> int:
    """Add the vectors of the n-grams of characters of ``<token>``, and return how many there are.

    A bracket alone is not an n-gram. Continuation bytes belong to the character before them, whatever it is;
    more than three, which are not UTF-8, begin a new one. Long tokens are read in parts.
    """
    most = model.settings.max_chars
    count, after = 0, at - 1
    while after <= stop:
        begin = after
        num_chars, widest, after = _split_chars(data, begin, at, stop, most, scratch)
        num_starts, size = min(num_chars, _PART), 0
        for k in range(num_starts):
            scratch.hashes[k] = FNV_BASIS
        for n in range(1, most + 1):
            _extend_hashes(n, num_starts, widest, scratch)
            if n >= model.settings.min_chars:
                first, last = 0, min(num_starts, num_chars - n + 1)
                if n == 1:
                    first, last = int(begin < at), last - int(after > stop)
                for k in range(first, last, LANES):
                    copy_64(scratch.ngrams, size + k - first, scratch.hashes, k)
                size += max(last - first, 0)
        count += _add_ngrams(size, model, scratch, sums, place)
    return count


@inner
def _extend_hashes(n: int, num_starts: int, widest: int, scratch: _Scratch) -> None:
    """Extend the hashes of the n-grams of ``n`` - 1 characters by one character each."""
    plane = len(scratch.widths)
    for width in range(widest):
        for k in range(0, num_starts, LANES):
            at = k + n - 1
            fnv_steps(
                scratch.hashes, k, scratch.codes, width * plane + at, scratch.widths, at, width
            )


@inner
def _split_chars(
    data: NDArray[np.uint8], begin: int, at: int, stop: int, most: int, scratch: _Scratch
) -> tuple[int, int, int]:
    """Store the bytes and widths of the characters of ``<token>`` from a byte on, those of a part.

    Return how many there are, with those that n-grams of the part need; the width of the widest; and where
    the next part begins.
    """
    codes, widths = scratch.codes, scratch.widths
    plane = len(widths)
    num_chars, width, widest, after = 0, 0, 1, stop + 1
    for k in range(begin, stop + 1):
        code = np.int8(60) if k < at else np.int8(62) if k == stop else np.int8(data[k])
        if code < _FIRST_BYTE and 0 < width < _MAX_WIDTH:
            codes[width * plane + num_chars - 1] = code
            width += 1
            widths[num_chars - 1] = width
            widest = max(widest, width)
            continue
        if num_chars == _PART:
            after = k
        if num_chars == _PART + most - 1:
            break
        codes[num_chars] = code
        widths[num_chars] = width = 1
        num_chars += 1
    return num_chars, widest, after


@inner
def _add_ngrams(
    size: int, model: Model, scratch: _Scratch, sums: NDArray[np.float32], place: int
) -> int:
    """Add the vectors of n-grams, of which ``scratch.ngrams`` has the hashes; return how many there are.

    In steps, each in place: buckets, those that may have a vector, rows. What a step drops is stored and then
    overwritten, since no branch could be predicted, and so that loads do not wait for each other.
    """
    ngrams, vectors = scratch.ngrams, model.vectors
    num_buckets = np.uint64(model.settings.num_buckets)
    inverse = ~np.uint64(0) // num_buckets
    high, low = inverse >> np.uint64(32), inverse & _LOW
    for k in range(size):
        hashed = np.uint64(ngrams[k])
        quotient = (high * hashed + (low * hashed >> np.uint64(32))) >> np.uint64(32)
        rest = hashed - quotient * num_buckets
        ngrams[k] = rest - num_buckets if rest >= num_buckets else rest
    if model.settings.is_pruned:
        count, mask = 0, np.uint64(len(vectors.maybe) * 64 - 1)
        for k in range(size):
            bucket = np.uint64(ngrams[k])
            ngrams[count] = bucket
            count += vectors.maybe[(bucket & mask) >> np.uint64(6)] >> (bucket & _SIX_BITS) & 1
        size, count = count, 0
        for k in range(size):
            row, is_kept = _find_row(np.uint64(ngrams[k]), vectors)
            ngrams[count] = row
            count += is_kept
        size = count
    for k in range(size):
        _add_row(model.settings.num_words + np.int64(ngrams[k]), model, sums, place)
    return size


@inner
def _find_row(bucket: int, vectors: Vectors) -> tuple[int, int]:
    """Return the row of a bucket, counted from the first one that was kept, and 1 if it was, else 0."""
    block, bit = bucket >> np.uint64(6), bucket & _SIX_BITS
    kept = vectors.buckets[block, 0]
    before = kept & (np.int64(1) << np.int64(bit)) - 1
    return vectors.buckets[block, 1] + count_ones(before), kept >> np.int64(bit) & 1


@inner
def _add_token_ngrams(
    hashed: int,
    num_before: int,
    model: Model,
    scratch: _Scratch,
    sums: NDArray[np.float32],
    first: int,
) -> int:
    """Add the vectors of the n-grams that end with a token, and return how many there are."""
    hashes, count = scratch.open_tokens, 0
    # fastText keeps a hash as an int32, and extends its sign.
    signed = np.uint64(np.int64(np.int32(hashed)))
    for n in range(min(num_before, model.settings.max_tokens - 1), 0, -1):
        hashes[n] = hashes[n - 1] * _TOKEN_PRIME + signed
        row, has_vector = hashes[n] % np.uint64(model.settings.num_buckets), 1
        if model.settings.is_pruned:
            kept_row, has_vector = _find_row(row, model.vectors)
            row = np.uint64(kept_row)
        if has_vector:
            _add_row(model.settings.num_words + np.int64(row), model, sums, first)
            count += 1
    hashes[0] = signed
    return count


# Vectors.


@inner
def _add_row(row: int, model: Model, sums: NDArray[np.float32], first: int) -> None:
    """Add a vector to the numbers from ``first`` on."""
    dimension, vectors = model.settings.dimension, model.vectors
    if len(vectors.dense):
        at, whole = row * dimension * 4, dimension - dimension % LANES
        for z in range(0, whole, LANES):
            add_floats(sums, first + z, vectors.dense, at + 4 * z)
        for z in range(whole, dimension):
            sums[first + z] += load_float(vectors.dense, at + 4 * z)
        return
    parts = vectors.codes.shape[1]
    size = vectors.centroids.shape[2]
    norm = vectors.norms[row] if len(vectors.norms) else np.float32(1)
    for part in range(parts):
        code = vectors.codes[row, part]
        for z in range(min(size, dimension - part * size)):
            sums[first + part * size + z] += norm * vectors.centroids[part, code, z]
