"""The reference ops: their equations written out again for one row and head, and their gradients.

Then what every backend keeps: states, groups and invariants.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray as Array
from torch import Tensor, nn

from assay import ops
from assay.ops.rules import RULES

from .cases import CASES, OPS, SIZES, Case, with_backends

HEADS = SIZES["H"]
EVERY = ("reference", "chunked", "cpu", "gpu")
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_backend = with_backends(*EVERY)


def close(got: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(
        torch.as_tensor(got), torch.as_tensor(wanted), rtol=tolerance, atol=tolerance, check_dtype=True
    )


def test_every_op_has_a_case():
    functions = {name: f for name, f in inspect.getmembers(ops, inspect.isfunction) if not name.startswith("_")}
    takes_backend = {name for name, f in functions.items() if "backend" in inspect.signature(f).parameters}
    assert set(OPS) == set(RULES) == takes_backend - {"chosen"}


@every_case
@pytest.mark.parametrize("time", [1, 3])
@pytest.mark.parametrize(("batch", "fast"), [(1, False), (2, True)], ids=["each-entry", "shared-weights"])
def test_gradients(case: Case, time: int, batch: int, fast: bool):
    parts = case.draw(time, batch)
    sizes = [len(part) for part in parts]
    tensors = [x.requires_grad_() for part in parts for x in part]

    def run(*flat: Tensor) -> tuple[Tensor, ...]:
        a, b = sizes[0], sizes[0] + sizes[1]
        return case.run(flat[:a], flat[a:b], flat[b:])

    assert torch.autograd.gradcheck(run, tensors, fast_mode=fast)


# -- the equations, for one row and one head -----------------------------------------------------------------------


def sigmoid(x: Array | float) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)))


def softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum()


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


def recurrent_delta(x: list[Array], w: list[Array], s: list[Array], correct: bool = True) -> tuple[Array, ...]:
    (q, k, v, b), (R_q, R_k, R_v, r_b), (W, o), outputs = x, w, s, []
    for t in range(len(q)):
        h = np.tanh(o)
        W = delta(W, softmax(k[t] + R_k @ h), v[t] + R_v @ h, sigmoid(b[t] + r_b @ h), correct)
        o = W @ softmax(q[t] + R_q @ h)
        outputs.append(o)
    return np.array(outputs), W, o


def srwm(
    x: list[Array], w: list[Array], s: list[Array], after: bool = False, written: str = "yqkb"
) -> tuple[Array, ...]:
    W, y = [M.copy() for M in w], []
    for u in x[0]:
        W_y, W_q, W_k, w_b = (M.copy() for M in W)
        q, k, beta = softmax(u @ W_q), softmax(u @ W_k), sigmoid(u @ w_b)
        for index, old in enumerate((W_y, W_q, W_k, w_b)):
            if "yqkb"[index] not in written:
                continue
            for i in range(old.shape[0]):
                for j in range(old.shape[1]):
                    difference = sum((q[m] - k[m]) * old[m, j] for m in range(len(q)))
                    W[index][i, j] = old[i, j] + beta[index] * k[i] * difference
        y.append(u @ (W[0] if after else W_y))
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


def diagonal_scan(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (a, b), h, outputs = x, s[0].copy(), []
    for t in range(len(a)):
        for index in np.ndindex(*h.shape):
            h[index] = a[t][index] * h[index] + b[t][index]
        outputs.append(h.copy())
    return np.array(outputs), h


def selective_scan(x: list[Array], w: list[Array], s: list[Array]) -> tuple[Array, ...]:
    (u, dt, B, C), A, h, outputs = x, w[0], s[0].copy(), []
    for t in range(len(u)):
        for i, n in np.ndindex(*h.shape):
            h[i, n] = np.exp(dt[t, i] * A[i, n]) * h[i, n] + dt[t, i] * u[t, i] * B[t, n]
        outputs.append([sum(h[i, n] * C[t, n] for n in range(h.shape[1])) for i in range(h.shape[0])])
    return np.array(outputs), h


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


BY_HAND = {
    "linear_attention": linear_attention,
    "retention": retention,
    "delta_rule": delta_rule,
    "delta_rule-signed": delta_rule,
    "recurrent_delta": recurrent_delta,
    "srwm": srwm,
    "recurrent_delta-additive": lambda x, w, s: recurrent_delta(x, w, s, correct=False),
    "srwm-after": lambda x, w, s: srwm(x, w, s, after=True),
    "srwm-fixed": lambda x, w, s: srwm(x, w, s, written="yk"),
    "elman": elman,
    "elman-relu": lambda x, w, s: elman(x, w, s, relu=True),
    "gru": gru,
    "lstm": lstm,
    "elementwise_lstm": elementwise_lstm,
    "diagonal_scan": diagonal_scan,
    "diagonal_scan-complex": diagonal_scan,
    "selective_scan": selective_scan,
    "affine": affine,
    "affine-relu": lambda x, w, s: affine(x, w, s, relu=True),
    "layer_norm": layer_norm,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("time", [1, 5])
def test_equations(name: str, time: int):
    case, batch, groups = CASES[name], 4, 2
    x, w, s = case.draw(time, batch, groups)
    got = case.run(x, w, s)
    for row in range(batch):
        for head in range(HEADS):
            group = row * groups // batch
            wanted = BY_HAND[name](
                [part[row, head].numpy() for part in x],
                [part[group, head].numpy() for part in w],
                [part[row, head].numpy() for part in s],
            )
            assert len(wanted) == len(got)
            for ours, theirs in zip(got, wanted, strict=True):
                close(ours[row, head], theirs)


# -- against torch's own networks and layers -----------------------------------------------------------------------


def torch_network(network: type[nn.RNNBase], **options: Any) -> tuple[nn.RNNBase, Tensor, Tensor]:
    """A network of torch's in float64, an input for it, and the input's share a = W x + b of its gates."""
    torch.manual_seed(0)
    made = network(3, 4, batch_first=True, **options).double()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    return made, x, (x @ made.weight_ih_l0.T + made.bias_ih_l0)[:, None]


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


# -- states and groups ---------------------------------------------------------------------------------------------


@every_backend
def test_state_is_handed_over(case: Case, backend: str):
    time, cut = (13, 5) if backend == "gpu" else (150, 71)
    x, w, s = case.draw(time)
    whole = case.run(x, w, s, backend)
    first = case.run([part[:, :, :cut] for part in x], w, s, backend)
    second = case.run([part[:, :, cut:] for part in x], w, first[1:], backend)
    close(torch.cat([first[0], second[0]], dim=2), whole[0])
    for pieces, at_once in zip(second[1:], whole[1:], strict=True):
        close(pieces, at_once)


@with_backends(*EVERY, among=[name for name, case in CASES.items() if case.state])
def test_state_left_out_is_zero(case: Case, backend: str):
    x, w, s = case.draw(4)
    zero = [torch.zeros_like(part) for part in s]
    for left_out, given in zip(case.run(x, w, [], backend), case.run(x, w, zero, backend), strict=True):
        close(left_out, given, 0.0)


@with_backends("reference", "chunked", "cpu", among=[name for name, case in CASES.items() if case.weights])
def test_groups_are_separate_calls(case: Case, backend: str):
    x, w, s = case.draw(4, batch=6, groups=3)
    together = case.run(x, w, s, backend)
    for group in range(3):
        rows = slice(2 * group, 2 * group + 2)
        alone = case.run([p[rows] for p in x], [p[group : group + 1] for p in w], [p[rows] for p in s], backend)
        for all_groups, one in zip(together, alone, strict=True):
            close(all_groups[rows], one)


def test_a_decay_per_head_serves_every_row():
    x, (decay,), s = CASES["retention"].draw(4)
    for per_head, per_group in zip(
        ops.retention(*x, decay[0], *s, backend="reference"),
        ops.retention(*x, decay, *s, backend="reference"),
        strict=True,
    ):
        close(per_head, per_group, 0.0)


# -- invariants ----------------------------------------------------------------------------------------------------


@with_backends(*EVERY, among=["delta_rule"])
def test_no_beta_no_write(case: Case, backend: str):
    (q, k, v, beta), w, (W,) = case.draw(7)
    o, final = case.run([q, k, v, torch.zeros_like(beta)], w, [W], backend)
    close(final, W, 0.0)
    close(o, q @ W.mT)


@with_backends(*EVERY, among=["delta_rule-signed"])
def test_beta_of_one_and_a_unit_key_write_the_value(case: Case, backend: str):
    (_, k, v, beta), w, s = case.draw(7)
    o, final = case.run([k, k, v, torch.ones_like(beta)], w, s, backend)
    close(o, v)
    close((final @ k[:, :, -1, :, None])[..., 0], v[:, :, -1])


@with_backends(*EVERY, among=["srwm"])
@pytest.mark.parametrize("index", range(4))
def test_srwm_moves_its_rows_by_affine_combinations(case: Case, backend: str, index: int):
    """W_t = A_t W_0 with A_t 1 = 1, for each of the four matrices.

    W_y feeds nothing back. So the identity in its place, written with W_i's own beta, becomes A_t.
    """
    (x,), W, _ = case.draw(6, H=1)
    _, *final = case.run([x], W, [], backend)
    w_b = W[3].clone()
    w_b[..., 0] = W[3][..., index]
    identity = torch.eye(x.shape[-1], dtype=x.dtype).expand_as(W[0])
    _, A, *_ = case.run([x], [identity, W[1], W[2], w_b], [], backend)
    close(A @ W[index], final[index])
    close(A.sum(-1), torch.ones_like(A[..., 0]))
    assert (A - identity).abs().max() > 0.1


@with_backends(*EVERY, among=["srwm"])
def test_srwm_keeps_columns_that_are_equal_in_every_row(case: Case, backend: str):
    (x,), W, _ = case.draw(6, H=1)
    for M in W:
        M[..., 1] = M[:, :, :1, 1]
    _, *final = case.run([x], W, [], backend)
    for before, after in zip(W, final, strict=True):
        close(after[..., 1], before[..., 1].expand_as(after[..., 1]))
        assert (after[..., 0] - before[..., 0]).abs().max() > 1e-3
