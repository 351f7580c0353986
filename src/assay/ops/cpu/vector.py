"""A vector type for numba, which has none: LANES numbers in a register. Loops over arrays that may overlap are slow.

`load(x, n)` and `store(x, n, v)` move the n-th vector of a contiguous array, `load_columns` and `store_columns` four
vectors whose lanes lie apart in memory; + - * / take vectors and plain numbers.
`clamp`, `floor`, `two_to` and `larger` take either, so that a function written with them serves both.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic, models, overload, register_model

from assay.ops.cpu.jit import inline
from assay.ops.cpu.scratch import DEBUG, LANES

COLUMNS = 4  # that are moved between rows and lanes at once


class Vector(types.Type):
    def __init__(self, real):
        self.real = real
        super().__init__(f"Vector({real})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        real = manager.lookup(vector.real).get_value_type()
        super().__init__(manager, vector, ir.VectorType(real, LANES))


# -- memory --------------------------------------------------------------------------------------------------------


def _pointer(context, builder, signature, args):
    array = context.make_array(signature.args[0])(context, builder, args[0])
    first = builder.gep(array.data, [builder.mul(args[1], ir.Constant(args[1].type, LANES))])
    vector = ir.VectorType(array.data.type.pointee, LANES)
    return builder.bitcast(first, vector.as_pointer()), context.get_abi_sizeof(array.data.type.pointee)


@intrinsic
def _load(typing, x, n):
    def emit(context, builder, signature, args):
        pointer, align = _pointer(context, builder, signature, args)
        return builder.load(pointer, align=align)

    return Vector(x.dtype)(x, types.intp), emit


@intrinsic
def _store(typing, x, n, v):
    def emit(context, builder, signature, args):
        pointer, align = _pointer(context, builder, signature, args)
        builder.store(args[2], pointer, align=align)
        return context.get_dummy_value()

    return types.void(x, types.intp, Vector(x.dtype)), emit


@inline
def _checked_load(x, n):
    if n < 0 or (n + 1) * LANES > len(x):
        raise IndexError("a vector is read outside of its area")
    return _load(x, n)


@inline
def _checked_store(x, n, v):
    if n < 0 or (n + 1) * LANES > len(x):
        raise IndexError("a vector is written outside of its area")
    _store(x, n, v)


load, store = (_checked_load, _checked_store) if DEBUG else (_load, _store)


@intrinsic
def _load_columns(typing, x, start, stride):
    """Four vectors: the numbers at start, start + 1, start + 2 and start + 3 of every lane, `stride` numbers apart."""

    def emit(context, builder, signature, args):
        rows = [
            builder.load(pointer, align=align) for pointer, align in _four_of_lanes(context, builder, signature, args)
        ]
        while len(rows) > 1:  # one after the other, to one long vector
            rows = [
                _shuffle(builder, a, b, range(2 * a.type.count)) for a, b in zip(rows[::2], rows[1::2], strict=True)
            ]
        columns = [_shuffle(builder, rows[0], rows[0], range(i, COLUMNS * LANES, COLUMNS)) for i in range(COLUMNS)]
        return context.make_tuple(builder, signature.return_type, columns)

    return types.UniTuple(Vector(x.dtype), COLUMNS)(x, types.intp, types.intp), emit


@intrinsic
def _store_columns(typing, x, start, stride, columns):
    """The reverse."""

    def emit(context, builder, signature, args):
        a, b, c, d = (builder.extract_value(args[3], i) for i in range(COLUMNS))
        ab, cd = (_shuffle(builder, *pair, range(2 * LANES)) for pair in ((a, b), (c, d)))
        for lane, (pointer, align) in enumerate(_four_of_lanes(context, builder, signature, args)):
            row = _shuffle(builder, ab, cd, range(lane, COLUMNS * LANES, LANES))
            builder.store(row, pointer, align=align)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp, types.UniTuple(Vector(x.dtype), COLUMNS)), emit


def _four_of_lanes(context, builder, signature, args):
    """A pointer to the four numbers of every lane."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    real, (start, stride) = array.data.type.pointee, args[1:3]
    for lane in range(LANES):
        index = builder.add(start, builder.mul(stride, ir.Constant(stride.type, lane)))
        four = builder.bitcast(builder.gep(array.data, [index]), ir.VectorType(real, COLUMNS).as_pointer())
        yield four, context.get_abi_sizeof(real)


