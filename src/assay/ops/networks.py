"""Recurrent networks: the state is a vector, or several; that of the M2RNN is a matrix."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator
from assay.ops.products import outer, weigh

__all__ = ["elementwise_lstm", "elman", "gru", "lstm", "m2rnn", "slstm"]

_USUAL = {"H": 1, "D": 64}


def _contracting(R: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(R, 2, keepdim=True)
    return R / norm


# -- Elman's network -----------------------------------------------------------------------------------------------


def elman_step(a: Tensor, R: Tensor, h: Tensor, relu: bool = False) -> tuple[Tensor]:
    """h' = tanh(a + R h), or relu; a is the input after its own product."""
    h = a + weigh(R, h)
    return (h.relu() if relu else h.tanh(),)


ELMAN = define(
    Operator(
        "elman",
        elman_step,
        inputs={"a": "B H T D", "R": "G H D D", "h": "B H D"},
        outputs={"h": "B H T D"},
        kernels={"cpu": 0, "gpu": 0},
        flags={"relu": False},
        by_group=("R",),
        typical={"R": _contracting},
        variants={"relu": {"relu": True}},
        usual=_USUAL,
    )
)


def elman(
    a: Tensor, R: Tensor, h: Tensor | None = None, *, relu: bool = False, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """h' = tanh(a + R h), or relu; R is [groups, heads, dim, dim]."""
    outputs, h = call(ELMAN, a, R, h, relu=relu, backend=backend)
    return outputs, h


# -- the gated recurrent unit --------------------------------------------------------------------------------------


def gru_step(a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor]:
    """r, z = sigmoid(a + R h), n = tanh(a_n + r (R_n h + b)), h' = (1 - z) n + z h; gates stacked as r, z, n."""
    a_r, a_z, a_n = a.chunk(3, -1)
    h_r, h_z, h_n = weigh(R, h).chunk(3, -1)
    r, z = (a_r + h_r).sigmoid(), (a_z + h_z).sigmoid()
    n = (a_n + r * (h_n + b)).tanh()
    return ((1 - z) * n + z * h,)


GRU = define(
    Operator(
        "gru",
        gru_step,
        inputs={"a": "B H T 3D", "R": "G H 3D D", "b": "G H D", "h": "B H D"},
        outputs={"h": "B H T D"},
        kernels={"cpu": 1, "gpu": 1},
        by_group=("R",),
        usual=_USUAL,
    )
)


def gru(
    a: Tensor, R: Tensor, b: Tensor, h: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """A gated recurrent unit; a [..., 3 dim] and R [groups, heads, 3 dim, dim] hold the gates r, z, n in this order."""
    outputs, h = call(GRU, a, R, b, h, backend=backend)
    return outputs, h


# -- long short-term memory ----------------------------------------------------------------------------------------


def lstm_step(a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g, h' = o tanh(c'); i, f, o = sigmoid(a + R h) and g = tanh(a + R h), stacked as i, f, g, o."""
    i, f, g, o = (a + weigh(R, h)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


LSTM = define(
    Operator(
        "lstm",
        lstm_step,
        inputs={"a": "B H T 4D", "R": "G H 4D D", "h": "B H D", "c": "B H D"},
        outputs={"h": "B H T D", "c": "B H D"},
        kernels={"cpu": 1, "gpu": 2},
        bundles={"state": ("h", "c")},
        by_group=("R",),
        usual=_USUAL,
    )
)


def lstm(
    a: Tensor, R: Tensor, state: tuple[Tensor, Tensor] | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Long short-term memory; a [..., 4 dim] and R [groups, heads, 4 dim, dim] hold the gates i, f, g, o in this order.

    The state is (h, c).
    """
    outputs, h, c = call(LSTM, a, R, state, backend=backend)
    return outputs, (h, c)


# -- the e-LSTM ----------------------------------------------------------------------------------------------------


def elementwise_lstm_step(z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> tuple[Tensor]:
    """c' = f c + (1 - f) z, where z = tanh(z + w_z c) and f = sigmoid(f + w_f c), all element by element."""
    z, f = (z + w_z * c).tanh(), (f + w_f * c).sigmoid()
    return (f * c + (1 - f) * z,)


ELEMENTWISE_LSTM = define(
    Operator(
        "elementwise_lstm",
        elementwise_lstm_step,
        inputs={"z": "B H T D", "f": "B H T D", "w_z": "G H D", "w_f": "G H D", "c": "B H D"},
        outputs={"c": "B H T D"},
        kernels={"cpu": 0, "gpu": 0},
        usual=_USUAL,
    )
)


def elementwise_lstm(
    z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """The recurrence of the e-LSTM: its outputs are the cells c; w_z and w_f are [groups, heads, dim]."""
    outputs, c = call(ELEMENTWISE_LSTM, z, f, w_z, w_f, c, backend=backend)
    return outputs, c


# -- the sLSTM -----------------------------------------------------------------------------------------------------


def slstm_step(a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """c' = c + p (tanh(z) - c), h' = sigmoid(o) c' with i, f, z, o = a + R h stacked in this order.

    The published cell and normaliser (Beck et al. 2024) only act by their quotient c; n is the normaliser's logarithm:
    n' = log(exp(i) + sigmoid(f) exp(n)), and p = exp(i - n') is the new token's share of it.
    """
    i, f, z, o = (a + weigh(R, h)).chunk(4, -1)
    kept = n + F.logsigmoid(f)
    c = c + (i - kept).sigmoid() * (z.tanh() - c)
    return o.sigmoid() * c, c, torch.logaddexp(i, kept)


SLSTM = define(
    Operator(
        "slstm",
        slstm_step,
        inputs={"a": "B H T 4D", "R": "G H 4D D", "h": "B H D", "c": "B H D", "n": "B H D"},
        outputs={"h": "B H T D", "c": "B H D", "n": "B H D"},
        kernels={"cpu": 1, "gpu": 2},
        bundles={"state": ("h", "c", "n")},
        by_group=("R",),
        usual={"H": 4, "D": 16},
    )
)

Three = tuple[Tensor, Tensor, Tensor]


def slstm(a: Tensor, R: Tensor, state: Three | None = None, *, backend: Backend = "auto") -> tuple[Tensor, Three]:
    """The sLSTM; a [..., 4 dim] and R [groups, heads, 4 dim, dim] hold the gates i, f, z, o in this order.

    The state is (h, c, n): the output, the normalised cell and the logarithm of the normaliser. Left out, it is zero as
    for every operator; the published network starts with a normaliser of 0, for which n is a large negative number.
    """
    outputs, h, c, n = call(SLSTM, a, R, state, backend=backend)
    return outputs, (h, c, n)


# -- the M2RNN -----------------------------------------------------------------------------------------------------


def m2rnn_step(q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor) -> tuple[Tensor, Tensor]:
    """H' = f H + (1 - f) tanh(H W + k v^T), o = H'^T q: W [groups, heads, value, value], H [..., key, value]."""
    f, rows = f[..., None, None], H.unflatten(0, (len(W), -1))
    H = f * H + (1 - f) * ((rows @ W[:, None]).flatten(0, 1) + outer(k, v)).tanh()
    return (q[..., None, :] @ H).squeeze(-2), H


M2RNN = define(
    Operator(
        "m2rnn",
        m2rnn_step,
        inputs={
            "q": "B H T K",
            "k": "B H T K",
            "v": "B H T V",
            "f": "B H T",
            "W": "G H V V",
            "H": "B H K V",
        },
        outputs={"o": "B H T V", "H": "B H K V"},
        kernels={"cpu": 1, "gpu": 1},
        by_group=("W",),
        bounded="KV",
        head_limit=64,  # float64 matrices of larger heads do not fit on chip
        typical={"f": Tensor.sigmoid, "W": _contracting},
        usual={"H": 4, "K": 16, "V": 16},
    )
)


def m2rnn(
    q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """H' = f H + (1 - f) tanh(H W + k v^T), o = H'^T q, with f [batch, heads, time] between 0 and 1."""
    o, H = call(M2RNN, q, k, v, f, W, H, backend=backend)
    return o, H
