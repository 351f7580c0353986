"""State-space models: the state is multiplied and added to, element by element; and the convolution before one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.ops import chunked
from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator
from assay.ops.products import apply, as_complex, outer

__all__ = ["causal_convolution", "diagonal_scan", "permuted_scan", "selective_scan"]


# -- the diagonal scan ---------------------------------------------------------------------------------------------


def diagonal_scan_step(u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """h' = a h + b u, y = 2 Re(C h') + D u; u, D [batch, heads, dim], the complex a, b, C, h [..., dim, state, 2]."""
    after = as_complex(a) * as_complex(h) + as_complex(b) * u[..., None]
    return 2 * (as_complex(C) * after).sum(-1).real + D * u, torch.view_as_real(after)


DIAGONAL_SCAN = define(
    Operator(
        "diagonal_scan",
        diagonal_scan_step,
        inputs={
            "u": "B H T D",
            "a": "G H D N 2",
            "b": "G H D N 2",
            "C": "G H D N 2",
            "D": "G H D",
            "h": "B H D N 2",
        },
        outputs={"y": "B H T D", "h": "B H D N 2"},
        kernels={"gpu": 0},
        bounded="N",
        chunked=chunked.diagonal_scan,
        typical={"a": lambda a: a / (1 + a.norm(dim=-1, keepdim=True))},  # inside the unit circle
        usual={"H": 1, "D": 64, "N": 16},
    )
)


def diagonal_scan(
    u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """h' = a h + b u, y = 2 Re(C h') + D u; a, b and C are complex: [groups, heads, dim, state, 2], as view_as_real."""
    y, h = call(DIAGONAL_SCAN, u, a, b, C, D, h, backend=backend)
    return y, h


# -- the selective scan --------------------------------------------------------------------------------------------


def selective_scan_step(
    x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor
) -> tuple[Tensor, Tensor]:
    """h' = exp(-s exp(A)) h + s x B^T with s = softplus(dt), y = (h' C + D x) silu(z) (Gu and Dao 2023)."""
    step = F.softplus(dt)
    h = torch.exp(-step[..., None] * A.exp()) * h + outer(step * x, B)
    return (apply(h, C) + D * x) * F.silu(z), h


SELECTIVE_SCAN = define(
    Operator(
        "selective_scan",
        selective_scan_step,
        inputs={
            "x": "B H T D",
            "z": "B H T D",
            "dt": "B H T D",
            "A": "G H D N",
            "B": "B H T N",
            "C": "B H T N",
            "D": "G H D",
            "h": "B H D N",
        },
        outputs={"y": "B H T D", "h": "B H D N"},
        kernels={"cpu": 2, "gpu": 1},
        bounded="N",
        typical={"A": Tensor.contiguous},
        usual={"H": 1, "D": 128, "N": 16},
    )
)


def selective_scan(
    x: Tensor,
    z: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    h: Tensor | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """h' = exp(-s exp(A)) h + s x B^T with s = softplus(dt), y = (h' C + D x) silu(z); B, C [..., time, state]."""
    y, h = call(SELECTIVE_SCAN, x, z, dt, A, B, C, D, h, backend=backend)
    return y, h


# -- the permuted scan ---------------------------------------------------------------------------------------------


def permuted_scan_step(P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = P (a h) + b; P [batch, heads, state, state] is real, the complex a, b and h are [..., state, 2]."""
    return (P @ torch.view_as_real(as_complex(a) * as_complex(h)) + b,)


PERMUTED_SCAN = define(
    Operator(
        "permuted_scan",
        permuted_scan_step,
        inputs={"P": "B H T N N", "a": "B H T N 2", "b": "B H T N 2", "h": "B H N 2"},
        outputs={"h": "B H T N 2"},
        kernels={"cpu": 0, "gpu": 0},
        bounded="N",
        typical={
            "P": lambda P: P.softmax(-2),  # columns with a sum of 1
            "a": lambda a: a / (1 + a.norm(dim=-1, keepdim=True)),  # inside the unit circle
        },
        usual={"H": 1, "N": 16},
    )
)


def permuted_scan(
    P: Tensor, a: Tensor, b: Tensor, h: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """h' = P (a h) + b: its outputs are the states; a, b and h are complex, [..., state, 2], as view_as_real.

    P [batch, heads, time, state, state] is any real matrix: a permutation whose gradient passes straight through has
    one for every entry.
    """
    outputs, h = call(PERMUTED_SCAN, P, a, b, h, backend=backend)
    return outputs, h


# -- the convolution -----------------------------------------------------------------------------------------------


def causal_convolution_step(x: Tensor, w: Tensor, b: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """y = silu(w . window + b) per channel, where the window is the past and x; w [..., dim, state]."""
    window = torch.cat([past, x[..., None]], -1)
    return F.silu((w * window).sum(-1) + b), window[..., 1:]


CAUSAL_CONVOLUTION = define(
    Operator(
        "causal_convolution",
        causal_convolution_step,
        inputs={"x": "B H T D", "w": "G H D N", "b": "G H D", "past": "B H D N-1"},
        outputs={"y": "B H T D", "past": "B H D N-1"},
        kernels={"gpu": 0},
        chunked=chunked.causal_convolution,
        usual={"H": 1, "D": 128, "N": 4},
    )
)


def causal_convolution(
    x: Tensor, w: Tensor, b: Tensor, past: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """y_t = silu(w_1 x_{t-n+1} + ... + w_n x_t + b) per channel; w is [groups, heads, dim, n], past has the n - 1 x."""
    y, past = call(CAUSAL_CONVOLUTION, x, w, b, past, backend=backend)
    return y, past
