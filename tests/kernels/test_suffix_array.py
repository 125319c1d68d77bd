"""Repeated windows of real and of random text against a suffix array, which holds more than a dictionary."""

import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.helpers.cut_by_kernels import encoded, masks
from tests.helpers.naive_substrings import corpus, cut_masks

pydivsufsort = pytest.importorskip("pydivsufsort", reason="needs the extra dev")

ROOT = Path(__file__).parent.parent.parent


def suffix_array_masks(documents, size):
    """Return which bytes are in a repeated window; documents must not have the byte 255."""
    joined = np.frombuffer(bytearray(b"\xff".join(documents) + b"\xff"), np.uint8)
    ends = np.cumsum([len(d) + 1 for d in documents]) - 1
    suffixes = pydivsufsort.divsufsort(joined).astype(np.int64)
    common = np.concatenate([[0], pydivsufsort.kasai(joined, suffixes.astype(np.int32))[:-1]])
    group = np.cumsum(common < size)  # suffixes that begin with the same window have one number
    document = np.searchsorted(ends, suffixes)
    inside = suffixes + size <= ends[document]
    first = np.full(group[-1] + 1, len(joined), np.int64)
    np.minimum.at(first, group[inside], suffixes[inside])
    starts, owners, firsts = suffixes[inside], document[inside], first[group[inside]]
    is_repeat = (np.searchsorted(ends, firsts) < owners) | (starts - firsts >= size)
    covered = np.zeros(len(joined) + size + 1, np.int64)
    np.add.at(covered, starts[is_repeat], 1)
    np.add.at(covered, starts[is_repeat] + size, -1)
    is_cut = np.cumsum(covered) > 0
    begins = [0, *(ends[:-1] + 1).tolist()]
    return [is_cut[a:b].tolist() for a, b in zip(begins, ends.tolist(), strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_dictionary_and_a_suffix_array_agree(seed):
    rng = random.Random(seed)
    size = rng.choice([8, 20, 50])
    documents = encoded(corpus(rng, size))
    assert suffix_array_masks(documents, size) == cut_masks(documents, size)


@pytest.mark.parametrize("size", [50, 200, 500])
def test_real_text(size):
    """Pages of the sample, some of them twice, with parts of others."""
    column = pq.read_table(ROOT / "pipelines/sample/handbook-00000.parquet")
    texts = [t for t in column["content"].to_pylist() if t][:300]
    rng = random.Random(size)
    for _ in range(60):
        source, start = rng.choice(texts), rng.randrange(1000)
        texts.append(rng.choice(texts)[:start] + source[start : start + 2 * size])
    expected = suffix_array_masks(encoded(texts), size)
    assert sum(map(sum, expected)) > 10_000
    assert masks(texts, size) == expected
