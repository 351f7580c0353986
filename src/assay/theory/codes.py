"""Codes: nearly orthogonal vectors for positions in few dimensions, with their largest inner product computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count as counting
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assay.errors import BadInput
from assay.rng import Rng

# Primitive polynomials over GF(2), by degree, as bit masks.
PRIMITIVE = {
    2: 0b111, 3: 0b1011, 4: 0b10011, 5: 0b100101, 6: 0b1000011, 7: 0b10000011, 8: 0b100011101, 9: 0b1000010001,
}  # fmt: skip
SEARCHED = range(2, 9)  # the m of the codes whose largest inner product is computed in a moment


@dataclass(frozen=True, eq=False)
class Code:
    """Vectors of signs in k dimensions; divided by sqrt(k) they have unit length."""

    name: str
    signs: Float[Tensor, "count k"]

    @property
    def k(self) -> int:
        return self.signs.shape[1]

    @cached_property
    def gamma(self) -> float:
        """The largest inner product of two different vectors of unit length; exact, as sums of signs are integers."""
        if len(self.signs) < 2:
            return -1.0
        most = -float(self.k)
        for first, rows in enumerate(self.signs.split(1024)):
            products = rows @ self.signs.T
            diagonal = torch.arange(len(rows))
            products[diagonal, 1024 * first + diagonal] = -math.inf
            most = max(most, float(products.max()))
        return most / self.k

    def scale(self, competitors: int, eps: float) -> float:
        """The eta for which softmax(eta <q, k_i>) gives the right key a weight of at least 1 - eps against
        competitors."""
        return math.log(max(1, competitors) * (1 - eps) / eps) / (1 - self.gamma)


# -- trace codes ---------------------------------------------------------------------------------------------------


def trace_code(count: int, gamma: float = 0.25, signed: bool = False) -> Code:
    """Extended dual-BCH codes: T(i)_x = (-1)^(Tr(a_1 x + a_3 x^3 + ...) + b), x in GF(2^m), k = 2^m.

    With t coefficients a_1, a_3, ... there are 2^(mt + 1) vectors with inner products of at most 2 (t - 1) / sqrt(k),
    by the Weil-Carlitz-Uchiyama bound. `signed` leaves out b, and with it the complements, so that the bound holds for
    absolute values. The result is the shortest code with enough vectors.
    """
    m, t = trace_size(count, gamma, signed)
    return Code(f"trace code, m = {m}, t = {t}", _codewords(m, t, torch.arange(count), signed))


def trace_size(count: int, gamma: float = 0.25, signed: bool = False) -> tuple[int, int]:
    """The m and t of the shortest trace code with this many vectors."""
    for m, t in product(SEARCHED, range(1, 4)):
        if 2 ** (m * t + (0 if signed else 1)) >= count and largest_inner_product(m, t) <= gamma:
            return m, t
    raise BadInput(f"there is no trace code of {count} vectors with inner products up to {gamma} here; at most 2^25")


@cache
def largest_inner_product(m: int, t: int) -> float:
    """The largest inner product of the whole code, exactly. The code is linear, so every inner product of two codewords
    is one of a codeword with the all-ones vector.

    The codewords with a_3, a_5, ... fixed are a coset of the linear functions, so one Walsh-Hadamard transform gives
    all their sums.
    """
    powers = [_powers(m, 2 * i + 1) for i in range(1, t)]
    most, number = 0.0, torch.arange(2 ** (m * (t - 1)))
    for cosets in number.split(4096):
        rows = torch.zeros(len(cosets), 2**m, dtype=torch.int64)
        for i, power in enumerate(powers):
            a = cosets[:, None] >> (m * i) & (2**m - 1)
            rows ^= _trace(m, _times(m, a, power))
        sums = _hadamard(1.0 - 2.0 * rows)
        sums[cosets == 0, 0] = 0.0  # the all-ones codeword itself
        most = max(most, float(sums.abs().max()))
    return most / (1 << m)


def scattered_code(count: int, gamma: float, rng: Rng) -> Code:
    """Random vectors of the trace code with t = 2, without complements: |inner products| up to gamma.

    The first vectors of a trace code are orthogonal; of these, if m is odd, about half of all pairs are not.
    """
    m = scattered_size(count, gamma)
    if m not in PRIMITIVE:
        raise BadInput(
            f"{count} vectors with inner products up to {gamma:.2g} have 2^{m} coordinates; at most 2^9 here"
        )
    return Code(f"scattered trace code, m = {m}", _codewords(m, 2, rng.order(4**m)[:count], signed=True))


def scattered_size(count: int, gamma: float) -> int:
    """The least m of a trace code with t = 2 whose |inner products| are at most gamma.

    They are at most sqrt(2 / k) if m is odd (Gold 1968), and 2 / sqrt(k) if it is even.

    >>> scattered_size(100, 1 / 8), scattered_size(100, 1 / 16), scattered_size(10**9, 1 / 16)
    (7, 9, 15)
    """
    sizes = (m for m in counting(3) if 4**m >= count)
    return next(m for m in sizes if (2 if m % 2 else 4) <= gamma**2 * 2**m)


def _codewords(m: int, t: int, number: Int[Tensor, "count"], signed: bool) -> Float[Tensor, "count k"]:
    bits = torch.zeros(len(number), 2**m, dtype=torch.int64)
    if not signed:
        bits += (number & 1)[:, None]
        number = number >> 1
    for i in range(t):
        a = (number >> (m * i)) & (2**m - 1)
        bits ^= _trace(m, _times(m, a[:, None], _powers(m, 2 * i + 1)))
    return 1.0 - 2.0 * bits


def _times(m: int, a: Int[Tensor, "..."], b: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Products in GF(2^m): polynomials over GF(2) modulo a primitive polynomial."""
    a, b = torch.broadcast_tensors(a, b)
    product = torch.zeros_like(a)
    for i in reversed(range(m)):
        product = product << 1
        product = torch.where(product >> m & 1 == 1, product ^ PRIMITIVE[m], product)
        product = torch.where(b >> i & 1 == 1, product ^ a, product)
    return product


