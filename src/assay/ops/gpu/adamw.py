"""The AdamW update of all rows in three kernels: partial norms, the numbers of every row, and the update itself.

`Slots.update` in `assay.lab.slots` is the reference. A kernel of its own for a row's numbers keeps the update free of
races: it reads what the row's counters were turned into, and writes none of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # entries of a row that a program updates at a time
GROUP = 16  # entries of a row between two rows of the table; it divides the size
SHARES = 64  # at most, of a row's norm
PI = tl.constexpr(3.141592653589793)
NUMBERS = 9  # of a row: scale of g, 1 - beta_1, 1 - beta_2, beta_2, decay, root, eps, step size, whether to update


def update(
    counters: dict[str, Tensor],
    losses: Tensor,
    g: Tensor,
    theta: Tensor,
    m: Tensor,
    v: Tensor,
    copy: Tensor | None = None,
    table: Tensor | None = None,
) -> None:
    """Update theta, m, v [rows, size] and the counters (the columns of `Slots` by name) in place.

    `copy` receives the parameters once more, each contiguous over all rows; `table` [size / GROUP, 2] holds for every
    group of entries where its parameter starts in a row, and how many entries that has.
    """
    rows, size = theta.shape
    groups = size // GROUP
    shares = min(SHARES, triton.cdiv(size, BLOCK))
    squares = theta.new_empty(rows, shares, dtype=torch.float64)
    numbers = theta.new_empty(rows, NUMBERS)
    _squares[(rows, shares)](g, squares, groups, shares, GROUP=GROUP, BLOCK=BLOCK)
    c = counters
    _numbers[(rows,)](
        losses, squares, numbers, c["step"], c["limit"], c["diverged"], c["loss"], c["lr"], c["warmup"], c["schedule"],
        c["beta_1"], c["beta_2"], c["eps"], c["weight_decay"], c["clip"], c["explodes"],
        shares, SHARES=SHARES, COUNT=NUMBERS, num_warps=1,
    )  # fmt: skip
    _update[(rows, triton.cdiv(size, BLOCK))](
        g, theta, m, v, copy, table, numbers, groups, COUNT=NUMBERS, GROUP=GROUP, GROUPS=BLOCK // GROUP
    )


@triton.jit(do_not_specialize=("groups", "shares"))
def _squares(g, squares, groups, shares, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of squares of every shares-th block of a row, in float64."""
    row, share, size = tl.program_id(0).to(tl.int64), tl.program_id(1), groups * GROUP
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(share * BLOCK, size, shares * BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(g + row * size + at, mask=at < size, other=0.0).to(tl.float64)
        total += x * x
    tl.store(squares + row * shares + share, tl.sum(total, 0))


@triton.jit
def _finite(x):
    return tl.abs(x) < float("inf")


@triton.jit(do_not_specialize=("shares",))
def _numbers(
    losses, squares, numbers, steps, limits, diverged, loss_sums, lrs, warmups, schedules,
    betas_1, betas_2, epsilons, decays, clips, explosions, shares,
    SHARES: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """The counters of a row after the step, and the numbers that its update needs."""
    row, share = tl.program_id(0), tl.arange(0, SHARES)
    norm = tl.sqrt(tl.sum(tl.load(squares + row * shares + share, mask=share < shares, other=0.0), 0))
    loss = tl.load(losses + row).to(tl.float64)
    limit, was_diverged = tl.load(limits + row), tl.load(diverged + row) != 0
    active = (tl.load(steps + row) < limit) & (was_diverged == 0)
    good = active & _finite(loss) & (loss < tl.load(explosions + row)) & _finite(norm)
    step = tl.load(steps + row) + active.to(tl.int64)
    tl.store(steps + row, step)
    tl.store(diverged + row, was_diverged | (active & (good == 0)))
    tl.store(loss_sums + row, tl.load(loss_sums + row) + tl.where(good, loss, 0.0))

    share_done = (step - 1).to(tl.float32) / tl.maximum(limit, 1).to(tl.float32)
    schedule = tl.load(schedules + row)
    falling = tl.where(schedule == 1, 1.0 - share_done, 0.5 * (1.0 + tl.cos(share_done * PI)))
    falling = tl.where(schedule == 0, 1.0, falling)
    rising = tl.minimum(step.to(tl.float64) / tl.maximum(tl.load(warmups + row), 1.0), 1.0)
    rate = tl.where(good, tl.load(lrs + row) * rising * falling, 0.0)
    beta_1, beta_2, count = tl.load(betas_1 + row), tl.load(betas_2 + row), tl.maximum(step, 1).to(tl.float64)
    to = numbers + row * COUNT
    tl.store(to, tl.minimum(tl.load(clips + row) / (norm + 1e-6), 1.0))
    tl.store(to + 1, tl.where(good, 1.0 - beta_1, 0.0))
    tl.store(to + 2, tl.where(good, 1.0 - beta_2, 0.0))
    tl.store(to + 3, tl.where(good, beta_2, 1.0))
    tl.store(to + 4, 1.0 - rate * tl.load(decays + row))
    tl.store(to + 5, 1.0 / tl.sqrt(1.0 - tl.exp(count * tl.log(beta_2))))
    tl.store(to + 6, tl.load(epsilons + row))
    tl.store(to + 7, rate / (1.0 - tl.exp(count * tl.log(beta_1))))
    tl.store(to + 8, good.to(tl.float64))


@triton.jit(do_not_specialize=("groups",))
def _update(
    g_in, theta_in, m_in, v_in, copy, table, numbers, groups,
    COUNT: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = group < groups
    real, at, now = there[:, None], row * groups * GROUP + column, numbers + row * COUNT
    scale, rest_1, rest_2, beta_2 = tl.load(now), tl.load(now + 1), tl.load(now + 2), tl.load(now + 3)
    decay, root, eps, step_size = tl.load(now + 4), tl.load(now + 5), tl.load(now + 6), tl.load(now + 7)
    good = tl.load(now + 8)
    theta, m = tl.load(theta_in + at, real, 0.0), tl.load(m_in + at, real, 0.0)
    v, g = tl.load(v_in + at, real, 0.0), tl.load(g_in + at, real, 0.0)
    g = tl.where(good > 0.0, g * scale, 0.0)
    m += rest_1 * (g - m)
    v = v * beta_2 + g * rest_2 * g
    theta = theta * decay - m / (tl.sqrt(v) * root + eps) * step_size
    tl.store(theta_in + at, theta, real)
    tl.store(m_in + at, m, real)
    tl.store(v_in + at, v, real)
    if copy is not None:
        start = tl.load(table + 2 * group, there, 0)[:, None]
        count = tl.load(table + 2 * group + 1, there, 0)[:, None]
        to = start * tl.num_programs(0) + row * count + column - start
        tl.store(copy + to, theta, real & (column - start < count))
