"""Write small fastText models with random weights, in every variant that fastText can write."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WORDS = ("the", "and", "über", "мир", "你好", "x", "</s>", "naïve", "e" * 40)
LABELS = (
    "__label__en",
    "__label__de",
    "__label__zh",
    "__label__low quality",
    "__label__ü",
    "no_prefix",
)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The settings of a model; ``loss`` is 1 for a tree, 2 negatives, 3 softmax, 4 one versus all."""

    loss: int = 3
    dim: int = 16
    minn: int = 0
    maxn: int = 0
    word_ngrams: int = 1
    buckets: int = 0
    words: tuple[str, ...] = WORDS
    labels: tuple[str, ...] = LABELS
    dsub: int | None = None  # columns of a part, if quantized
    norms: bool = False
    quantized_output: bool = False
    kept: int | None = None  # buckets that are not pruned
    version: int = 12
    scale: float = 1.0


VARIANTS = {
    "tree": Variant(loss=1, minn=2, maxn=4, buckets=50),
    "negatives": Variant(loss=2, minn=1, maxn=3, buckets=7, dim=3),
    "softmax": Variant(word_ngrams=3, buckets=64, dim=21),
    "each": Variant(loss=4, minn=3, maxn=6, word_ngrams=2, buckets=1000, dim=100),
    "words": Variant(dim=2),
    "one bucket": Variant(minn=0, maxn=5, buckets=1, dim=40),
    "inverted": Variant(minn=3, maxn=2, buckets=10),
    "quantized": Variant(minn=2, maxn=3, buckets=300, dsub=2),
    "norms": Variant(loss=1, minn=1, maxn=4, buckets=300, dim=15, dsub=4, norms=True),
    "pruned": Variant(loss=1, minn=2, maxn=4, buckets=2000, dsub=2, norms=True, kept=700),
    "pruned pairs": Variant(word_ngrams=2, buckets=500, dim=7, dsub=3, kept=400),
    "all pruned": Variant(minn=2, maxn=4, buckets=2000, dsub=2, kept=0),
    "output": Variant(buckets=90, minn=3, maxn=3, dsub=2, quantized_output=True, norms=True),
    "no end": Variant(words=("the", "und"), buckets=100, minn=3, maxn=4),
    "one label": Variant(loss=1, labels=("__label__a",), buckets=10, word_ngrams=2),
    "old": Variant(version=11, minn=2, maxn=3, buckets=20, word_ngrams=2),
    "sure": Variant(loss=1, minn=2, maxn=4, buckets=50, scale=1.5),
    "sure each": Variant(loss=4, minn=2, maxn=4, buckets=50, scale=1.5),
    "zeros": Variant(loss=1, minn=2, maxn=4, buckets=50, scale=0.0),
}
"""Variants by name."""


def write_variant(path: Path, variant: Variant, *, seed: int = 0) -> Path:
    """Write a model, and return its path."""
    random = np.random.default_rng(seed)
    words, labels = variant.words, variant.labels
    out = struct.pack("<ii", 793712314, variant.version)
    settings = (variant.dim, 5, 1, 1, 5, variant.word_ngrams, variant.loss, 3)
    out += struct.pack("<12id", *settings, variant.buckets, variant.minn, variant.maxn, 100, 1e-4)
    kept = -1 if variant.kept is None else variant.kept
    out += struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 99, kept)
    for kind, names in enumerate((words, labels)):
        for rank, name in enumerate(names):
            out += name.encode() + b"\0" + struct.pack("<qb", 1000 >> rank, kind)
    if kept > 0:
        buckets = random.choice(variant.buckets, kept, replace=False)
        out += np.stack([buckets, random.permutation(kept)], axis=1).astype("<i4").tobytes()
    rows = len(words) + (variant.buckets if kept < 0 else kept)
    out += _matrix(random, rows, variant, quantized=variant.dsub is not None)
    out += _matrix(random, len(labels), variant, quantized=variant.quantized_output)
    path.write_bytes(out)
    return path


def _matrix(random: np.random.Generator, rows: int, variant: Variant, *, quantized: bool) -> bytes:
    dim = variant.dim
    if not quantized:
        numbers = random.normal(size=rows * dim) * variant.scale
        return struct.pack("<?qq", False, rows, dim) + numbers.astype("<f4").tobytes()
    dsub = variant.dsub or 2
    parts = -(-dim // dsub)
    codes = random.integers(0, 256, rows * parts).astype(np.uint8).tobytes()
    out = struct.pack("<??qqi", True, variant.norms, rows, dim, len(codes)) + codes
    out += _quantizer(random, dim, dsub)
    if variant.norms:
        out += random.integers(0, 256, rows).astype(np.uint8).tobytes() + _quantizer(random, 1, 1)
    return out


def _quantizer(random: np.random.Generator, dim: int, dsub: int) -> bytes:
    head = struct.pack("<iiii", dim, -(-dim // dsub), dsub, dim % dsub or dsub)
    return head + random.normal(size=dim * 256).astype("<f4").tobytes()
