"""Signatures and band keys against Python's integers and strings."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing import minhash_signatures
from etl.kernels.hashing.minhash_signatures import Shingling
from etl.kernels.hashing.shingle_sets import shingle_sets
from tests.helpers.naive_shingles import naive_units, shinglings
from tests.helpers.tricky_text import documents

MASK = (1 << 64) - 1


def naive_mixed(key: int) -> int:
    """Apply MurmurHash3's finalizer to an unsigned number."""
    key = (key ^ key >> 33 & 0x7FFFFFFF) * 0xFF51AFD7ED558CCD & MASK
    key = (key ^ key >> 33 & 0x7FFFFFFF) * 0xC4CEB9FE1A85EC53 & MASK
    return key ^ key >> 33 & 0x7FFFFFFF


def naive_key(unit: str, shingling: Shingling) -> int:
    if shingling.of_chars:
        return naive_mixed(ord(unit))
    key = 0xCBF29CE484222325  # FNV-1a
    for char in unit:
        key = (key ^ ord(char)) * 0x100000001B3 & MASK
    return naive_mixed(key)


def naive_hashes(text: str, shingling: Shingling) -> list[int]:
    keys = [naive_key(unit, shingling) for unit in naive_units(text, shingling)]
    runs = [keys[k : k + shingling.size] for k in range(max(1, len(keys) - shingling.size + 1))]
    base = 0x9E3779B97F4A7C15 - (2 << 63)
    hashes = []
    for run in runs if keys else []:
        total = 0
        for key in run:
            total = (total * base + key) & MASK
        hashes.append(naive_mixed(total))
    return hashes


def sign(texts: list[str], shingling: Shingling, permutations: int = 8, seed: int = 0):
    array = buffers(pa.array(texts, pa.string()))
    return minhash_signatures.signatures(array, shingling, permutations=permutations, seed=seed)


@given(st.lists(documents, max_size=4), shinglings, st.integers(1, 9), st.integers(0, 2**63 - 1))
@example(["Café 1984", "cafe\u0301 2026", "ΟΔΌΣ ﷺ 한국어 ़क़ ٣"], Shingling(1), 3, 0)
def test_signatures_are_those_of_python(texts, shingling, permutations, seed):
    factors, summands = minhash_signatures._permutations(permutations, seed)
    assert all(factor % 2 for factor in factors.tolist())
    for row, text in zip(sign(texts, shingling, permutations, seed), texts, strict=True):
        uppers = [value >> 32 for value in naive_hashes(text, shingling)]
        pairs = zip(factors.tolist(), summands.tolist(), strict=True)
        expected = [
            min((upper * a + b & 0xFFFFFFFF for upper in uppers), default=0xFFFFFFFF)
            for a, b in pairs
        ]
        assert row.tolist() == [len(naive_units(text, shingling)), *expected]


@given(st.lists(documents, max_size=4), shinglings)
def test_slices_and_nulls_are_signed(texts, shingling):
    whole = sign(texts, shingling)
    array = pa.array(["skipped", None, *texts, None])
    cut = minhash_signatures.signatures(buffers(array[1:]), shingling, permutations=8, seed=0)
    assert cut[1:-1].tolist() == whole.tolist()
    assert cut[0, 0] == cut[-1, 0] == 0


def test_case_digits_accents_and_punctuation_do_not_matter():
    one, *others = sign(
        ["The café: 12 notes!", "the CAFE 34 Notes", "the cafe\u0301 - 56 (notes)"], Shingling(2)
    )
    assert all(other.tolist() == one.tolist() for other in others)
    exact = Shingling(2, fold_digits=False, fold_accents=False)
    assert len({tuple(row) for row in sign(["cafe 1", "café 1", "cafe 2"], exact)}) == 3


def test_a_text_shorter_than_a_shingle_is_one_shingle():
    short, same, longer = sign(["one two", "One, two.", "one two three"], Shingling(5))
    assert short.tolist() == same.tolist() != longer.tolist()


def test_every_word_of_a_long_text_counts():
    words = [f"w{k}" for k in range(9000)]
    base = sign([" ".join(words)], Shingling(5, fold_digits=False), 64)
    for changed in (0, 4095, 4096, 8999):
        other = [*words[:changed], "changed", *words[changed + 1 :]]
        text = " ".join(other)
        (similarity,) = (base == sign([text], Shingling(5, fold_digits=False), 64)).mean(axis=1)
        assert similarity > 0.95
        pair = buffers(pa.array([" ".join(words), text]))
        sets = shingle_sets(pair, Shingling(5, fold_digits=False))
        before, after = (sets.hashes[a:b] for a, b in zip(sets.starts, sets.stops, strict=True))
        assert len(np.setdiff1d(before, after)) == min(5, changed + 1, 9000 - changed)


@pytest.mark.parametrize("similarity", [0.5, 0.8, 0.95])
def test_estimates_are_unbiased(similarity):
    """The mean error over 200 pairs and 112 permutations is less than 4 standard errors."""
    shared = 400
    alone = round(shared * (1 - similarity) / similarity / 2)
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(200):
        words = [f"{value:x}" for value in rng.integers(0, 2**62, shared + 2 * alone)]
        one, other = words[: shared + alone], [*words[:shared], *words[shared + alone :]]
        pair = sign([" ".join(one), " ".join(other)], Shingling(1, fold_digits=False), 112, 3)
        errors.append((pair[0, 1:] == pair[1, 1:]).mean() - shared / (shared + 2 * alone))
    assert abs(np.mean(errors)) < 4 * np.sqrt(similarity * (1 - similarity) / 112 / 200)


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), max_size=6))
def test_band_keys_are_equal_if_and_only_if_the_bands_are(rows):
    minima = np.array(rows, np.uint32).reshape(len(rows), 6)
    keys = minhash_signatures.band_keys(minima, 3)
    bands = [(band, *row[2 * band : 2 * band + 2]) for row in rows for band in range(3)]
    flat = keys.ravel().tolist()
    assert keys.shape == (len(rows), 3)
    assert len(set(flat)) == len(set(bands)) == len({*zip(flat, bands, strict=True)})
