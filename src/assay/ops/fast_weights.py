"""Fast weight programmers (Irie et al. 2023): the state is a matrix that every step writes to.

A fast weight W is [batch, heads, value, key].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.errors import BadInput
from assay.ops import chunked
from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator
from assay.ops.products import apply, outer, weigh

__all__ = ["delta_rule", "linear_attention", "recurrent_delta", "retention", "srwm"]

Four = tuple[Tensor, Tensor, Tensor, Tensor]
_ATTENTION = {"q": "B H T K", "k": "B H T K", "v": "B H T V"}
_W = {"W": "B H V K"}
_READ = {"o": "B H T V", **_W}
_USUAL = {"H": 4, "K": 16, "V": 16}
SRWM_PARTS = "yqkb"


def _unit(k: Tensor) -> Tensor:
    return F.normalize(k, dim=-1)


# -- linear attention ----------------------------------------------------------------------------------------------


def linear_attention_step(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """W' = W + v k^T, o = W' q."""
    W = W + outer(v, k)
    return apply(W, q), W


LINEAR_ATTENTION = define(
    Operator(
        "linear_attention",
        linear_attention_step,
        inputs=_ATTENTION | _W,
        outputs=_READ,
        kernels={"cpu": 0, "gpu": 1},
        shortest={"cpu": 50},
        widest={"cpu": 32},
        bounded="KV",
        chunked=chunked.linear_attention,
        typical={"k": _unit},
        usual=_USUAL,
    )
)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, W: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """W' = W + v k^T, o = W' q."""
    o, W = call(LINEAR_ATTENTION, q, k, v, W, backend=backend)
    return o, W


# -- retention -----------------------------------------------------------------------------------------------------


def retention_step(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """W' = decay W + v k^T, o = W' q, with a decay per head (Sun et al. 2023)."""
    W = decay[..., None, None] * W + outer(v, k)
    return apply(W, q), W


RETENTION = define(
    Operator(
        "retention",
        retention_step,
        inputs=_ATTENTION | {"decay": "G H"} | _W,
        outputs=_READ,
        kernels={"cpu": 0, "gpu": 1},
        shortest={"cpu": 50},
        widest={"cpu": 32},
        bounded="KV",
        chunked=chunked.retention,
        typical={"k": _unit, "decay": torch.sigmoid},
        usual=_USUAL,
    )
)


def retention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """W' = decay W + v k^T, o = W' q; the decay is [groups, heads], or [heads] for all rows."""
    o, W = call(RETENTION, q, k, v, decay[None] if decay.ndim == 1 else decay, W, backend=backend)
    return o, W


# -- the delta rule ------------------------------------------------------------------------------------------------


def delta_rule_step(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """W' = W + beta (v - W k) k^T, o = W' q."""
    W = W + outer(beta[..., None] * (v - apply(W, k)), k)
    return apply(W, q), W


DELTA_RULE = define(
    Operator(
        "delta_rule",
        delta_rule_step,
        inputs=_ATTENTION | {"beta": "B H T"} | _W,
        outputs=_READ,
        kernels={"cpu": 2, "gpu": 3},
        widest={"cpu": 64},
        bounded="KV",
        chunked=chunked.delta_rule,
        typical={"k": _unit, "beta": lambda beta: 2 * (3 * beta).sigmoid()},
        usual=_USUAL,
    )
)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """W' = W + beta (v - W k) k^T, o = W' q."""
    o, W = call(DELTA_RULE, q, k, v, beta, W, backend=backend)
    return o, W


# -- the recurrent delta rule --------------------------------------------------------------------------------------


def recurrent_delta_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    R_q: Tensor,
    R_k: Tensor,
    R_v: Tensor,
    r_b: Tensor,
    W: Tensor,
    o: Tensor,
    additive: bool = False,
) -> tuple[Tensor, Tensor]:
    """The delta rule whose q, k, v and beta also see h = tanh(o), the head's last output.

    q' = softmax(q + R_q h), k' = softmax(k + R_k h), v' = v + R_v h, beta' = sigmoid(beta + r_b . h). With `additive`,
    nothing is removed from W: W' = W + beta' v' k'^T.
    """
    R = torch.cat([R_q, R_k, R_v, r_b[..., None, :]], dim=-2)
    from_q, from_k, from_v, from_b = weigh(R, o.tanh()).split([q.shape[-1], k.shape[-1], v.shape[-1], 1], dim=-1)
    q, k, v = (q + from_q).softmax(-1), (k + from_k).softmax(-1), v + from_v
    beta = (beta + from_b[..., 0]).sigmoid()
    return linear_attention_step(q, k, beta[..., None] * v, W) if additive else delta_rule_step(q, k, v, beta, W)


RECURRENT_DELTA = define(
    Operator(
        "recurrent_delta",
        recurrent_delta_step,
        inputs=_ATTENTION
        | {"beta": "B H T", "R_q": "G H K V", "R_k": "G H K V", "R_v": "G H V V", "r_b": "G H V"}
        | _W
        | {"o": "B H V"},
        outputs=_READ,
        kernels={"cpu": 5, "gpu": 2},
        flags={"additive": False},
        bundles={"R": ("R_q", "R_k", "R_v", "r_b"), "state": ("W", "o")},
        by_group=("R_q", "R_k", "R_v", "r_b"),
        bounded="KV",
        variants={"additive": {"additive": True}},
        usual={"H": 8, "K": 16, "V": 16},
    )
)


def recurrent_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    R: Four,
    state: tuple[Tensor, Tensor] | None = None,
    *,
    additive: bool = False,
    backend: Backend = "auto",
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The delta rule with feedback of its last output through R = (R_q, R_k, R_v, r_b); the state is (W, last output).

    R_q and R_k are [groups, heads, key, value], R_v [groups, heads, value, value], r_b [groups, heads, value]; q, k and
    beta are taken before their softmax and sigmoid. With `additive`, nothing is removed from W: W' = W + beta v k^T.
    """
    o, W, last = call(RECURRENT_DELTA, q, k, v, beta, R, state, additive=additive, backend=backend)
    return o, (W, last)