def _shuffle(builder, a, b, positions):
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(positions)), list(positions))
    return builder.shuffle_vector(a, b, mask)


@inline
def _checked_load_columns(x, start, stride):
    if start < 0 or stride < 0 or start + (LANES - 1) * stride + COLUMNS > x.size:
        raise IndexError("columns are read outside of their array")
    return _load_columns(x, start, stride)


@inline
def _checked_store_columns(x, start, stride, columns):
    if start < 0 or stride < 0 or start + (LANES - 1) * stride + COLUMNS > x.size:
        raise IndexError("columns are written outside of their array")
    _store_columns(x, start, stride, columns)


load_columns, store_columns = (
    (_checked_load_columns, _checked_store_columns) if DEBUG else (_load_columns, _store_columns)
)


@intrinsic
def splat(typing, x):
    """One number in every lane."""

    def emit(context, builder, signature, args):
        return _splat(builder, args[0])

    return Vector(x)(x), emit


@intrinsic
def zero(typing, x):
    """Zero in every lane, in the type of an array."""

    def emit(context, builder, signature, args):
        return context.get_constant_null(signature.return_type)

    return Vector(x.dtype)(x), emit


def _splat(builder, number):
    vector = ir.VectorType(number.type, LANES)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return _shuffle(builder, one, one, [0] * LANES)


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _arithmetic(symbol, instruction):
    @intrinsic
    def emitted(typing, a, b):
        kind = a if isinstance(a, Vector) else b

        def emit(context, builder, signature, args):
            both = [
                x if isinstance(argument, Vector) else _splat(builder, context.cast(builder, x, argument, kind.real))
                for argument, x in zip(signature.args, args, strict=True)
            ]
            return getattr(builder, instruction)(*both)

        return kind(a, b), emit

    @overload(symbol)
    def operation(a, b):
        if isinstance(a, Vector) or isinstance(b, Vector):
            return lambda a, b: emitted(a, b)
        return None


for _symbol, _instruction in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")
):  # fmt: skip
    _arithmetic(_symbol, _instruction)


@intrinsic
def _negated(typing, a):
    return a(a), lambda context, builder, signature, args: builder.fneg(args[0])


@overload(operator.neg)
def _negative(a):
    return (lambda a: _negated(a)) if isinstance(a, Vector) else None


@intrinsic
def larger(typing, a, b):
    def emit(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, a), emit


@intrinsic
def positive(typing, a):
    """1 where a > 0 and 0 elsewhere."""

    def emit(context, builder, signature, args):
        kind = args[0].type
        none = context.get_constant_null(signature.args[0])
        return builder.uitofp(builder.fcmp_ordered(">", args[0], none), kind)

    return a(a), emit


@intrinsic
def clamp(typing, x, least, most):
    """x within two plain numbers; NaN stays NaN."""

    def emit(context, builder, signature, args):
        x, *bounds = args
        for comparison, bound in zip("<>", bounds, strict=True):
            edge = _splat(builder, bound) if isinstance(signature.args[0], Vector) else bound
            x = builder.select(builder.fcmp_ordered(comparison, x, edge), edge, x)
        return x

    return x(x, least, most), emit


@intrinsic
def floor(typing, x):
    def emit(context, builder, signature, args):
        kind = args[0].type
        bits = 64 if "double" in str(kind) else 32
        name = f"llvm.floor.v{LANES}f{bits}" if isinstance(kind, ir.VectorType) else f"llvm.floor.f{bits}"
        return builder.call(get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name), args)

    return x(x), emit


@intrinsic
def half_of_two_to(typing, n):
    """2^(n - 1) from its bits, for an integer n; half, so that the largest power does not overflow too early."""
    double = (n.real if isinstance(n, Vector) else n) == types.float64
    mantissa, bias = (52, 1023) if double else (23, 127)

    def emit(context, builder, signature, args):
        kind = args[0].type
        integer = ir.IntType(64 if double else 32)
        wide = ir.VectorType(integer, LANES) if isinstance(kind, ir.VectorType) else integer

        def constant(number):
            return ir.Constant(wide, [number] * LANES if wide is not integer else number)

        exponent = builder.add(builder.fptosi(args[0], wide), constant(bias - 1))
        return builder.bitcast(builder.shl(exponent, constant(mantissa)), kind)

    return n(n), emit
