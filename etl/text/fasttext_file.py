"""Read the files of supervised fastText models, as fastText 0.9 writes them (versions 11 and 12).

Layout, little-endian: magic and version (int32); 12 settings (int32) and one (float64); the number of
entries, words and labels (int32), of tokens (int64), of buckets that were kept (int64, -1 for all); entries:
bytes that end with NUL, count (int64), kind (int8: 0 word, 1 label); kept buckets (pairs of int32: bucket,
row). Then the matrix of words and buckets, and the matrix of labels, each: is it quantized (bool), rows and
columns (int64), numbers (float32). A quantized one has instead: are norms separate (bool), rows and columns
(int64), number of codes (int32), codes (uint8), quantizer; and of norms: codes, quantizer. A quantizer:
columns, parts, columns of a part, of the last part (int32), 256 centroids of each part (float32).

Large files are mapped, so that the workers of a machine share one copy in memory.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.fasttext.label_scores import TREE, Output, huffman_tree, logistic_table
from etl.kernels.fasttext.model import (
    FACTORS,
    KEY_BYTES,
    Model,
    ModelSettings,
    Vectors,
    Vocabulary,
    aligned_zeros,
)

_MAGIC: Final = 793712314
_VERSIONS: Final = (11, 12)
_END: Final = b"</s>"  # the token at the end of each text
_HEAD_BYTES: Final = 76  # a shorter file is not cut, but something else
_SUPERVISED: Final = 3
_LOSSES: Final = (1, 2, 3, 4)
_CENTROIDS: Final = 256
_MAX_NGRAM: Final = 1000  # chosen here: more is damage

_MAPPED_BYTES: Final = 64 << 20
"""Files of this size are mapped, and quantized vectors stay so if they would take more: chosen here.

Smaller ones are read, since a mapped file must not be written to while it is used.
"""

_WORD_BITS: Final = 8
"""The bits per word, at least, of the table that excludes most other tokens: 8 KB for lid.176.ftz."""

_ENTRIES: Final = 1 << 14  # whose keys are in memory at once

_BUCKET_BITS: Final = 4
"""The bits per kept bucket, at least, of the table that excludes most others: 32 KB for lid.176.ftz.

Measured: one exact table for all buckets (half a megabyte) did not stay in the cache beside the vectors.
"""

_Bytes = NDArray[np.uint8]


_NO_FILTER: Final = np.frombuffer(b"\xff" * 8, np.int64)


class DamagedModelError(Exception):
    """A file is not a model that can be used; the message says why."""


class ModelFile(NamedTuple):
    """A model as the kernels use it, and its labels in the order of its output matrix."""

    model: Model
    output: Output
    labels: tuple[str, ...]


def read_model(path: Path) -> ModelFile:
    """Read a model. Raises DamagedModelError, or OSError."""
    with path.open("rb") as file:
        size = path.stat().st_size
        is_large = size >= _MAPPED_BYTES
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_large else file.read()
    return _parse(_Reader(content, np.frombuffer(content, np.uint8)))


class _Settings(NamedTuple):
    """The settings at the start of a file."""

    dimension: int
    window: int
    epochs: int
    min_count: int
    negatives: int
    max_tokens: int
    loss: int
    kind: int
    num_buckets: int
    min_chars: int
    max_chars: int
    update_rate: int


@dataclass
class _Reader:
    """The bytes of a file, and how many of them were read."""

    content: bytes | mmap.mmap
    data: _Bytes  # the same bytes, read-only
    at: int = 0

    def take(self, size: int) -> _Bytes:
        """Return the next bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            raise DamagedModelError("the fastText model is truncated")
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Return the next numbers."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)).tobytes())

    def floats(self, *shape: int) -> NDArray[np.float32]:
        """Return a copy of the next float32."""
        return self.take(4 * int(np.prod(shape))).copy().view("<f4").reshape(shape)


