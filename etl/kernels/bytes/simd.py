"""Find, count and copy 64 bytes at once, through LLVM's vector instructions.

A *mask* is an int64 with a bit for each of 64 bytes, that of the first byte lowest. Numba has no functions
for most of this, so the first part generates LLVM code; the second part computes with masks, and with eight
bytes as one number.
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from etl.kernels.jit import inner, rare

SIZE: Final = 64
"""The bytes of a mask; an array that is searched must have at least as many."""

CONTINUED: Final = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 characters after the first one."""

NOT_ASCII: Final = bytes(range(0x80, 0x100))

_Generate = Callable[[Any, Any, Any, Any], Any]  # context, builder, signature, values -> value
_INT64: Final = ir.IntType(64)
_BYTES: Final = ir.VectorType(ir.IntType(8), SIZE)
_NUMBERS: Final = 8
_HALF: Final = ir.VectorType(_INT64, _NUMBERS // 2)
_NO_POISON: Final = ir.Constant(ir.IntType(1), 0)  # ctlz and cttz are defined for 0


# Code generation: each function returns the signature of an intrinsic, and what generates its code.


def _load_eight(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(
            pointer_at(context, builder, _INT64, signature.args[0], *values), align=1
        )

    return types.int64(data, types.intp), generate


def _copy_64(_: Any, to: Any, offset: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, _, data, _ = signature.args
        loaded = builder.load(pointer_at(context, builder, _BYTES, data, *values[2:]), align=1)
        builder.store(loaded, pointer_at(context, builder, _BYTES, to, *values[:2]), align=1)
        return context.get_dummy_value()

    return types.void(to, types.intp, data, types.intp), generate


def _copy_items(
    _: Any, to: Any, offset: Any, data: Any, at: Any, num: Any
) -> tuple[Any, _Generate] | None:
    if to.dtype != data.dtype:
        return None

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, _, data, _, _ = signature.args
        kind = context.get_data_type(to.dtype)
        target = pointer_at(context, builder, kind, to, *values[:2])
        source = pointer_at(context, builder, kind, data, *values[2:4])
        size = context.get_abi_sizeof(kind)
        cgutils.raw_memcpy(builder, target, source, values[4], size)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(to, types.intp, data, types.intp, types.intp), generate


def _count_ones(_: Any, mask: Any) -> tuple[Any, _Generate]:
    return types.int64(types.int64), lambda _1, builder, _2, values: builder.ctpop(values[0])


def _leading_zeros(_: Any, mask: Any) -> tuple[Any, _Generate]:
    def generate(_1: Any, builder: Any, _2: Any, values: Any) -> Any:
        return builder.ctlz(values[0], _NO_POISON)

    return types.int64(types.int64), generate


def _first_bit(_: Any, mask: Any) -> tuple[Any, _Generate]:
    def generate(_1: Any, builder: Any, _2: Any, values: Any) -> Any:
        return builder.cttz(values[0], _NO_POISON)

    return types.int64(types.int64), generate


def _count_equal(_: Any, numbers: Any, one: Any, other: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        differ = ir.Constant(_INT64, 1 << _NUMBERS)
        for half in range(0, _NUMBERS, _HALF.count):  # two registers of AVX2
            loaded = []
            for index in values[1:]:
                at = builder.add(index, ir.Constant(_INT64, half))
                first = pointer_at(context, builder, _HALF, signature.args[0], values[0], at)
                loaded.append(builder.load(first, align=8))
            unequal = builder.icmp_unsigned("!=", *loaded)
            bits = builder.zext(builder.bitcast(unequal, ir.IntType(_HALF.count)), _INT64)
            differ = builder.or_(differ, builder.shl(bits, ir.Constant(_INT64, half)))
        return builder.cttz(differ, _NO_POISON)

    return types.int64(numbers, types.intp, types.intp), generate


def make_byte_finder(*sets: bytes) -> Callable[[NDArray[np.uint8], int], tuple[int, ...]]:
    """Return a function that finds which of SIZE bytes, from an offset of an array on, are in each set.

    It returns a mask for each set. The array must have at least SIZE bytes; bytes after its end are in no
    set.
    """

    def typed(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
        masks = types.UniTuple(types.int64, len(sets))  # type: ignore[no-untyped-call]
        return masks(data, types.intp), _generate_finder(sets)

    find: Callable[[NDArray[np.uint8], int], tuple[int, ...]] = intrinsic(typed)
    return find


def _generate_finder(sets: tuple[bytes, ...]) -> _Generate:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        last = builder.sub(array.nitems, ir.Constant(_INT64, SIZE))
        fits = builder.icmp_signed("<=", values[1], last)
        start = builder.select(fits, values[1], last)
        first = pointer_at(context, builder, _BYTES, signature.args[0], values[0], start)
        loaded, skipped = builder.load(first, align=1), builder.sub(values[1], start)
        masks = []
        for members in sets:
            mask = ir.Constant(_INT64, 0)
            for low, size in _runs(members):
                moved = builder.sub(loaded, ir.Constant(_BYTES, [low] * SIZE))
                is_member = builder.icmp_unsigned("<", moved, ir.Constant(_BYTES, [size] * SIZE))
                mask = builder.or_(mask, builder.bitcast(is_member, _INT64))
            masks.append(builder.lshr(mask, skipped))
        return context.make_tuple(builder, signature.return_type, masks)

    return generate


def _runs(members: bytes) -> list[tuple[int, int]]:
    """Return the runs of consecutive byte values in a set: the lowest value and the length of each."""
    values = {*members}
    firsts = sorted(byte for byte in values if byte - 1 not in values)
    return [(low, next(n for n in count(1) if low + n not in values)) for low in firsts]


def pointer_at(context: Any, builder: Any, kind: Any, array: Any, value: Any, at: Any) -> Any:
    """Return a pointer to a byte of an array, cast to a pointer to an LLVM type."""
    first = builder.gep(context.make_array(array)(context, builder, value).data, [at])
    return builder.bitcast(first, kind.as_pointer())


load_eight: Final[Callable[[NDArray[np.uint8], int], int]] = intrinsic(_load_eight)
"""Return the eight bytes of an array from an offset on as an int64, the first one lowest. All must exist."""

copy_64: Final[Callable[[NDArray[np.uint8], int, NDArray[np.uint8], int], None]] = intrinsic(
    _copy_64
)
"""Copy SIZE bytes to an offset of the first array from one of the second. Both must be long enough."""

copy_items: Final[Callable[[NDArray[Any], int, NDArray[Any], int, int], None]] = intrinsic(
    _copy_items
)
"""Copy a number of items to an offset of the first array from one of the second, which is another array.

Both must be contiguous and long enough. Compiling a slice assignment takes half a second, since numba
compiles its error message, too.
"""

count_ones: Final[Callable[[int], int]] = intrinsic(_count_ones)
"""Return how many bits are set."""

leading_zeros: Final[Callable[[int], int]] = intrinsic(_leading_zeros)
"""Return how many zeros precede the highest bit that is set; 64 if none is."""

first_bit: Final[Callable[[int], int]] = intrinsic(_first_bit)
"""Return the index of the lowest bit that is set; 64 if none is."""

count_equal: Final[Callable[[NDArray[np.int64], int, int], int]] = intrinsic(_count_equal)
"""Compare eight numbers of an array with eight others, which all must exist, given the offsets of both.

Returns how many numbers precede the first difference; 8 if there is none.
"""


# Masks.


@inner
def low_bits(count: int) -> int:
    """Return a mask of the first ``count`` bits; all 64 if ``count`` is at least 64."""
    return ~(np.int64(-1) << count) if count < SIZE else np.int64(-1)


@inner
def bits_between(first: int, last: int) -> int:
    """Return a mask of the bits from ``first`` up to but not including ``last``."""
    return low_bits(last) & ~low_bits(first)


@inner
def clear_first_bit(mask: int) -> int:
    """Return a mask without its lowest set bit; 0 for 0.

    The difference is one of unsigned numbers: a signed ``mask - 1`` is undefined for the highest bit alone.
    """
    return np.int64(np.uint64(mask) & (np.uint64(mask) - np.uint64(1)))


# Eight bytes as one number.


@inner
def low_bytes(eight: int, count: int) -> int:
    """Return the first ``count`` of eight bytes, with zeros for the others."""
    return eight & (np.int64(1) << 8 * count) - 1 if count < 8 else eight


@inner
def load_up_to_eight(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return up to eight bytes from ``at`` to ``end``, the first one lowest, padded with zeros."""
    if at + 8 <= len(data):
        return low_bytes(load_eight(data, at), end - at)
    return _load_last(data, at, end)


@rare
def _load_last(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return up to eight bytes before the end of an array, as ``load_up_to_eight`` does."""
    eight = np.int64(0)
    for k in range(min(end - at, 8)):
        eight |= np.int64(data[at + k]) << 8 * k
    return eight
