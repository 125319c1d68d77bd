"""Sets of positions survive their encoding, also in containers that only other programs write."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.delta import roaring
from etl.parquet.data_file_reader import Positions

DENSE = st.builds(
    lambda start, length, step: set(range(start, start + length * step, step)),
    st.integers(0, 1 << 18),
    st.integers(0, 9000),
    st.integers(1, 3),
)
SETS = st.builds(
    lambda few, dense, high: few | {position + (high << 31) for position in dense},
    st.sets(st.integers(0, 1 << 40), max_size=30),
    DENSE,
    st.integers(0, 5),
)


def of(positions: set[int]) -> Positions:
    return np.array(sorted(positions), np.int64)


def with_runs(positions: set[int]) -> bytes:
    """Encode a set as the format's text says, with a list of runs in each container, value by value."""
    bitmaps: dict[int, dict[int, list[int]]] = {}
    for position in sorted(positions):
        key = position >> 16 & 0xFFFF
        bitmaps.setdefault(position >> 32, {}).setdefault(key, []).append(position & 0xFFFF)
    out = struct.pack("<iq", 1681511377, len(bitmaps))
    for high, containers in bitmaps.items():
        count = len(containers)
        head = struct.pack("<I", 12347 | (count - 1) << 16) + b"\xff" * ((count + 7) // 8)
        head += b"".join(struct.pack("<HH", k, len(v) - 1) for k, v in containers.items())
        bodies = []
        for values in containers.values():
            runs: list[list[int]] = []
            for value in values:
                if runs and value == runs[-1][0] + runs[-1][1] + 1:
                    runs[-1][1] += 1
                else:
                    runs.append([value, 0])
            bodies.append(
                struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *r) for r in runs)
            )
        start, offsets = len(head) + 4 * count, b""
        for body in bodies if count >= 4 else ():
            offsets += struct.pack("<I", start)
            start += len(body)
        out += struct.pack("<I", high) + head + offsets + b"".join(bodies)
    return out


@given(SETS)
def test_sets_of_positions_survive_their_encoding(positions: set[int]) -> None:
    data = roaring.encode(of(positions))
    assert roaring.decode(data, len(positions)).tolist() == sorted(positions)


@given(SETS)
def test_lists_of_runs_are_read(positions: set[int]) -> None:
    found = roaring.decode(with_runs(positions), len(positions))
    assert found.tolist() == sorted(positions)


def test_containers_of_all_kinds_follow_each_other() -> None:
    few, bits, run = (
        {1, 5},
        set(range(1 << 16, (1 << 16) + 20_000, 2)),
        set(range(1 << 17, 140_000)),
    )
    arrays = roaring.encode(of(few | bits))
    assert roaring.decode(arrays, 10_002).tolist() == sorted(few | bits)
    # The same two containers and one with runs: the flags say that only the third has them.
    bodies = arrays[12 + 4 + 8 + 8 + 8 :]
    heads = struct.pack("<HHHHHH", 0, 1, 1, 9999, 2, len(run) - 1)
    third = struct.pack("<HHH", 1, 0, len(run) - 1)
    bitmap = struct.pack("<I", 12347 | 2 << 16) + b"\x04" + heads + bodies + third
    data = struct.pack("<iqI", 1681511377, 1, 0) + bitmap
    assert roaring.decode(data, 10_002 + len(run)).tolist() == sorted(few | bits | run)


@given(SETS.filter(bool), st.data())
def test_damaged_bytes_are_refused_or_give_as_many_positions(
    positions: set[int], data: st.DataObject
) -> None:
    content = bytearray(roaring.encode(of(positions)))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = roaring.decode(bytes(content), len(positions))
    except ValueError:
        return
    assert len(found) == len(set(found.tolist())) == len(positions)
    with pytest.raises(ValueError, match=r"cut|positions"):
        roaring.decode(bytes(content[:-1]), len(positions))


def test_memory_depends_on_the_positions_not_on_the_rows() -> None:
    sparse = np.arange(0, 1 << 40, (1 << 40) // 1000)
    data = roaring.encode(sparse)
    assert len(data) < 40_000
    assert np.array_equal(roaring.decode(data, len(sparse)), sparse)