def _parse(file: _Reader) -> ModelFile:
    """Return the model in a file."""
    settings = _read_settings(file)
    entries, num_words, num_labels, _, num_kept = file.unpack("iiiqq")
    _check(num_words >= 0 < num_labels == entries - num_words, "its labels are missing")
    starts, ends, counts = _read_entries(file, entries, num_words)
    kept = _read_kept_buckets(file, num_kept, settings.num_buckets) if num_kept >= 0 else None
    vectors = _read_vectors(file, settings, num_words, kept)
    weights = _read_matrix(file, settings.dimension)
    _check(
        len(weights) == num_labels, f"it has {len(weights)} rows of weights for {num_labels} labels"
    )
    _check(file.at == len(file.data), f"{len(file.data) - file.at} bytes follow the model")
    numbers = ModelSettings(
        dimension=settings.dimension,
        num_words=num_words,
        end=_find_end(file.data, starts, ends),
        num_buckets=max(settings.num_buckets, 1),
        is_pruned=int(kept is not None),
        min_chars=settings.min_chars,
        max_chars=settings.max_chars if settings.min_chars <= settings.max_chars else 0,
        max_tokens=max(settings.max_tokens, 1),
    )
    labels = tuple(
        file.data[start:end].tobytes().decode("utf-8", "replace")
        for start, end in zip(starts[num_words:], ends[num_words:], strict=True)
    )
    model = Model(numbers, _index(file.data, starts, ends), vectors)
    return ModelFile(model, _output(settings.loss, weights, counts), labels)


def _check(holds: object, problem: str) -> None:
    """Raise DamagedModelError unless a condition holds."""
    if not holds:
        raise DamagedModelError(f"the fastText model is damaged: {problem}")


def _read_settings(file: _Reader) -> _Settings:
    if len(file.data) < _HEAD_BYTES:
        raise DamagedModelError("not a fastText model")
    magic, version = file.unpack("ii")
    if magic != _MAGIC:
        raise DamagedModelError("not a fastText model")
    if version not in _VERSIONS:
        raise DamagedModelError(
            f"a fastText model of version {version}; only 11 and 12 can be read"
        )
    settings = _Settings(*file.unpack("12i"))
    file.unpack("d")
    if settings.kind != _SUPERVISED:
        raise DamagedModelError("not a supervised fastText model: it has no labels")
    _check(settings.dimension > 0, f"its vectors have {settings.dimension} dimensions")
    _check(settings.loss in _LOSSES, f"its loss is {settings.loss}, not 1 to 4")
    if version == 11:  # these did not use n-grams of characters
        settings = settings._replace(max_chars=0)
    lengths = settings.min_chars, settings.max_chars, settings.max_tokens
    _check(0 <= min(lengths) <= max(lengths) <= _MAX_NGRAM, f"its n-grams have lengths {lengths}")
    has_ngrams = settings.max_tokens > 1 or 0 < settings.max_chars >= settings.min_chars
    _check(settings.num_buckets > 0 or not has_ngrams, "it has n-grams, but no buckets")
    return settings


