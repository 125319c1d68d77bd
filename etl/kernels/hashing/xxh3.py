"""Compute XXH3-128 (Yann Collet), without a seed, of many byte strings and of the rows of a table.

The library xxhash takes 0.3 us for each call from Python: as long as these kernels take for 60 short strings.
Numbers of 64 bits are unsigned here, so that they wrap around. The specification is at
https://github.com/Cyan4973/xxHash/blob/release/doc/xxhash_spec.md.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import load_eight, load_up_to_eight
from etl.kernels.jit import inner, kernel, rare

LANES: Final = 8
"""The numbers of the accumulator, which callers of the kernels allocate."""

_SECRET: Final = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
        "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
        "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)

_STRIPE: Final = 64
_LAST: Final = 192 - _STRIPE  # the secret's last part for a stripe

_U32_1, _U32_2, _U32_3 = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(0xC2B2AE3D)
_U64_1, _U64_2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_U64_3, _U64_4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_U64_5 = np.uint64(0x27D4EB2F165667C5)
_MIX_1, _MIX_2 = np.uint64(0x165667919E3779F9), np.uint64(0x9FB21C651E98DF25)
_LOW: Final = np.uint64(0xFFFFFFFF)
_ONE: Final = np.uint64(1)
_PAIRS, _EVEN = np.uint64(0x0000FFFF0000FFFF), np.uint64(0x00FF00FF00FF00FF)


@kernel
def hash_values(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    lanes: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
) -> None:
    """Hash the bytes between each two offsets: the low and the high half of the hash."""
    for k in range(len(hashes)):
        hashes[k, 0], hashes[k, 1] = _hash_bytes(data, offsets[k], offsets[k + 1], lanes)


@kernel
def hash_records(
    fields: NDArray[np.uint64],  # (columns, rows, 2) hashes of values
    valid: NDArray[np.bool_],  # (columns, rows)
    names: NDArray[np.uint64],  # (columns, 2) hashes of columns
    record: NDArray[np.uint64],  # (4 * columns,) scratch
    data: NDArray[np.uint8],  # the bytes of ``record``
    lanes: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
) -> None:
    """Hash the valid fields of each row: for each, the hash of its column and the hash of its value."""
    for row in range(len(hashes)):
        end = 0
        for column in range(len(names)):
            if valid[column, row]:
                record[end] = names[column, 0]
                record[end + 1] = names[column, 1]
                record[end + 2] = fields[column, row, 0]
                record[end + 3] = fields[column, row, 1]
                end += 4
        hashes[row, 0], hashes[row, 1] = _hash_bytes(data, 0, 8 * end, lanes)


@inner
def _hash_bytes(
    data: NDArray[np.uint8], start: int, end: int, lanes: NDArray[np.uint64]
) -> tuple[np.uint64, np.uint64]:
    """Return the low and the high half of the hash of the bytes from ``start`` to ``end``."""
    size = end - start
    if size > 240:
        return _hash_long(data, start, end, lanes)
    if size > 16:
        return _hash_medium(data, start, end)
    if size > 8:
        return _hash_9_to_16(data, start, end)
    if size > 3:
        return _hash_4_to_8(data, start, end)
    if size > 0:
        return _hash_1_to_3(data, start, end)
    return _avalanche_64(_secret(64) ^ _secret(72)), _avalanche_64(_secret(80) ^ _secret(88))


@inner
def _hash_1_to_3(data: NDArray[np.uint8], start: int, end: int) -> tuple[np.uint64, np.uint64]:
    first, last = np.uint64(data[start]), np.uint64(data[end - 1])
    middle = np.uint64(data[start + (end - start) // 2])
    low = first << 16 | middle << 24 | last | np.uint64(end - start) << 8
    high = middle | first << 8 | np.uint64(end - start) << 16 | last << 24  # bytes reversed
    high = (high << 13 | high >> 19) & _LOW
    keys = _secret(0), _secret(8)
    low ^= (keys[0] ^ keys[0] >> 32) & _LOW
    high ^= (keys[1] ^ keys[1] >> 32) & _LOW
    return _avalanche_64(low), _avalanche_64(high)


@inner
def _hash_4_to_8(data: NDArray[np.uint8], start: int, end: int) -> tuple[np.uint64, np.uint64]:
    both = _load_four(data, start) | _load_four(data, end - 4) << 32
    both ^= _secret(16) ^ _secret(24)
    factor = _U64_1 + (np.uint64(end - start) << 2)
    low, high = both * factor, _multiply_high(both, factor)
    high += low << 1
    low ^= high >> 3
    low = (low ^ low >> 35) * _MIX_2
    return low ^ low >> 28, _avalanche(high)


@inner
def _hash_9_to_16(data: NDArray[np.uint8], start: int, end: int) -> tuple[np.uint64, np.uint64]:
    last = _load(data, end - 8)
    both = _load(data, start) ^ last ^ _secret(32) ^ _secret(40)
    low, high = both * _U64_1, _multiply_high(both, _U64_1)
    low += np.uint64(end - start - 1) << 54
    last ^= _secret(48) ^ _secret(56)
    high += last + (last & _LOW) * (_U32_2 - _ONE)
    low ^= _swap_bytes(high)
    high = _multiply_high(low, _U64_2) + high * _U64_2
    return _avalanche(low * _U64_2), _avalanche(high)


@inner
def _hash_medium(data: NDArray[np.uint8], start: int, end: int) -> tuple[np.uint64, np.uint64]:
    """Hash 17 to 240 bytes."""
    size = end - start
    low, high = np.uint64(size) * _U64_1, np.uint64(0)
    if size <= 128:
        for part in range((size - 1) // 32, -1, -1):
            others = end - 16 * (part + 1)
            low, high = _mix_32(low, high, data, start + 16 * part, others, 32 * part)
    else:
        for at in range(0, 128, 32):
            low, high = _mix_32(low, high, data, start + at, start + at + 16, at)
        low, high = _avalanche(low), _avalanche(high)
        for at in range(128, size - 31, 32):
            low, high = _mix_32(low, high, data, start + at, start + at + 16, at - 125)
        low, high = _mix_32(low, high, data, end - 16, end - 32, 103)
    total = low * _U64_1 + high * _U64_4 + np.uint64(size) * _U64_2
    return _avalanche(low + high), ~_avalanche(total) + _ONE


@inner
def _mix_32(
    low: np.uint64, high: np.uint64, data: NDArray[np.uint8], one: int, other: int, key: int
) -> tuple[np.uint64, np.uint64]:
    """Mix 16 bytes at ``one`` and 16 bytes at ``other`` into two halves."""
    first, second = _load(data, one), _load(data, one + 8)
    third, fourth = _load(data, other), _load(data, other + 8)
    low += _fold(first ^ _secret(key), second ^ _secret(key + 8))
    high += _fold(third ^ _secret(key + 16), fourth ^ _secret(key + 24))
    return low ^ (third + fourth), high ^ (first + second)


@rare
def _hash_long(
    data: NDArray[np.uint8], start: int, end: int, lanes: NDArray[np.uint64]
) -> tuple[np.uint64, np.uint64]:
    """Hash more than 240 bytes, 64 at a time in 8 lanes."""
    size = np.uint64(end - start)
    lanes[0], lanes[1], lanes[2], lanes[3] = _U32_3, _U64_1, _U64_2, _U64_3
    lanes[4], lanes[5], lanes[6], lanes[7] = _U64_4, _U32_2, _U64_5, _U32_1
    # The last bytes are a stripe that may overlap the one before, so stripes end before the last byte.
    key = 0
    for at in range(start, end - _STRIPE, _STRIPE):
        _accumulate(lanes, data, at, key)
        key += 8
        if key == _LAST:
            _scramble(lanes)
            key = 0
    _accumulate(lanes, data, end - _STRIPE, _LAST - 7)
    high = _merge(lanes, _LAST - 11, ~(size * _U64_2))
    return _merge(lanes, 11, size * _U64_1), high


@inner
def _accumulate(lanes: NDArray[np.uint64], data: NDArray[np.uint8], at: int, key: int) -> None:
    for lane in range(0, LANES, 2):  # in pairs, which vector instructions can swap
        first, second = _load(data, at + 8 * lane), _load(data, at + 8 * lane + 8)
        one, other = first ^ _secret(key + 8 * lane), second ^ _secret(key + 8 * lane + 8)
        lanes[lane] += second + (one & _LOW) * (one >> 32)
        lanes[lane + 1] += first + (other & _LOW) * (other >> 32)


@inner
def _scramble(lanes: NDArray[np.uint64]) -> None:
    for lane in range(LANES):
        mixed = lanes[lane] ^ lanes[lane] >> 47 ^ _secret(_LAST + 8 * lane)
        lanes[lane] = mixed * _U32_1


@inner
def _merge(lanes: NDArray[np.uint64], key: int, total: np.uint64) -> np.uint64:
    for lane in range(0, LANES, 2):
        one, other = _secret(key + 8 * lane), _secret(key + 8 * lane + 8)
        total += _fold(lanes[lane] ^ one, lanes[lane + 1] ^ other)
    return _avalanche(total)


@inner
def _avalanche(number: np.uint64) -> np.uint64:
    number = (number ^ number >> 37) * _MIX_1
    return number ^ number >> 32


@inner
def _avalanche_64(number: np.uint64) -> np.uint64:
    """Finish as XXH64 does."""
    number = (number ^ number >> 33) * _U64_2
    number = (number ^ number >> 29) * _U64_3
    return number ^ number >> 32


@inner
def _fold(one: np.uint64, other: np.uint64) -> np.uint64:
    """Return the exclusive or of the halves of a product."""
    return one * other ^ _multiply_high(one, other)


@inner
def _multiply_high(one: np.uint64, other: np.uint64) -> np.uint64:
    """Return the high 64 bits of a product."""
    low = (one & _LOW) * (other & _LOW)
    first, second = (one >> 32) * (other & _LOW), (one & _LOW) * (other >> 32)
    middle = (low >> 32) + (first & _LOW) + second
    return (one >> 32) * (other >> 32) + (first >> 32) + (middle >> 32)


@inner
def _swap_bytes(number: np.uint64) -> np.uint64:
    number = number >> 32 | number << 32
    number = number >> 16 & _PAIRS | (number & _PAIRS) << 16
    return number >> 8 & _EVEN | (number & _EVEN) << 8


@inner
def _secret(at: int) -> np.uint64:
    return np.uint64(load_eight(_SECRET, at))


@inner
def _load(data: NDArray[np.uint8], at: int) -> np.uint64:
    return np.uint64(load_eight(data, at))


@inner
def _load_four(data: NDArray[np.uint8], at: int) -> np.uint64:
    return np.uint64(load_up_to_eight(data, at, at + 4))
