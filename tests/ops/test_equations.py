"""The equations of every operator, written out again for one row and head; and PyTorch's own networks and layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray as Array
from torch import Tensor, nn

from assay import ops

from .cases import CASES, SIZES, Case

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def close(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted), rtol=1e-12, atol=1e-12)


# -- the equations, for one row and one head -----------------------------------------------------------------------


def sigmoid(x: Array | float) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)))


def softmax(x: Array) -> Any:
    return np.exp(x) / np.exp(x).sum()


def attention(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    q, k, v = x
    past, o = len(k) - len(q), []
    for t in range(len(q)):
        weights = softmax(np.array([q[t] @ k[j] / len(q[t]) ** 0.5 for j in range(past + t + 1)]))
        o.append(sum(weights[j] * v[j] for j in range(past + t + 1)))
    return (np.array(o),)


def linear_attention(x: list[Array], w: list[Array], s: list[Array], decay: float = 1.0) -> tuple[Array, ...]:
    (q, k, v), W, o = x, s[0].copy(), []
    for t in range(len(q)):
        for i in range(W.shape[0]):
            for j in range(W.shape[1]):
                W[i, j] = decay * W[i, j] + v[t, i] * k[t, j]
        o.append([sum(W[i, j] * q[t, j] for j in range(W.shape[1])) for i in range(W.shape[0])])
    return np.array(o), W


def retention(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    return linear_attention(x, [], s, decay=float(w[0]))


def delta(W: Array, k: Array, v: Array, beta: float, correct: bool = True) -> Array:
    read = [correct * sum(W[i, j] * k[j] for j in range(len(k))) for i in range(len(v))]
    return np.array([[W[i, j] + beta * (v[i] - read[i]) * k[j] for j in range(len(k))] for i in range(len(v))])


def delta_rule(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (q, k, v, beta), W, o = x, s[0], []
    for t in range(len(q)):
        W = delta(W, k[t], v[t], beta[t])
        o.append(W @ q[t])
    return np.array(o), W


def dplr(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (q, k, v, decay, a, b), S, o = x, s[0], []
    for t in range(len(q)):
        for m in range(k.shape[1]):
            kept, A = np.diag(decay[t]) if m == 0 else np.eye(len(S)), np.zeros((len(S), len(S)))
            for i, j in np.ndindex(*A.shape):
                A[i, j] = kept[i, j] + b[t, m, i] * a[t, m, j]
            S = A @ S + np.outer(k[t, m], v[t, m])
        o.append([sum(S[i, j] * q[t, i] for i in range(len(S))) for j in range(S.shape[1])])
    return np.array(o), S


def recurrent_delta(x: list[Array], w: list[Array], s: list[Array], additive: bool = False) -> tuple[Array, ...]:
    (q, k, v, b), (R_q, R_k, R_v, r_b), (W, o), outputs = x, w, s, []
    for t in range(len(q)):
        h = np.tanh(o)
        W = delta(W, softmax(k[t] + R_k @ h), v[t] + R_v @ h, sigmoid(b[t] + r_b @ h), not additive)
        o = W @ softmax(q[t] + R_q @ h)
        outputs.append(o)
    return np.array(outputs), W, o


def srwm(
    x: list[Array], w: list[Array], s: list[Array], read_after_write: bool = False, fixed: str = ""
) -> tuple[Array, ...]:
    W, y = [M.copy() for M in w], []
    for u in x[0]:
        W_y, W_q, W_k, w_b = (M.copy() for M in W)
        q, k, beta = softmax(u @ W_q), softmax(u @ W_k), sigmoid(u @ w_b)
        for index, old in enumerate((W_y, W_q, W_k, w_b)):
            if "yqkb"[index] in fixed:
                continue
            for i in range(old.shape[0]):
                for j in range(old.shape[1]):
                    difference = sum((q[m] - k[m]) * old[m, j] for m in range(len(q)))
                    W[index][i, j] = old[i, j] + beta[index] * k[i] * difference
        y.append(u @ (W[0] if read_after_write else W_y))
    return np.array(y), *W


def elementwise_lstm(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (z, f), (w_z, w_f), c, cells = x, w, list(s[0]), []
    for t in range(len(z)):
        for i in range(len(c)):
            new, keep = np.tanh(z[t, i] + w_z[i] * c[i]), sigmoid(f[t, i] + w_f[i] * c[i])
            c[i] = keep * c[i] + (1 - keep) * new
        cells.append(list(c))
    return np.array(cells), np.array(c)


def elman(x: list[Array], w: list[Array], s: list[Array], relu: bool = False) -> tuple[Array, ...]:
    h, outputs = s[0], []
    for a in x[0]:
        total = [a[i] + sum(w[0][i, j] * h[j] for j in range(len(h))) for i in range(len(h))]
        h = np.array([max(u, 0.0) if relu else np.tanh(u) for u in total])
        outputs.append(h)
    return np.array(outputs), h


def gru(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (R, b), h, outputs = w, s[0], []
    d = len(h)
    for a in x[0]:
        u = R @ h
        r, z = sigmoid(a[:d] + u[:d]), sigmoid(a[d : 2 * d] + u[d : 2 * d])
        h = z * h + (1 - z) * np.tanh(a[2 * d :] + r * (u[2 * d :] + b))
        outputs.append(h)
    return np.array(outputs), h


def lstm(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (h, c), outputs = s, []
    d = len(h)
    for a in x[0]:
        i, f, g, o = ((a + w[0] @ h)[n * d : (n + 1) * d] for n in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs), h, c


def slstm(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    """As published: cell C, normaliser N and stabiliser m; the state has C / N and log N + m."""
    (h, c, n), outputs = s, []
    C, N, m, d = c, np.ones_like(n), n, len(s[0])
    for a in x[0]:
        i, f, z, o = ((a + w[0] @ h)[k * d : (k + 1) * d] for k in range(4))
        log_f = np.log(sigmoid(f))
        top = np.maximum(i, log_f + m)
        write, keep = np.exp(i - top), np.exp(log_f + m - top)
        C, N, m = keep * C + write * np.tanh(z), keep * N + write, top
        h = sigmoid(o) * C / N
        outputs.append(h)
    return np.array(outputs), h, C / N, np.log(N) + m


def m2rnn(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (q, k, v, f), W, H, outputs = x, w[0], s[0], []
    for t in range(len(q)):
        new = np.zeros_like(H)
        for i, j in np.ndindex(*H.shape):
            new[i, j] = np.tanh(sum(H[i, n] * W[n, j] for n in range(len(W))) + k[t, i] * v[t, j])
        H = f[t] * H + (1 - f[t]) * new
        outputs.append([sum(q[t, i] * H[i, j] for i in range(len(H))) for j in range(H.shape[1])])
    return np.array(outputs), H


def permuted_scan(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    P, a, b, h = x[0], *(z[..., 0] + 1j * z[..., 1] for z in (*x[1:], s[0]))
    states = []
    for t in range(len(P)):
        h = np.array([sum(P[t, i, j] * a[t, j] * h[j] for j in range(len(h))) + b[t, i] for i in range(len(h))])
        states.append(np.stack([h.real, h.imag], axis=-1))
    return np.array(states), states[-1]


def diagonal_scan(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (a, b, C), D, h, outputs = (v[..., 0] + 1j * v[..., 1] for v in w[:3]), w[3], s[0][..., 0] + 1j * s[0][..., 1], []
    for u in x[0]:
        for i, n in np.ndindex(*h.shape):
            h[i, n] = a[i, n] * h[i, n] + b[i, n] * u[i]
        read = [sum(2 * (C[i, n] * h[i, n]).real for n in range(h.shape[1])) for i in range(len(u))]
        outputs.append([read[i] + D[i] * u[i] for i in range(len(u))])
    return np.array(outputs), np.stack([h.real, h.imag], axis=-1)


def selective_scan(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (u, z, dt, B, C), (A, D), h, outputs = x, w, s[0].copy(), []
    for t in range(len(u)):
        step = np.log(1 + np.exp(dt[t]))
        for i, n in np.ndindex(*h.shape):
            h[i, n] = np.exp(-step[i] * np.exp(A[i, n])) * h[i, n] + step[i] * u[t, i] * B[t, n]
        read = [sum(h[i, n] * C[t, n] for n in range(h.shape[1])) for i in range(h.shape[0])]
        outputs.append((read + D * u[t]) * z[t] * sigmoid(z[t]))
    return np.array(outputs), h


def causal_convolution(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (w_, b), entries, outputs = w, [*s[0].T, *x[0]], []
    for t in range(len(x[0])):
        sums = [b[i] + sum(w_[i, k] * entries[t + k][i] for k in range(w_.shape[1])) for i in range(len(b))]
        total = np.array(sums)
        outputs.append(total * sigmoid(total))
    return np.array(outputs), np.array(entries[len(x[0]) :]).T


def affine(x: list[Array], w: list[Array], s: list[Array], relu: bool = False) -> tuple[Array, ...]:
    W, b = w
    y = [[b[i] + sum(W[i, j] * u[j] for j in range(len(u))) for i in range(len(b))] for u in x[0]]
    return (np.maximum(y, 0.0) if relu else np.array(y),)


def layer_norm(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    y = []
    for u in x[0]:
        mean = sum(u) / len(u)
        variance = sum((u - mean) ** 2) / len(u)
        y.append(w[0] * (u - mean) / np.sqrt(variance + 1e-5) + w[1])
    return (np.array(y),)


EQUATIONS: dict[str, Callable[..., tuple[Array, ...]]] = {
    "attention": attention,
    "linear_attention": linear_attention,
    "retention": retention,
    "delta_rule": delta_rule,
    "dplr": dplr,
    "recurrent_delta": recurrent_delta,
    "srwm": srwm,
    "elman": elman,
    "gru": gru,
    "lstm": lstm,
    "elementwise_lstm": elementwise_lstm,
    "slstm": slstm,
    "m2rnn": m2rnn,
    "permuted_scan": permuted_scan,
    "diagonal_scan": diagonal_scan,
    "selective_scan": selective_scan,
    "causal_convolution": causal_convolution,
    "affine": affine,
    "layer_norm": layer_norm,
}


def test_every_operator_has_its_equations_here():
    assert set(EQUATIONS) == set(ops.OPERATORS)


@every_case
def test_equations(case: Case):
    batch, groups = 4, 2
    x, w, s = case.draw(5, batch, groups)
    got = case.run((x, w, s))
    for row in range(batch):
        for head in range(SIZES["H"]):
            group = row * groups // batch
            wanted = EQUATIONS[case.name](
                [part[row, head].numpy() for part in x],
                [part[group, head].numpy() for part in w],
                [part[row, head].numpy() for part in s],
                **case.flags,
            )
            assert len(wanted) == len(got)
            for ours, theirs in zip(got, wanted, strict=True):
                close(ours[row, head], theirs)


# -- against torch's own networks and layers -----------------------------------------------------------------------


def torch_network(network: Any, **options: Any) -> tuple[Any, Tensor, Tensor]:
    """A network of torch's in float64, an input for it, and the input's share a = W x + b of its gates."""
    torch.manual_seed(0)
    theirs = network(3, 4, batch_first=True, **options).double()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    return theirs, x, (x @ theirs.weight_ih_l0.T + theirs.bias_ih_l0)[:, None]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_elman_is_torch_rnn(activation: str):
    theirs, x, a = torch_network(nn.RNN, nonlinearity=activation)
    h = torch.randn(2, 1, 4, dtype=torch.float64)
    wanted, last = theirs(x, h.transpose(0, 1).contiguous())
    R = theirs.weight_hh_l0[None, None]
    got, final = ops.elman(a + theirs.bias_hh_l0, R, h, relu=activation == "relu", backend="reference")
    close(got[:, 0], wanted)
    close(final.transpose(0, 1), last)


def test_gru_is_torch_gru():
    theirs, x, a = torch_network(nn.GRU)
    h = torch.randn(2, 1, 4, dtype=torch.float64)
    wanted, last = theirs(x, h.transpose(0, 1).contiguous())
    outside, b_n = theirs.bias_hh_l0.split([8, 4])
    a = a + torch.cat([outside, torch.zeros(4)])
    got, final = ops.gru(a, theirs.weight_hh_l0[None, None], b_n[None, None], h, backend="reference")
    close(got[:, 0], wanted)
    close(final.transpose(0, 1), last)


def test_lstm_is_torch_lstm():
    theirs, x, a = torch_network(nn.LSTM)
    h, c = torch.randn(2, 2, 1, 4, dtype=torch.float64)
    wanted, (last_h, last_c) = theirs(x, (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
    R = theirs.weight_hh_l0[None, None]
    got, (final_h, final_c) = ops.lstm(a + theirs.bias_hh_l0, R, (h, c), backend="reference")
    close(got[:, 0], wanted)
    close(final_h.transpose(0, 1), last_h)
    close(final_c.transpose(0, 1), last_c)


@pytest.mark.parametrize("heads", [1, 2])
def test_affine_and_layer_norm_are_torch_linear_and_layer_norm(heads: int):
    torch.manual_seed(0)
    x = torch.randn(2, heads, 6, 3, dtype=torch.float64)
    linear, norm = nn.Linear(3, 5).double(), nn.LayerNorm(3).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    W, b, w, c = (p.expand(1, heads, *p.shape) for p in (*linear.parameters(), *norm.parameters()))
    close(ops.affine(x, W, b, backend="reference"), linear(x))
    close(ops.affine(x, W, b, relu=True, backend="reference"), linear(x).relu())
    close(ops.layer_norm(x, w, c, backend="reference"), norm(x))
