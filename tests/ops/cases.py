"""Every op as a case: the shapes it takes and how it is called, so that a property is written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay import ops

Shapes = tuple[tuple[int, ...], ...]
HEADS, K, V, D, N = 2, 3, 2, 3, 2  # heads, key size, value size, other sizes, states of a state-space model


@dataclass(frozen=True)
class Case:
    """`inputs` are [batch, heads, time, *shape], `weights` [groups, heads, *shape], `state` [batch, heads, *shape]."""

    op: str
    call: Callable[..., tuple[Tensor, Any]]  # of (inputs, weights, state, backend=...)
    inputs: Shapes
    weights: Shapes = ()
    state: Shapes = ()
    dtype: torch.dtype = torch.float64
    grouped: bool = True  # whether the weights' first axis is that of the groups

    def draw(self, time: int, batch: int = 2, groups: int = 1, seed: int = 0) -> tuple[list[Tensor], ...]:
        """Random inputs, weights and state."""
        rng = torch.Generator().manual_seed(seed)

        def some(shapes: Shapes, *front: int) -> list[Tensor]:
            return [torch.randn(*front, *shape, generator=rng, dtype=self.dtype) * 0.6 for shape in shapes]

        return (
            some(self.inputs, batch, HEADS, time),
            some(self.weights, groups, HEADS),
            some(self.state, batch, HEADS),
        )

    def run(
        self, inputs: Sequence[Tensor], weights: Sequence[Tensor], state: Sequence[Tensor], backend: str = "reference"
    ) -> tuple[Tensor, ...]:
        """The outputs and every tensor of the final state."""
        output, final = self.call(list(inputs), list(weights), list(state), backend=backend)
        return output, *pytree.tree_leaves(final)


def pair(state: list[Tensor]) -> tuple[Tensor, ...] | None:
    return tuple(state) or None


CASES = {
    "linear_attention": Case(
        "linear_attention", lambda x, w, s, **kw: ops.linear_attention(*x, *s, **kw), ((K,), (K,), (V,)), (), ((V, K),)
    ),
    "retention": Case(
        "retention",
        lambda x, w, s, **kw: ops.retention(*x, w[0][0], *s, **kw),
        ((K,), (K,), (V,)),
        ((),),
        ((V, K),),
        grouped=False,
    ),
    "delta_rule": Case(
        "delta_rule", lambda x, w, s, **kw: ops.delta_rule(*x, *s, **kw), ((K,), (K,), (V,), ()), (), ((V, K),)
    ),
    "recurrent_delta": Case(
        "recurrent_delta",
        lambda x, w, s, **kw: ops.recurrent_delta(*x, tuple(w), pair(s), **kw),
        ((D,), (D,), (D,), ()),
        ((D, D), (D, D), (D, D), (D,)),
        ((D, D), (D,)),
    ),
    "srwm": Case(
        "srwm", lambda x, w, s, **kw: ops.srwm(*x, tuple(s or w), **kw), ((D,),), ((D, D), (D, D), (D, D), (D, 4))
    ),
    "srwm-after": Case(
        "srwm",
        lambda x, w, s, **kw: ops.srwm(*x, tuple(s or w), read_after_write=True, **kw),
        ((D,),),
        ((D, D), (D, D), (D, D), (D, 4)),
    ),
    "elman": Case("elman", lambda x, w, s, **kw: ops.elman(*x, *w, *s, **kw), ((D,),), ((D, D),), ((D,),)),
    "elman-relu": Case(
        "elman", lambda x, w, s, **kw: ops.elman(*x, *w, *s, relu=True, **kw), ((D,),), ((D, D),), ((D,),)
    ),
    "gru": Case("gru", lambda x, w, s, **kw: ops.gru(*x, *w, *s, **kw), ((3 * D,),), ((3 * D, D), (D,)), ((D,),)),
    "lstm": Case(
        "lstm", lambda x, w, s, **kw: ops.lstm(*x, *w, pair(s), **kw), ((4 * D,),), ((4 * D, D),), ((D,), (D,))
    ),
    "elementwise_lstm": Case(
        "elementwise_lstm",
        lambda x, w, s, **kw: ops.elementwise_lstm(*x, *w, *s, **kw),
        ((D,), (D,)),
        ((D,), (D,)),
        ((D,),),
    ),
    "diagonal_scan": Case(
        "diagonal_scan", lambda x, w, s, **kw: ops.diagonal_scan(*x, *s, **kw), ((D, N), (D, N)), (), ((D, N),)
    ),
    "diagonal_scan-complex": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(*x, *s, **kw),
        ((D, N), (D, N)),
        (),
        ((D, N),),
        dtype=torch.complex128,
    ),
    "selective_scan": Case(
        "selective_scan",
        lambda x, w, s, **kw: ops.selective_scan(x[0], x[1], w[0], x[2], x[3], *s, **kw),
        ((D,), (D,), (N,), (N,)),
        ((D, N),),
        ((D, N),),
    ),
}
