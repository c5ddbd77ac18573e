"""Lanes: eight neighbouring voxels that Numba handles as one number.

A processor loads, adds and multiplies eight numbers at once if they are neighbours in memory. The
compiler arranges that for long simple loops, but not for runs of eight with values that stay in
registers: here it is made explicit. Kernels write `a * b + c` with lanes as with floats.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.types import CPointer, Float, Type, boolean, intp, void
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 8

# Products and sums may be fused, as in all kernels; NaN and infinity keep their meaning.
_FLAGS = ("contract", "nsz")
_Codegen = Callable[..., Any]

Lanes = Any  # eight floats: to Numba a LanesType
Address = Any  # where an array begins: to Numba a pointer to its first number


class LanesType(Type):
    """Eight floats of one type."""

    def __init__(self, dtype: Type) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        number = manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, LANES))


def _define_operator(function: Callable[[Any, Any], Any], instruction: str) -> None:
    """Let Numba compile an operator between lanes, or between lanes and a number."""

    @infer_global(function)
    class _OfLanes(AbstractTemplate):
        def generic(self, arguments: tuple[Type, ...], keywords: dict[str, Type]) -> Any:
            lanes, *others = arguments
            if not isinstance(lanes, LanesType):
                return None
            return signature(lanes, lanes, lanes if others[0] == lanes else lanes.dtype)

    @lower_builtin(function, LanesType, LanesType)
    def with_lanes(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=_FLAGS)

    @lower_builtin(function, LanesType, Float)
    def with_number(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        lanes, number = arguments
        return getattr(builder, instruction)(lanes, _splat(builder, number), flags=_FLAGS)


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call what a function generates instructions for."""
    return intrinsic(prefer_literal=True)(function)


@_instruction
def address(typing: Any, array: Any) -> tuple[Any, _Codegen]:
    """Return where a C-contiguous array begins.

    Numba counts references to arrays but not to addresses: counting would take longer than the work
    on eight voxels.
    """
    if array.layout != "C":
        raise TypingError(f"address: the array must be C-contiguous, got {array}; copy it first")

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        return context.make_array(array)(context, builder, arguments[0]).data

    return CPointer(array.dtype)(array), generate


@_instruction
def load(typing: Any, start: Any, place: Any) -> tuple[Any, _Codegen]:
    """Return the eight numbers at some place behind an address, without checks of bounds."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        loaded = builder.load(_pointer(builder, *arguments))
        loaded.align = start.dtype.bitwidth // 8
        return loaded

    return LanesType(start.dtype)(start, intp), generate


@_instruction
def store(typing: Any, start: Any, place: Any, lanes: Any) -> tuple[Any, _Codegen]:
    """Put eight numbers at some place behind an address, without checks of bounds."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        *place, values = arguments
        stored = builder.store(values, _pointer(builder, *place))
        stored.align = start.dtype.bitwidth // 8
        return context.get_dummy_value()

    return void(start, intp, lanes), generate


@_instruction
def add_pair(typing: Any, start: Any, place: Any, lanes: Any) -> tuple[Any, _Codegen]:
    """Add the first two of eight numbers to those at some place, without checks of bounds."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        begin, offset, values = arguments
        first_two = ir.Constant(ir.VectorType(ir.IntType(32), 2), [0, 1])
        pair = builder.shuffle_vector(values, values, first_two)
        target = _pointer(builder, begin, offset, n_numbers=2)
        loaded = builder.load(target)
        stored = builder.store(builder.fadd(loaded, pair, flags=_FLAGS), target)
        loaded.align = stored.align = start.dtype.bitwidth // 8
        return context.get_dummy_value()

    return void(start, intp, lanes), generate


@_instruction
def fill(typing: Any, number: Any) -> tuple[Any, _Codegen]:
    """Return eight times the same float."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[0])

    return LanesType(number)(number), generate


@_instruction
def tent(typing: Any, x: Any) -> tuple[Any, _Codegen]:
    """Return max(0, 1 - |x|)."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        vector = arguments[0].type
        zero, one = ir.Constant(vector, [0.0] * LANES), ir.Constant(vector, [1.0] * LANES)
        size = builder.call(
            cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(vector, [vector]),
                f"llvm.fabs.v{LANES}f{x.dtype.bitwidth}",
            ),
            arguments,
        )
        height = builder.fsub(one, size)
        return builder.select(builder.fcmp_ordered(">", height, zero), height, zero)

    return x(x), generate


@_instruction
def lowest(typing: Any, x: Any) -> tuple[Any, _Codegen]:
    """Return the smallest of the eight; if one is NaN, some number or NaN."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        least = arguments[0]
        for distance in (4, 2, 1):
            other = _shuffle(builder, least, [(i + distance) % LANES for i in range(LANES)])
            least = builder.select(builder.fcmp_ordered("<", least, other), least, other)
        return builder.extract_element(least, ir.Constant(ir.IntType(32), 0))

    return x.dtype(x), generate


@_instruction
def all_below(typing: Any, x: Any, bound: Any) -> tuple[Any, _Codegen]:
    """Return whether all eight are less than a float; NaN is not."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        lanes, limit = arguments
        bits = ir.IntType(LANES)
        is_below = builder.fcmp_ordered("<", lanes, _splat(builder, limit))
        return builder.icmp_unsigned("==", builder.bitcast(is_below, bits), bits(2**LANES - 1))

    return boolean(x, x.dtype), generate


@_instruction
def first_lanes(typing: Any, x: Any, n: Any) -> tuple[Any, _Codegen]:
    """Return x with all but its first n lanes set to 0; n may be anything."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        lanes, number = arguments
        short = ir.IntType(32)
        ramp = ir.Constant(ir.VectorType(short, LANES), list(range(LANES)))
        is_kept = builder.icmp_signed("<", ramp, _splat(builder, builder.trunc(number, short)))
        return builder.select(is_kept, lanes, ir.Constant(lanes.type, [0.0] * LANES))

    return x(x, intp), generate


@_instruction
def rotate(typing: Any, x: Any, distance: Any) -> tuple[Any, _Codegen]:
    """Return x moved on by some lanes, a literal; what falls off the end enters at the front."""

    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        sources = [(i - distance.literal_value) % LANES for i in range(LANES)]
        return _shuffle(builder, arguments[0], sources)

    return x(x, distance), generate


def _pointer(builder: Any, start: Any, place: Any, n_numbers: int = LANES) -> Any:
    vector = ir.VectorType(start.type.pointee, n_numbers)
    return builder.bitcast(builder.gep(start, [place]), vector.as_pointer())


def _splat(builder: Any, number: Any) -> Any:
    vector = ir.VectorType(number.type, LANES)
    first = builder.insert_element(
        ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
    )
    return _shuffle(builder, first, [0] * LANES)


def _shuffle(builder: Any, lanes: Any, sources: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), sources)
    return builder.shuffle_vector(lanes, lanes, mask)
