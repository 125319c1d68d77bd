"""XXH3-128 against the library xxhash, for every length at which the algorithm changes."""

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.hashing.xxh3 import LANES, hash_records, hash_values

LENGTHS = [*range(300), 511, 512, 513, 1023, 1024, 1025, 1088, 1089, 2047, 2048, 2049, 5000, 70_000]


def hashes_of(parts: list[bytes]) -> list[int]:
    """Return the hashes of some byte strings by the kernel."""
    data = np.frombuffer(b"".join(parts), np.uint8)
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    data.flags.writeable = offsets.flags.writeable = False
    hashes = np.empty((len(parts), 2), np.uint64)
    hash_values(data, offsets, np.empty(LANES, np.uint64), hashes)
    return [int(low) | int(high) << 64 for low, high in hashes.tolist()]


@pytest.mark.parametrize("byte", [0, 0x80, 0xFF, None])
def test_every_length_has_the_hash_of_the_library(byte: int | None) -> None:
    numbers = np.random.default_rng(1)
    parts = [numbers.bytes(size) if byte is None else bytes([byte]) * size for size in LENGTHS]
    assert hashes_of(parts) == [xxhash.xxh3_128_intdigest(part) for part in parts]


@given(st.lists(st.binary(max_size=300), min_size=1))
@example([b""])
def test_any_bytes_have_the_hash_of_the_library(parts: list[bytes]) -> None:
    assert hashes_of(parts) == [xxhash.xxh3_128_intdigest(part) for part in parts]


@given(st.data())
def test_a_record_is_hashed_without_the_fields_that_are_not_valid(data: st.DataObject) -> None:
    columns, rows = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 5))
    numbers = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    fields = numbers.integers(0, 1 << 64, (columns, rows, 2), np.uint64)
    names = numbers.integers(0, 1 << 64, (columns, 2), np.uint64)
    valid = numbers.random((columns, rows)) < data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    hashes, record = np.empty((rows, 2), np.uint64), np.empty(4 * columns, np.uint64)
    lanes = np.empty(LANES, np.uint64)
    hash_records(fields, valid, names, record, record.view(np.uint8), lanes, hashes)
    for row in range(rows):
        parts = [
            names[k].tobytes() + fields[k, row].tobytes() for k in range(columns) if valid[k, row]
        ]
        expected = xxhash.xxh3_128_intdigest(b"".join(parts)).to_bytes(16, "little")
        assert hashes[row].tobytes() == expected
