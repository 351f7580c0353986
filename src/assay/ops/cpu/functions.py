"""exp, sigmoid, tanh and softplus of a number or of a vector, in vector instructions; the C library takes one number
per call.

exp(x) = 2^n exp(r) with |r| <= log(2) / 2, and exp(r) - 1 by its Taylor series, with as many terms as the type needs.
log(1 + x) = 2 atanh(t) with t = x / (2 + x), which is at most 1/3 for x in [0, 1], and atanh by its Taylor series.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from assay.ops.cpu.jit import INLINE, inline
from assay.ops.cpu.vector import Vector, clamp, floor, half_of_two_to, larger


def _functions(real, terms, log_terms, ln2_high, exponents):
    """(exp, sigmoid, tanh, softplus) in one floating-point type."""
    high, low = real(ln2_high), real(math.log(2) - ln2_high)
    log2_e, half, one, two = real(1 / math.log(2)), real(0.5), real(1), real(2)
    least, most = real((1 - exponents) * math.log(2)), real((1 + exponents) * math.log(2))
    far = real(64)  # where tanh(x / 2) is 1 in either type
    first, *others = (real(1 / math.factorial(n)) for n in range(terms, 1, -1))
    series = tuple(others)
    log_first, *log_others = (real(1 / (2 * n + 1)) for n in range(log_terms, 0, -1))
    log_series = tuple(log_others)

    @inline
    def parts(x):
        """2^n / 2, and exp(r) - 1."""
        x = clamp(x, least, most)
        n = floor(x * log2_e + half)
        r = x - n * high - n * low
        p = first * r
        for coefficient in series[:-1]:
            p = (p + coefficient) * r
        return half_of_two_to(n), r + r * r * (p + series[-1])

    @inline
    def exp(x):
        scale, rest = parts(x)
        return (scale * rest + scale) * two

    @inline
    def sigmoid(x):
        return one / (one + exp(-x))

    @inline
    def tanh(x):
        scale, rest = parts(clamp(two * x, -far, far))
        e = two * scale * rest + (two * scale - one)  # exp(2x) - 1, exact to the last digits near zero
        return e / (e + two)

    @inline
    def softplus(x):
        """max(x, 0) + log(1 + exp(-|x|))."""
        size = larger(x, -x)
        e = exp(-size)
        t = e / (e + two)
        s = t * t
        p = log_first * s
        for coefficient in log_series:
            p = (p + coefficient) * s
        return half * (x + size) + two * (t + t * p)

    return exp, sigmoid, tanh, softplus


_IN_32 = _functions(np.float32, 7, 7, 0.693359375, 127)
_IN_64 = _functions(np.float64, 13, 16, 0.6931471803691238, 1023)


def exp(x): ...


def sigmoid(x): ...


def tanh(x): ...


def softplus(x): ...


def _by_type(index):
    def implementation(x):
        real = x.real if isinstance(x, Vector) else x
        function = (_IN_32 if real == types.float32 else _IN_64)[index]
        return lambda x: function(x)

    return implementation


for _index, _name in enumerate((exp, sigmoid, tanh, softplus)):
    overload(_name, jit_options=INLINE)(_by_type(_index))
