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


_NO_POISON: Final = ir.Constant(ir.IntType(1), 0)  # ctlz and cttz are defined for 0


def _pointer(context: Any, builder: Any, kind: Any, array: Any, value: Any, at: Any) -> Any:
    """Return a pointer to a byte of an array, cast to a pointer to an LLVM type."""
    first = builder.gep(context.make_array(array)(context, builder, value).data, [at])
    return builder.bitcast(first, kind.as_pointer())


def _load(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_pointer(context, builder, _EIGHT, signature.args[0], *values), align=1)

    return types.int64(data, types.intp), generate


def kinds(*sets: bytes) -> Callable[[NDArray[np.uint8], int], tuple[int, ...]]:
    """Return a function that finds which of WIDTH bytes, from an offset of an array on, are in each set.

    It returns an int64 mask for each set, with the bit of the first byte lowest. The array must have at
    least WIDTH bytes; bytes after its end are in no set. LLVM compiles it to vector instructions.
    """

    def typed(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
        masks = types.UniTuple(types.int64, len(sets))  # type: ignore[no-untyped-call]
        return masks(data, types.intp), _generate_kinds(sets)

    find: Callable[[NDArray[np.uint8], int], tuple[int, ...]] = intrinsic(typed)
    return find


def _generate_kinds(sets: tuple[bytes, ...]) -> _Generate:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        last = builder.sub(array.nitems, ir.Constant(_EIGHT, WIDTH))
        fits = builder.icmp_signed("<=", values[1], last)
        start = builder.select(fits, values[1], last)
        first = _pointer(context, builder, _BYTES, signature.args[0], values[0], start)
        loaded, skipped = builder.load(first, align=1), builder.sub(values[1], start)
        masks = []
        for members in sets:
            mask = ir.Constant(_EIGHT, 0)
            for low, size in _runs(members):
                moved = builder.sub(loaded, ir.Constant(_BYTES, [low] * WIDTH))
                is_member = builder.icmp_unsigned("<", moved, ir.Constant(_BYTES, [size] * WIDTH))
                mask = builder.or_(mask, builder.bitcast(is_member, _EIGHT))
            masks.append(builder.lshr(mask, skipped))
        return context.make_tuple(builder, signature.return_type, masks)

    return generate


def _runs(members: bytes) -> list[tuple[int, int]]:
    """Return the runs of consecutive byte values in a set: the lowest value and the length of each."""
    values = {*members}
    firsts = sorted(byte for byte in values if byte - 1 not in values)
    return [(low, next(n for n in count(1) if low + n not in values)) for low in firsts]


def _copy(_: Any, to: Any, offset: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, _, data, _ = signature.args
        loaded = builder.load(_pointer(context, builder, _BYTES, data, *values[2:]), align=1)
        builder.store(loaded, _pointer(context, builder, _BYTES, to, *values[:2]), align=1)
        return context.get_dummy_value()

    return types.void(to, types.intp, data, types.intp), generate


def _product(_: Any, one: Any, other: Any) -> tuple[Any, _Generate]:
    def generate(_1: Any, builder: Any, _2: Any, values: Any) -> Any:
        return builder.mul(*values)

    return types.int64(types.int64, types.int64), generate


def _rest(_: Any, mask: Any) -> tuple[Any, _Generate]:
    def generate(_1: Any, builder: Any, _2: Any, values: Any) -> Any:
        return builder.and_(values[0], builder.sub(values[0], ir.Constant(_EIGHT, 1)))

    return types.int64(types.int64), generate


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
"""Return the eight bytes of an array from an offset on as an int64, the first one lowest. All must exist."""


copy: Final[Callable[[NDArray[np.uint8], int, NDArray[np.uint8], int], None]] = intrinsic(_copy)
"""Copy WIDTH bytes to an offset of the first array from one of the second. Both must be long enough."""


product: Final[Callable[[int, int], int]] = intrinsic(_product)
"""Return the low 64 bits of a product, for hashes.

``*`` is undefined on overflow, since numba marks signed products as ``nsw``: LLVM once compiled a hash of
more than eight bytes to a wrong number."""


rest: Final[Callable[[int], int]] = intrinsic(_rest)
"""Return a mask without its lowest bit, 0 for 0. Unlike ``mask & mask - 1`` it cannot overflow."""


num_set: Final[Callable[[int], int]] = intrinsic(_num_set)
"""Return how many bits are set."""


leading_zeros: Final[Callable[[int], int]] = intrinsic(_leading_zeros)
"""Return how many zeros precede the highest bit that is set; 64 if none is."""


trailing_zeros: Final[Callable[[int], int]] = intrinsic(_trailing_zeros)
"""Return how many zeros follow the lowest bit that is set; 64 if none is."""


SIZE: Final = WIDTH


CONTINUED: Final = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 characters after the first one."""


NOT_ASCII: Final = bytes(range(0x80, 0x100))


@inner
def low_bits(count: int) -> int:
    """Return a mask of the first ``count`` bits; all 64 if ``count`` is at least 64."""
    return ~(np.int64(-1) << count) if count < SIZE else np.int64(-1)


@inner
def bits_between(first: int, last: int) -> int:
    """Return a mask of the bits from ``first_bit`` up to but not including ``last``."""
    return low_bits(last) & ~low_bits(first)


@inner
def first_bit(mask: int) -> int:
    """Return the index of the first bit that is set, or 64."""
    return trailing_zeros(mask)


_SEED, _PRIME = -3750763034362895579, 1099511628211  # of FNV-1a, 64 bits


@inner
def low_bytes(eight: int, count: int) -> int:
    """Return the first ``count`` of eight bytes, with zeros for the others."""
    return eight & (np.int64(1) << 8 * count) - 1 if count < 8 else eight


@inner
def head(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return up to eight bytes from ``at`` to ``end``, the first one lowest, padded with zeros."""
    if at + 8 <= len(data):
        return low_bytes(load(data, at), end - at)
    eight = np.int64(0)
    for k in range(min(end - at, 8)):
        eight |= np.int64(data[at + k]) << 8 * k
    return eight


@inner
def hashed(data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return a 64-bit hash of the bytes from ``start`` to ``end``; up to seven bytes never collide.

    Longer strings go through FNV-1a eight bytes at a time, with a shift, since a product mixes upwards
    only. The last eight bytes may overlap those before.
    """
    key = (end - start) << 56
    if end - start < 8:
        return key | head(data, start, end)
    key ^= _SEED
    for at in range(start, end - 8, 8):
        key = product(key ^ load(data, at), _PRIME)
        key ^= key >> 32
    return product(key ^ load(data, end - 8), _PRIME)