def _read_entries(
    file: _Reader, entries: int, num_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Return where the bytes of each entry start and end, and the counts of the labels."""
    # An entry is its bytes, a zero byte, a count (int64) and a kind (int8: 0 for a word, 1 for a label):
    # 10 bytes after the end.
    ends = np.fromiter(_entry_ends(file, entries), np.int64)
    if len(ends) < entries or ends[-1] + 10 > len(file.data):
        raise DamagedModelError("the fastText model is truncated")
    starts = np.concatenate([[file.at], ends[:-1] + 10])
    kinds = file.data[ends + 9]
    is_sorted = not kinds[:num_words].any() and bool((kinds[num_words:] == 1).all())
    _check(is_sorted, "its labels do not follow its words")
    counts = file.data[ends[num_words:, None] + np.arange(1, 9)].copy().view("<i8")[:, 0]
    file.at = int(ends[-1]) + 10
    return starts, ends, [int(count) for count in counts]


def _find_end(data: _Bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """Return the number of the entry ``</s>``, the last one of several; -1 if there is none."""
    entries = np.flatnonzero(ends - starts == len(_END))
    found = data[starts[entries, None] + np.arange(len(_END))] == np.frombuffer(_END, np.uint8)
    return int(entries[found.all(axis=1)].max(initial=-1))


def _entry_ends(file: _Reader, entries: int) -> Iterator[int]:
    """Yield where the bytes of each entry end; 0.2 us each."""
    at, find = file.at, file.content.find
    for _ in range(entries):
        end = find(b"\0", at)
        if end < 0:
            return
        yield end
        at = end + 10


def _read_kept_buckets(file: _Reader, num_kept: int, num_buckets: int) -> dict[int, int]:
    """Return the row of each bucket that was kept, counted from the first bucket."""
    pairs = file.take(8 * num_kept).copy().view("<i4").reshape(-1, 2)
    is_inside = bool((pairs >= 0).all() and (pairs[:, 0] < num_buckets).all())
    _check(is_inside, "its kept buckets are out of range")
    return dict(pairs.tolist())


def _read_vectors(
    file: _Reader, settings: _Settings, num_words: int, kept: dict[int, int] | None
) -> Vectors:
    """Read the vectors of words and buckets; kept buckets are put in their order."""
    none = Vectors(
        dense=_frozen(np.zeros(0, np.uint8)),
        codes=_frozen(np.zeros((0, 1), np.uint8)),
        norms=_frozen(np.zeros(0, np.float32)),
        centroids=_frozen(np.zeros((1, 1, 1), np.float32)),
        maybe=_NO_FILTER if kept is None else _filter(np.array([*kept], np.int64), _BUCKET_BITS),
        buckets=_index_buckets(sorted(kept or ()), 0 if kept is None else settings.num_buckets),
    )
    (is_quantized,) = file.unpack("?")
    if not is_quantized:
        if kept is not None:
            raise DamagedModelError("the fastText model has an old format: download a newer file")
        rows, columns = file.unpack("qq")
        _check_shape(rows, columns, num_words + settings.num_buckets, settings.dimension)
        return none._replace(dense=file.take(4 * rows * columns))
    codes, norms, centroids = _read_codes(file, settings.dimension)
    order = num_words + np.array(
        [kept[bucket] for bucket in sorted(kept)] if kept else [], np.int64
    )
    # The matrix must have all rows that kept buckets name, or else a row for every bucket.
    least = int(order.max(initial=num_words - 1)) + 1
    if kept is None:
        least += settings.num_buckets
    _check_shape(len(codes), settings.dimension, least, settings.dimension)
    if kept is not None:
        # In the order of their buckets, so that a rank in a bitmap finds the row of a bucket.
        codes = np.concatenate([codes[:num_words], codes[order]])
        norms = np.concatenate([norms[:num_words], norms[order]]) if len(norms) else norms
    # Sums of floats are faster than sums of centroids, so small models are decoded.
    if 4 * len(codes) * settings.dimension >= _MAPPED_BYTES:
        return none._replace(
            codes=_frozen(codes), norms=_frozen(norms), centroids=_frozen(centroids)
        )
    dense = aligned_zeros(len(codes) * settings.dimension, np.float32)
    dense[:] = _decode(codes, norms, centroids, settings.dimension).reshape(-1)
    return none._replace(dense=_frozen(dense.view(np.uint8)))


def _check_shape(rows: int, columns: int, least: int, dimension: int) -> None:
    _check(
        rows >= least and columns == dimension,
        f"a matrix is {rows} x {columns}, not at least {least} x {dimension}",
    )


def _read_matrix(file: _Reader, dimension: int) -> NDArray[np.float32]:
    (quantized,) = file.unpack("?")
    if quantized:
        return _decode(*_read_codes(file, dimension), dimension)
    rows, columns = file.unpack("qq")
    _check_shape(rows, columns, 1, dimension)
    return file.floats(rows, columns)


def _read_codes(
    file: _Reader, dimension: int
) -> tuple[_Bytes, NDArray[np.float32], NDArray[np.float32]]:
    """Return the codes (rows, parts), the norms (rows,) or none, and the centroids of a matrix."""
    has_norms, rows, columns, num_codes = file.unpack("?qqi")
    _check_shape(rows, columns, 0, dimension)
    codes = file.take(num_codes)
    centroids = _read_quantizer(file, dimension)
    _check(num_codes == rows * len(centroids), "its codes do not fit its vectors")
    norms = np.zeros(0, np.float32)
    if has_norms:
        norm_codes = file.take(rows)
        norms = _read_quantizer(file, 1)[0, :, 0][norm_codes]
    return codes.reshape(rows, len(centroids)), norms, centroids


def _read_quantizer(file: _Reader, dimension: int) -> NDArray[np.float32]:
    """Return the centroids (parts, 256, columns of a part), with zeros where the last part is smaller."""
    columns, parts, size, last = file.unpack("4i")
    fits = columns == dimension and size > 0 < last <= size and (parts - 1) * size + last == columns
    _check(fits, f"its quantizer has {parts} parts of {size} and {last} columns for {dimension}")
    # A single part has the size of the last one; the size that the file gives may be larger.
    size = size if parts > 1 else last
    flat = file.floats(columns * _CENTROIDS)
    centroids = np.zeros((parts, _CENTROIDS, size), np.float32)
    whole = (parts - 1) * _CENTROIDS * size
    centroids[:-1] = flat[:whole].reshape(parts - 1, _CENTROIDS, size)
    centroids[-1, :, :last] = flat[whole:].reshape(_CENTROIDS, last)
    return centroids


def _decode(
    codes: _Bytes, norms: NDArray[np.float32], centroids: NDArray[np.float32], dimension: int
) -> NDArray[np.float32]:
    """Return the vectors that codes represent."""
    parts, _, size = centroids.shape
    vectors = np.zeros((len(codes), parts * size), np.float32)
    for part in range(parts):
        vectors[:, part * size : (part + 1) * size] = centroids[part][codes[:, part]]
    if len(norms):
        vectors *= norms[:, None]
    return np.ascontiguousarray(vectors[:, :dimension])


def _index_buckets(kept: list[int], num_buckets: int) -> NDArray[np.int64]:
    """Return for each 64 buckets a bit for those that were kept, and the number of those before."""
    # Buckets 3, 70 and 71 of 128: block 0 has bit 3 and 0 before it, block 1 has bits 6 and 7 and 1
    # before.
    blocks = np.zeros((num_buckets // 64 + 1, 2), np.int64)
    buckets = np.array(kept, np.uint64)
    bits = np.zeros(len(blocks), np.uint64)
    np.bitwise_or.at(bits, buckets >> np.uint64(6), np.uint64(1) << (buckets & np.uint64(63)))
    blocks[:, 0] = bits.view(np.int64)
    blocks[1:, 1] = np.cumsum(np.bitwise_count(bits))[:-1]
    return _frozen(blocks)


def _filter(numbers: NDArray[Any], bits: int) -> NDArray[np.int64]:
    """Return a table by the low bits of a number, at least ``bits`` of each, that excludes most others."""
    # With 8 bits for each number, at most an eighth of the table is set: it excludes at least 7 of 8
    # others.
    size = max(64, 1 << (bits * len(numbers)).bit_length())
    table = np.zeros(size, np.bool_)
    table[numbers & (size - 1)] = True
    return _frozen(np.packbits(table, bitorder="little").view(np.int64))


def _index(data: _Bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Vocabulary:
    """Return the entries by their hashes."""
    hashes = np.concatenate(
        [
            _hash_entries(data, starts[k : k + _ENTRIES], ends[k : k + _ENTRIES])
            for k in range(0, len(starts), _ENTRIES)
        ]
    )
    ids = np.argsort(hashes, kind="stable").astype(np.int32)
    hashes = hashes[ids]
    # The top bits of a hash, about as many values as entries, lead to a range of about one entry.
    shift = 32 - len(ids).bit_length()
    firsts = np.searchsorted(hashes >> np.uint32(shift), np.arange((1 << (32 - shift)) + 1))
    return Vocabulary(
        file=data,
        starts=_frozen(starts),
        ends=_frozen(ends),
        maybe=_filter(hashes, _WORD_BITS),
        firsts=_frozen(firsts.astype(np.int64)),
        hashes=_frozen(hashes),
        ids=_frozen(ids),
        shift=shift,
    )


def _hash_entries(
    data: _Bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Return ``hash_key`` of each entry."""
    columns = np.arange(KEY_BYTES)
    # A key has the first bytes of an entry, zeros after its end. Bytes beyond it are read from index 0,
    # since the entry may be at the end of the file.
    inside = columns < (ends - starts)[:, None]
    keys = np.where(inside, data[np.where(inside, starts[:, None] + columns, 0)], 0)
    mixed = (keys.astype(np.uint8).view(np.uint64) * np.array(FACTORS)).sum(axis=1)
    hashes: NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32)
    return hashes


def _output(loss: int, weights: NDArray[np.float32], counts: list[int]) -> Output:
    """Return the output matrix with its rows as columns, and the tree if the loss has one."""
    rows, dimension = weights.shape
    padded = np.zeros((dimension, -(-rows // 16) * 16), np.float32)
    padded[:, :rows] = weights.T
    try:
        children, parents = huffman_tree(counts if loss == TREE else counts[:1])
    except ValueError as error:
        raise DamagedModelError(f"the fastText model is damaged: {error}") from error
    arrays = (padded, children, parents, logistic_table())
    return Output(loss, rows, *(_frozen(array) for array in arrays))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: numba compiles a kernel again for other flags."""
    view = array.view()
    view.flags.writeable = False
    return view
