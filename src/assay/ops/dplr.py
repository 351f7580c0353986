"""Linear recurrences whose transition is diagonal plus low rank: the form of most models from 2023 on."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from assay.ops import chunked
from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator
from assay.ops.products import apply, outer

__all__ = ["dplr"]


def dplr_step(q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """S' = (Diag(w) + b a^T) S + k v^T, o = S'^T q: a reads the state before the decay.

    Further writes of the token do not decay: S'' = (I + b a^T) S' + k v^T, with the next k, v, a and b.
    """
    for n, (key, value) in enumerate(zip(k.unbind(2), v.unbind(2), strict=True)):
        a_n, b_n = a[:, :, n : n + 1], b[:, :, n : n + 1]  # empty where nothing is corrected
        S = (S if n else w[..., None] * S) + b_n.mT @ (a_n @ S) + outer(key, value)
    return apply(S.mT, q), S


def _unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


DPLR = define(
    Operator(
        "dplr",
        dplr_step,
        inputs={
            "q": "B H T K",
            "k": "B H T M K",
            "v": "B H T M V",
            "w": "B H T L",
            "a": "B H T R K",
            "b": "B H T R K",
            "S": "B H K V",
        },
        outputs={"o": "B H T V", "S": "B H K V"},
        kernels={"cpu": 2, "gpu": 1},
        choices={"L": ("1", "K"), "R": ("0", "M")},
        bounded="KV",
        chunked=chunked.dplr,
        typical={"k": _unit, "w": lambda w: (3 * w).sigmoid(), "a": lambda a: _unit(a) / 2, "b": _unit},
        usual={"H": 4, "K": 16, "V": 16, "M": 1},
    )
)


def dplr(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    S: Tensor | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """S' = (Diag(w) + b a^T) S + k v^T, o = S'^T q; further writes of a token: S'' = (I + b a^T) S' + k v^T.

    k, a and b are [batch, heads, time, writes, key], v [..., writes, value], S [batch, heads, key, value]. w has one
    decay per key, or one for all: [batch, heads, time, key or 1]. Without a and b the transition is diagonal. The
    output is read after all writes of a token.
    """
    none = k.new_empty(*k.shape[:3], 0, k.shape[-1]) if k.ndim == 5 else k
    o, S = call(DPLR, q, k, v, w, none if a is None else a, none if b is None else b, S, backend=backend)
    return o, S