# -- the self-referential weight matrix ----------------------------------------------------------------------------


def written_parts(fixed: str) -> list[bool]:
    """Which of the four parts y, q, k, b of the matrix are written to: those whose letters are not in `fixed`."""
    return [part not in fixed for part in SRWM_PARTS]


def srwm_step(
    x: Tensor, W_y: Tensor, W_q: Tensor, W_k: Tensor, w_b: Tensor, read_after_write: bool = False, fixed: str = ""
) -> tuple[Tensor, ...]:
    """A weight matrix that modifies itself: W = [W_y | W_q | W_k | w_b], d rows and 3 d + 4 columns, row vectors.

    y, q, k, beta = x W_y, softmax(x W_q), softmax(x W_k), sigmoid(x w_b), and each part i with its own beta_i:
    W_i' = W_i + beta_i k^T (q W_i - k W_i). The output y is read before the write, or with `read_after_write` after it.
    Parts that are `fixed` are not written to: their beta_i is 0.
    """
    d = x.shape[-1]
    W = torch.cat([W_y, W_q, W_k, w_b], dim=-1)
    y, q, k, beta = apply(W.mT, x).split([d, d, d, 4], dim=-1)
    q, k, beta = q.softmax(-1), k.softmax(-1), beta.sigmoid()
    if fixed:
        beta = torch.stack(
            [b * is_written for b, is_written in zip(beta.unbind(-1), written_parts(fixed), strict=True)], -1
        )
    rates = torch.cat([beta[..., :3].repeat_interleave(d, dim=-1), beta[..., 3:].expand(*beta.shape[:-1], 4)], dim=-1)
    W = W + outer(k, rates * apply(W.mT, q - k))
    return apply(W[..., :d].mT, x) if read_after_write else y, *W.split([d, d, d, 4], dim=-1)


SRWM = define(
    Operator(
        "srwm",
        srwm_step,
        inputs={"x": "B H T D", "W_y": "G H D D", "W_q": "G H D D", "W_k": "G H D D", "w_b": "G H D 4"},
        outputs={"y": "B H T D", "W_y": "B H D D", "W_q": "B H D D", "W_k": "B H D D", "w_b": "B H D 4"},
        kernels={"cpu": 4, "gpu": 2},
        flags={"read_after_write": False, "fixed": ""},
        bundles={"W": ("W_y", "W_q", "W_k", "w_b")},
        bounded="D",
        variants={"after": {"read_after_write": True}, "fixed": {"fixed": "qb"}},
        usual={"H": 8, "D": 16},
    )
)


def srwm(
    x: Tensor, W: Four, *, read_after_write: bool = False, fixed: str = "", backend: Backend = "auto"
) -> tuple[Tensor, Four]:
    """The self-referential matrix: W = (W_y, W_q, W_k [groups, heads, dim, dim], w_b [groups, heads, dim, 4]).

    `fixed` names parts that are read and never written to, by their letters: y, q, k, b.
    """
    if unknown := set(fixed) - set(SRWM_PARTS):
        raise BadInput(f"srwm: fixed = {fixed!r} has {sorted(unknown)[0]!r}; expected letters of {SRWM_PARTS!r}")
    y, W_y, W_q, W_k, w_b = call(SRWM, x, W, read_after_write=read_after_write, fixed=fixed, backend=backend)
    return y, (W_y, W_q, W_k, w_b)
