"""Compute with 16 numbers at once, and move up to 64 bytes, through LLVM's vector instructions.

As in ``etl.kernels.bytes.simd``, the first part generates LLVM code. Offsets count the items of an array
before them, and arrays must be long enough.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from etl.kernels.bytes.simd import SIZE, pointer_at

LANES: Final = 16
"""The numbers of 32 bits that are computed at once."""

FNV_BASIS: Final = 2166136261
"""The FNV-1a hash of no bytes, 32 bits."""

FNV_PRIME: Final = 16777619
"""The factor of each step of FNV-1a, 32 bits."""

_Generate = Callable[[Any, Any, Any, Any], Any]  # context, builder, signature, values -> value
_BYTE: Final = ir.IntType(8)
_INT32: Final = ir.IntType(32)
_INT64: Final = ir.IntType(64)
_FLOATS: Final = ir.VectorType(ir.FloatType(), LANES)
_HASHES: Final = ir.VectorType(_INT32, LANES)
_LANE_BYTES: Final = ir.VectorType(_BYTE, LANES)
_BYTES: Final = ir.VectorType(_BYTE, SIZE)
_KEY: Final = ir.VectorType(_BYTE, 32)
_NUMBERS: Final = ir.VectorType(_INT64, 4)


def _load_float(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = pointer_at(context, builder, ir.FloatType(), signature.args[0], *values)
        return builder.load(place, align=1)

    return types.float32(data, types.intp), generate


def _add_floats(_: Any, sums: Any, first: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, _, data, _ = signature.args
        place = pointer_at(context, builder, _FLOATS, sums, *values[:2])
        added = builder.load(pointer_at(context, builder, _FLOATS, data, *values[2:]), align=1)
        builder.store(builder.fadd(builder.load(place, align=1), added), place, align=1)
        return context.get_dummy_value()

    return types.void(sums, types.intp, data, types.intp), generate


def _add_rows(
    _: Any, sums: Any, place: Any, data: Any, at: Any, rows: Any, first: Any, last: Any, size: Any
) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, _, data, _, rows, *_ = signature.args
        place = pointer_at(context, builder, _FLOATS, sums, *values[:2])
        before = builder.load(place, align=1)
        total = cgutils.alloca_once_value(builder, before)  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, values[6], start=values[5]) as loop:
            row = builder.load(pointer_at(context, builder, _INT32, rows, values[4], loop.index))
            start = builder.add(values[3], builder.mul(builder.sext(row, _INT64), values[7]))
            added = builder.load(
                pointer_at(context, builder, _FLOATS, data, values[2], start), align=1
            )
            builder.store(builder.fadd(builder.load(total), added), total)
        builder.store(builder.load(total), place, align=1)
        return context.get_dummy_value()

    indices = [types.intp] * 3
    return types.void(sums, types.intp, data, types.intp, rows, *indices), generate


def _fnv_steps(
    _: Any, to: Any, first: Any, hashes: Any, place: Any, data: Any, at: Any
) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, _, hashes, _, data, _ = signature.args
        before = builder.load(pointer_at(context, builder, _HASHES, hashes, *values[2:4]), align=1)
        loaded = builder.load(pointer_at(context, builder, _LANE_BYTES, data, *values[4:]), align=1)
        mixed = builder.xor(before, builder.sext(loaded, _HASHES))
        stepped = builder.mul(mixed, ir.Constant(_HASHES, [FNV_PRIME] * LANES))
        builder.store(stepped, pointer_at(context, builder, _HASHES, to, *values[:2]), align=1)
        return context.get_dummy_value()

    return types.void(to, types.intp, hashes, types.intp, data, types.intp), generate


def _copy_replacing(
    _: Any, to: Any, data: Any, at: Any, last: Any, opening: Any, closing: Any
) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, data, *_ = signature.args
        copied = builder.load(pointer_at(context, builder, _BYTES, data, *values[1:3]), align=1)
        places = ir.Constant(_BYTES, [*range(SIZE)])
        zero = ir.Constant(_INT64, 0)
        for place, byte in ((zero, values[4]), (values[3], values[5])):
            at, item = (
                _splat(builder, _BYTES, builder.trunc(each, _BYTE)) for each in (place, byte)
            )
            copied = builder.select(builder.icmp_unsigned("==", places, at), item, copied)
        builder.store(copied, pointer_at(context, builder, _BYTES, to, values[0], zero), align=1)
        return context.get_dummy_value()

    return types.void(to, data, *[types.intp] * 4), generate


def _fill_lanes(_: Any, to: Any, first: Any, value: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.VectorType(context.get_data_type(signature.args[0].dtype), LANES)
        place = pointer_at(context, builder, kind, signature.args[0], *values[:2])
        builder.store(_splat(builder, kind, values[2]), place, align=1)
        return context.get_dummy_value()

    return types.void(to, types.intp, to.dtype), generate


def _prefetch(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = pointer_at(context, builder, _BYTE, signature.args[0], *values)
        numbers = [ir.Constant(_INT32, number) for number in (0, 3, 1)]  # read, keep, data
        kind = ir.FunctionType(ir.VoidType(), [place.type, *[_INT32] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(function, [place, *numbers])
        return context.get_dummy_value()

    return types.void(data, types.intp), generate


def _load_32(_: Any, data: Any, at: Any, size: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        loaded = builder.load(
            pointer_at(context, builder, _KEY, signature.args[0], *values[:2]), align=1
        )
        places = ir.Constant(_KEY, [*range(_KEY.count)])
        sizes = _splat(builder, _KEY, builder.trunc(values[2], _BYTE))
        kept = builder.select(
            builder.icmp_unsigned("<", places, sizes), loaded, ir.Constant(_KEY, [0] * _KEY.count)
        )
        numbers = builder.bitcast(kept, _NUMBERS)
        parts = [
            builder.extract_element(numbers, ir.Constant(_INT64, k)) for k in range(_NUMBERS.count)
        ]
        return context.make_tuple(builder, signature.return_type, parts)

    numbers = types.UniTuple(types.int64, _NUMBERS.count)  # type: ignore[no-untyped-call]
    return numbers(data, types.intp, types.intp), generate


def _splat(builder: Any, kind: Any, value: Any) -> Any:
    """Return a vector whose items are all the same."""
    one = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(one, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(
        first, first, ir.Constant(ir.VectorType(_INT32, kind.count), [0] * kind.count)
    )


load_float: Final[Callable[[NDArray[np.uint8], int], float]] = intrinsic(_load_float)
"""Return the float32 whose four bytes begin at an offset of an array, aligned or not."""

add_floats: Final[Callable[[NDArray[np.float32], int, NDArray[Any], int], None]] = intrinsic(
    _add_floats
)
"""Add LANES numbers of the second array, float32 or their bytes, to numbers of the first."""

add_rows: Final[Callable[..., None]] = intrinsic(_add_rows)
"""Add LANES numbers of each of some rows to numbers of an array, in a register.

Pairs of an array and an offset: the sums (float32); the rows (float32), where the numbers of row 0 are; the
rows to add (int32), which first. Then where these end, and the size of a row.
"""

fnv_steps: Final[Callable[..., None]] = intrinsic(_fnv_steps)
"""Store LANES hashes (uint32) after one more byte, which FNV-1a takes as signed.

Three pairs of an array and an offset: where to store, the hashes before, the bytes.
"""

copy_replacing: Final[Callable[..., None]] = intrinsic(_copy_replacing)
"""Copy SIZE bytes to the start of an array from an offset of another, and replace two of them.

The arrays and the offset; then which byte is replaced besides the first one; the values of both.
"""

fill_lanes: Final[Callable[[NDArray[Any], int, Any], None]] = intrinsic(_fill_lanes)
"""Store a number LANES times, from an offset of an array on."""

prefetch: Final[Callable[[NDArray[Any], int], None]] = intrinsic(_prefetch)
"""Begin to load what is at an offset of an array into the cache. It need not exist."""

load_32: Final[Callable[[NDArray[np.uint8], int, int], tuple[int, int, int, int]]] = intrinsic(
    _load_32
)
"""Return 32 bytes from an offset on as four numbers, with zeros after the first ``size``."""