def _powers(m: int, exponent: int) -> Int[Tensor, "k"]:
    """x^exponent for every x in the field."""
    x = torch.arange(2**m)
    power = x
    for _ in range(exponent - 1):
        power = _times(m, power, x)
    return power


def _trace(m: int, x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Tr(x) = x + x^2 + x^4 + ... in GF(2): 0 or 1."""
    table = torch.arange(2**m)
    total, power = table, table
    for _ in range(m - 1):
        power = _times(m, power, power)
        total = total ^ power
    return total[x]


def _hadamard(rows: Float[Tensor, "rows k"]) -> Float[Tensor, "rows k"]:
    """Sum over x of row(x) (-1)^<a, x> for every a. Up to a permutation of a, <a, x> is Tr(a_1 x)."""
    k, half = rows.shape[1], 1
    while half < k:
        pairs = rows.view(len(rows), -1, 2, half)
        rows = torch.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], dim=2).view(len(rows), k)
        half *= 2
    return rows


# -- other codes -----------------------------------------------------------------------------------------------------


def random_signs(count: int, gamma: float, rng: Rng) -> Code:
    """Lemma 2's vectors (Johnson and Lindenstrauss): (8 / gamma^2) ln(2 N) dimensions of fair coins.

    |<T_i, T_j>| <= gamma holds for all pairs with probability at least 1/2; the signs are drawn until it does.
    """
    k = math.ceil(8 / gamma**2 * math.log(2 * count))
    for attempt in range(100):
        coins = rng.child("signs", attempt).integers(count * k, 2).view(count, k)
        code = Code("random signs", 2.0 * coins - 1.0)
        if code.gamma <= gamma:
            return code
    raise BadInput(f"no {count} random signs with inner products up to {gamma} in 100 draws")


def binary(count: int) -> Code:
    """Positions in binary digits, as signs: ceil(log2 N) dimensions, with inner products up to 1 - 2 / k."""
    k = max(1, math.ceil(math.log2(count)))
    bits = torch.arange(count)[:, None] >> torch.arange(k) & 1
    return Code("binary digits", 2.0 * bits - 1.0)


def binary_digits(count: int) -> Float[Tensor, "count digits"]:
    """The numbers 0 to count - 1 in binary digits 0 and 1, the lowest digit first.

    >>> binary_digits(3)
    tensor([[0., 0.],
            [1., 0.],
            [0., 1.]])
    """
    return (binary(count).signs + 1) / 2
