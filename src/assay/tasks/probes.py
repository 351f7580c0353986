"""Probes: inputs that are made to expose a shortcut, or a memory that leaks; random inputs hardly ever do.

They have a version of their own, outside of the digests of runs: when probes change, stored weights are probed again,
and no record becomes stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from assay.rng import Rng
from assay.tasks.words import Lasso, lassos

VERSION = 2  # raised when the probes of any task change
MOST_LASSOS = 2_000
MOST_PAIRS = 20_000  # of access word and loop, that are looked at before the dead ones are left out
MOST_TOKENS = 1 << 18  # of all lassos of a task
MOST_SYMBOLS = 32  # for which runs of one symbol are tried


class Probe(NamedTuple):
    """A named set of inputs [rows, time] (or [rows, time, features]), padded on the right."""

    name: str
    inputs: Tensor


def rows_of(words: Iterable[Sequence[int]]) -> Int[Tensor, "rows time"]:
    """Words as rows of tokens, padded on the right."""
    rows = [torch.tensor(list(word), dtype=torch.int64) for word in words]
    if not rows:
        return torch.zeros(0, 1, dtype=torch.int64)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def short_lassos(tokens: int, possible: Callable[[list[Lasso]], list[Lasso]] = lambda words: words) -> list[Lasso]:
    """All possible lassos u w w w ... with |u|, |w| <= 2, if there are at most 2,000.

    Otherwise those with |u| <= 1 and |w| = 1, and a sample of longer ones, 2,000 in all.
    """
    if (1 + tokens + tokens**2) * (tokens + tokens**2) <= MOST_PAIRS:
        words = possible(lassos(tokens, access=2, loop=2))
        if len(words) <= MOST_LASSOS:
            return words
    shortest = lassos(tokens, access=1, loop=1) if tokens * (tokens + 1) <= MOST_LASSOS else []
    drawn = (Rng.seeded(0, "lassos").integers(4 * MOST_LASSOS, tokens) + 1).view(-1, 4).tolist()
    sample = [Lasso((a, b), (c, d) if c != d else (c,)) for a, b, c, d in drawn]
    return possible(list(dict.fromkeys([*shortest, *sample])))[:MOST_LASSOS]


def probes_of_lassos(words: list[Lasso], longest: int) -> list[Probe]:
    """Lassos as far as `longest`; if that is very much, those with |u| = 2 or |w| = 2 only to 256 tokens."""
    if len(words) * longest <= MOST_TOKENS:
        return [Probe("lassos", rows_of(lasso.word(longest) for lasso in words))]
    shortest = [lasso for lasso in words if len(lasso.access) + len(lasso.loop) <= 2]
    others = [lasso for lasso in words if lasso not in shortest]
    return [
        Probe("lassos", rows_of(lasso.word(longest) for lasso in shortest)),
        Probe("longer lassos", rows_of(lasso.word(min(longest, 256)) for lasso in others)),
    ]


def with_runs(
    inputs: Int[Tensor, "rows time"], tokens: Sequence[int], longest: int
) -> Int[Tensor, "rows_times_tokens longest"]:
    """Each row with its middle stretched by a run of each token, to `longest` tokens."""
    half = inputs.shape[1] // 2
    run = torch.tensor(list(tokens)).repeat_interleave(len(inputs))[:, None].expand(-1, longest - 2 * half)
    rows = inputs.repeat(len(tokens), 1)
    return torch.cat([rows[:, :half], run, rows[:, half : 2 * half]], dim=1)


def powers(longest: int) -> list[int]:
    """1, 2, 3, 5, 9, ... up to `longest`, and `longest` itself: a few sizes of every order.

    >>> powers(20)
    [1, 2, 3, 5, 9, 17, 20]
    """
    return sorted({n for n in (1, *(1 + 2**i for i in range(20)), longest) if n <= longest})
