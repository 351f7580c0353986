"""A stateless random generator: every word is a hash of where it stands.

A word is a pure function of (seed, stream, step, row, column), computed with wrapping 64-bit integer arithmetic on
tensors. So CPU and GPU draw the same bits, a row does not depend on the batch around it, and a resumed run has nothing
to restore. The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014) with Stafford's constants (mix 13).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


GOLDEN = _signed(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: the stride of SplitMix64's counter
MIX_1 = _signed(0xBF58476D1CE4E5B9)
MIX_2 = _signed(0x94D049BB133111EB)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift (torch's own is arithmetic)."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def kernels(x: Tensor) -> ModuleType | None:
    """The kernels for integers, if they can work on a tensor: it is on a GPU, and has contents."""
    if type(x) is not Tensor or not x.is_cuda or not _has_triton():
        return None
    from assay import integer_kernels  # imports Triton

    return integer_kernels


def mix(z: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """A bijection of 64-bit words in which every input bit reaches every output bit."""
    if gpu := kernels(z):
        return cast(Tensor, gpu.mix(z))
    z = (z ^ _shift(z, 30)).mul_(MIX_1)
    z = z.bitwise_xor_(_shift(z, 27)).mul_(MIX_2)
    return z.bitwise_xor_(_shift(z, 31))


@cache
def _mixed(number: int) -> int:
    """`mix` of one word."""
    word = (1 << 64) - 1
    z = number & word
    z = (z ^ (z >> 30)) * MIX_1 & word
    z = (z ^ (z >> 27)) * MIX_2 & word
    return _signed(z ^ (z >> 31))


def _number(value: int, device: torch.device | str) -> Int[Tensor, ""]:
    """Written by the device itself: a copy from the host would wait for it."""
    return torch.full((), value, dtype=torch.int64, device=device)


@cache
def _stream(name: str) -> int:
    return _signed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big"))


@cache
def _normal_quantiles(device: torch.device) -> Float[Tensor, "65536"]:
    """Computed on the CPU, so that every device holds the same bits; with contents even while a step is traced."""
    with unset_fake_temporarily():
        middles = (torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16)
        quantiles: Tensor = torch.special.ndtri(middles)
        return quantiles.float().to(device)


@dataclass(frozen=True)
class Rng:
    """A stateless generator, or one per row: keys of shape [] or [rows]. Every draw appends one axis of columns."""

    keys: Int[Tensor, "*rows"]

    @classmethod
    def seeded(cls, seed: int, *path: int | str, device: torch.device | str = "cpu") -> Rng:
        """The generator of a seed and a path of stream names and numbers."""
        return cls(_number(seed, device)).child(*path)

    def child(self, *path: int | str | Int[Tensor, "*rows"]) -> Rng:
        """An independent generator for each name, number or tensor of numbers along the path."""
        keys = self.keys
        for part in path:
            number = _stream(part) if isinstance(part, str) else part
            mixed = mix(number + GOLDEN) if isinstance(number, Tensor) else _mixed(number + GOLDEN)
            keys = mix(keys ^ mixed)
        return Rng(keys)

    def rows(self, count: int, first: int = 0) -> Rng:
        """One independent generator per row: row i is the same whatever the count."""
        return self.child(torch.arange(first, first + count, device=self.keys.device))

    def words(self, columns: int) -> Int[Tensor, "*rows columns"]:
        """Uniform 64-bit words."""
        counter = torch.arange(1, columns + 1, device=self.keys.device) * GOLDEN
        return mix(self.keys[..., None] + counter)

    def integers(self, columns: int, high: int | Int[Tensor, "..."]) -> Int[Tensor, "*rows columns"]:
        """Whole numbers in [0, high) for high < 2^31, uniform to within high / 2^31."""
        return _shift(self.words(columns), 33).mul_(high) >> 31

    def uniform(self, columns: int) -> Float[Tensor, "*rows columns"]:
        """Float64 numbers in [0, 1), 53 bits each."""
        return _shift(self.words(columns), 11).double() * 2.0**-53

    def normal(self, columns: int) -> Float[Tensor, "*rows columns"]:
        """Standard normal float32 numbers, from 65,536 equally likely quantiles (|x| < 4.33).

        A table look-up, because logarithm and cosine do not give the same bits on every device. A word serves four.
        """
        words = self.words((columns + 3) // 4)
        quarters = torch.stack([words >> bits for bits in (0, 16, 32, 48)], dim=-1).bitwise_and_(0xFFFF)
        return _normal_quantiles(self.keys.device)[quarters.flatten(-2)[..., :columns]]

    def order(self, columns: int) -> Int[Tensor, "*rows columns"]:
        """A uniformly random permutation of range(columns) per row."""
        return self.words(columns).argsort(dim=-1, stable=True)
