"""What the processor can do and numba has no word for: eight bytes at once, and the bits of a number."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

_Generate = Callable[[Any, Any, Any, Any], Any]
_NO_POISON: Final = ir.Constant(ir.IntType(1), 0)  # the number of zeros is defined for 0, too


def _place(context: Any, builder: Any, array: Any, value: Any, at: Any) -> Any:
    """A pointer to eight bytes of an array."""
    first = builder.gep(context.make_array(array)(context, builder, value).data, [at])
    return builder.bitcast(first, ir.IntType(64).as_pointer())


def _load(_: Any, data: Any, at: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], *values), align=1)

    return types.int64(data, types.intp), generate


def _store(_: Any, data: Any, at: Any, eight: Any) -> tuple[Any, _Generate]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _place(context, builder, signature.args[0], *values[:2])
        builder.store(values[2], place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, types.int64), generate


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

store: Final[Callable[[NDArray[np.uint8], int, int], None]] = intrinsic(_store)
"""Write eight bytes to an array from one on, the lowest one first. There must be room."""

num_set: Final[Callable[[int], int]] = intrinsic(_num_set)
"""How many bits are set."""

leading_zeros: Final[Callable[[int], int]] = intrinsic(_leading_zeros)
"""How many bits above the highest one that is set are not; 64 if none is."""

trailing_zeros: Final[Callable[[int], int]] = intrinsic(_trailing_zeros)
"""How many bits below the lowest one that is set are not; 64 if none is."""
