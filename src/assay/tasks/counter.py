"""Counter languages: a^n b^n, a^n b^n c^n and a^n b^n c^n d^n."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe
from assay.tasks.task import DEAD, Task


class EqualCounts(Task):
    """n of each letter in alphabetical order. The answer is the set of symbols that may come next."""

    letters: ClassVar[str]

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(self.letters)

    @property
    def answers(self) -> tuple[str, ...]:
        """The first or the second letter (named by the next free letter), each later letter, the end (T), dead."""
        return (chr(ord(self.letters[-1]) + 1), *self.letters[1:], "T", DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        k = len(self.letters)
        counts = torch.stack([(inputs == i + 1).cumsum(1) for i in range(k)])
        n, now = counts[0], counts.gather(0, (inputs - 1).clamp(min=0)[None])[0]
        before = counts.gather(0, (inputs - 2).clamp(min=0)[None])[0]
        first = inputs == 1
        # A letter is legal if there are n of the letter before it and at most n of itself.
        legal = torch.where(first, counts[1:].sum(0) == 0, (before == n) & (now <= n))
        dead = ((~legal) & (inputs > 0)).cumsum(1) > 0
        following = torch.where(first, 0, torch.where(now < n, inputs - 1, inputs))
        return torch.where(dead, k + 1, following)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        n = lengths[:, None] // len(self.letters)
        return torch.arange(width, device=lengths.device) // n.clamp(min=1) + 1

    def log2_inputs(self, length: int) -> float:
        return 0.0  # one word per length

    def fits(self, length: int) -> bool:
        return length > 0 and length % len(self.letters) == 0

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The words themselves, at up to 64 lengths: random test inputs leave out every other length."""
        lengths = self.lengths(trained[0], longest)
        spread = torch.tensor(lengths)[torch.linspace(0, len(lengths) - 1, min(64, len(lengths))).round().long()]
        return [Probe("every n", self.inputs(spread, Rng.seeded(0).rows(len(spread))))]


class AnBn(EqualCounts):
    """a^n b^n. Answers: c = a or b may follow, b = only b, T = complete.

    >>> AnBn().explain("aaaabbbb")
    'ccccbbbT'
    >>> AnBn().explain("aba")
    'cT!'
    """

    kind: ClassVar[str] = "an-bn"
    letters: ClassVar[str] = "ab"
    train_lengths: ClassVar[tuple[int, int]] = (2, 100)


class AnBnCn(EqualCounts):
    """a^n b^n c^n. Answers: d = a or b may follow, b, c = only that, T = complete.

    >>> AnBnCn().explain("aaabbbccc")
    'dddbbcccT'
    """

    kind: ClassVar[str] = "an-bn-cn"
    letters: ClassVar[str] = "abc"
    train_lengths: ClassVar[tuple[int, int]] = (3, 150)


class AnBnCnDn(EqualCounts):
    """a^n b^n c^n d^n. Answers: e = a or b may follow, b, c, d = only that, T = complete.

    >>> AnBnCnDn().explain("aabbccdd")
    'eebccddT'
    """

    kind: ClassVar[str] = "an-bn-cn-dn"
    letters: ClassVar[str] = "abcd"
    train_lengths: ClassVar[tuple[int, int]] = (4, 200)
