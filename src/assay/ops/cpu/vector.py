"""A vector type for numba, which has none: LANES numbers in a register. Loops over arrays that may overlap are slow.

`load(x, n)` and `store(x, n, v)` move the n-th vector of a contiguous array; + - * / take vectors and plain numbers.
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
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, one, everywhere)


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
