"""Work on 64 bytes at once: byte classes as bit masks, LLVM intrinsics, hashes of short byte strings."""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from etl.kernels.jit import inner

_Generate = Callable[[Any, Any, Any, Any], Any]


WIDTH: Final = 64


_EIGHT: Final = ir.IntType(64)


_BYTES: Final = ir.VectorType(ir.IntType(8), WIDTH)


_NO_POISON: Final = ir.Constant(ir.IntType(1), 0)  # the number of zeros is defined for 0, too


def _place(context: Any, builder: Any, kind: Any, array: Any, value: Any, at: Any) -> Any:
    """A pointer to what stands in an array from a byte on, as some kind of LLVM's."""
    first = builder.gep(context.make_array(array)(context, builder, value).data, [at])
    return builder.bitcast(first, kind.as_pointer())


def _load(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_place(context, builder, _EIGHT, signature.args[0], *values), align=1)

    return types.int64(data, types.intp), generate


def kinds(*sets: bytes) -> Callable[[NDArray[np.uint8], int], tuple[int, ...]]:
    """A function that says which of the WIDTH bytes of an array from one on are in each of these sets.

    For each set there is an int64 with a bit for each byte, that of the first one lowest. The array must have
    WIDTH bytes; those behind its end are in no set. LLVM makes vector instructions of it.
    """

    def typed(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
        masks = types.UniTuple(types.int64, len(sets))  # type: ignore[no-untyped-call]
        return masks(data, types.intp), _generate_kinds(sets)

    found: Callable[[NDArray[np.uint8], int], tuple[int, ...]] = intrinsic(typed)
    return found


def _generate_kinds(sets: tuple[bytes, ...]) -> _Generate:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        last = builder.sub(array.nitems, ir.Constant(_EIGHT, WIDTH))
        is_there = builder.icmp_signed("<=", values[1], last)
        start = builder.select(is_there, values[1], last)
        first = _place(context, builder, _BYTES, signature.args[0], values[0], start)
        found, behind = builder.load(first, align=1), builder.sub(values[1], start)
        masks = []
        for bytes_of in sets:
            mask = ir.Constant(_EIGHT, 0)
            for low, size in _runs(bytes_of):
                moved = builder.sub(found, ir.Constant(_BYTES, [low] * WIDTH))
                is_one = builder.icmp_unsigned("<", moved, ir.Constant(_BYTES, [size] * WIDTH))
                mask = builder.or_(mask, builder.bitcast(is_one, _EIGHT))
            masks.append(builder.lshr(mask, behind))
        return context.make_tuple(builder, signature.return_type, masks)

    return generate


def _runs(bytes_of: bytes) -> list[tuple[int, int]]:
    """The runs of neighbours among some bytes: the lowest one, and how many they are."""
    known = {*bytes_of}
    firsts = sorted(byte for byte in known if byte - 1 not in known)
    return [(low, next(n for n in count(1) if low + n not in known)) for low in firsts]


def _copy(_: Any, to: Any, place: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, _, data, _ = signature.args
        found = builder.load(_place(context, builder, _BYTES, data, *values[2:]), align=1)
        builder.store(found, _place(context, builder, _BYTES, to, *values[:2]), align=1)
        return context.get_dummy_value()

    return types.void(to, types.intp, data, types.intp), generate


def _num_set(_: Any, bits: Any) -> tuple[Any, _Generate]:
    return types.int64(types.int64), lambda _1, builder, _2, values: builder.ctpop(values[0])


def _leading_zeros(_: Any, bits: Any) -> tuple[Any, _Generate]:
    def generate(_1: Any, builder: Any, _2: Any, values: Any) -> Any:
        return builder.ctlz(values[0], _NO_POISON)

    return types.int64(types.int64), generate


def _trailing_zeros(_: Any, bits: Any) -> tuple[Any, _Generate]:
    def generate(_1: Any, builder: Any, _2: Any, values: Any) -> Any:
        return builder.cttz(values[0], _NO_POISON)

    return types.int64(types.int64), generate


load: Final[Callable[[NDArray[np.uint8], int], int]] = intrinsic(_load)
"""The eight bytes of an array from one on, the first one lowest: int64. They must be there."""


copy: Final[Callable[[NDArray[np.uint8], int, NDArray[np.uint8], int], None]] = intrinsic(_copy)
"""Write the WIDTH bytes of the second array from one on to the first array. There must be room in both."""


num_set: Final[Callable[[int], int]] = intrinsic(_num_set)
"""How many bits are set."""


leading_zeros: Final[Callable[[int], int]] = intrinsic(_leading_zeros)
"""How many bits above the highest one that is set are not; 64 if none is."""


trailing_zeros: Final[Callable[[int], int]] = intrinsic(_trailing_zeros)
"""How many bits below the lowest one that is set are not; 64 if none is."""


SIZE: Final = WIDTH


CONTINUED: Final = bytes(range(0x80, 0xC0))
"""The bytes within a character of UTF-8."""


NOT_ASCII: Final = bytes(range(0x80, 0x100))


@inner
def low_bits(count: int) -> int:
    """The first ``count`` bits of 64; all of them from 64 on."""
    return (np.int64(1) << count) - 1 if count < SIZE else np.int64(-1)


@inner
def bits_between(first: int, last: int) -> int:
    """The bits from ``first_bit`` to ``last``."""
    return low_bits(last) & ~low_bits(first)


@inner
def first_bit(mask: int) -> int:
    """The first bit that is set, or 64."""
    return trailing_zeros(mask)


_SEED, _PRIME = -3750763034362895579, 1099511628211  # of FNV-1a, 64 bits


@inner
def low_bytes(eight: int, count: int) -> int:
    """The first ``count`` bytes, up to 8; the others 0."""
    return eight & (np.int64(1) << 8 * count) - 1 if count < 8 else eight


@inner
def head(data: NDArray[np.uint8], at: int, end: int) -> int:
    """The up to eight bytes from ``at`` to ``end``, the first one lowest, and 0 for what there is not."""
    if at + 8 <= len(data):
        return low_bytes(load(data, at), end - at)
    eight = np.int64(0)
    for k in range(min(end - at, 8)):
        eight |= np.int64(data[at + k]) << 8 * k
    return eight


@inner
def hashed(data: NDArray[np.uint8], start: int, end: int) -> int:
    """64 bits by which to tell strings of bytes apart; those of up to seven bytes never share any.

    Of a longer one eight bytes at a time go through FNV-1a (with a shift, since it mixes upwards only), the
    last eight whatever they overlap.
    """
    key = (end - start) << 56
    if end - start < 8:
        return key | head(data, start, end)
    key ^= _SEED
    for at in range(start, end - 8, 8):
        key = (key ^ load(data, at)) * _PRIME
        key ^= key >> 32
    return (key ^ load(data, end - 8)) * _PRIME
