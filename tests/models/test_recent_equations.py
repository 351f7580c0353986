"""Mixers of 2022 to 2026 against their published equations, written out again with loops over time and heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import assay.models.pd_ssm as pd_ssm_module
from assay.models.attention import Attention
from assay.models.forgetting_attention import ForgettingAttention
from assay.models.m2rnn import M2rnn
from assay.models.mamba3 import Mamba3
from assay.models.mixer import Mixer
from assay.models.path_attention import PathAttention
from assay.models.pd_ssm import PdSsm, one_hot_columns
from assay.models.slstm import Slstm
from assay.models.stick_breaking import StickBreaking
from assay.rng import Rng

from .test_equations import Array, Layer, array, close, heads_of, sigmoid, softmax
from .test_linear_recurrences import silu, softplus, through

WIDTH, HEADS, TIME = 8, 2, 11
SIZE = WIDTH // HEADS


def built(mixer: Mixer, width: int = WIDTH) -> Layer:
    """A layer in float64; parameters that start at one number are disturbed."""
    layer = mixer.build(width, Rng.seeded(0)).double()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith(("norm", "_bias", "D", "state_weight", "scale")):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    return layer


def rows(width: int = WIDTH) -> Tensor:
    return torch.randn(2, TIME, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def same_outputs(mixer: Mixer, by_hand: Any) -> None:
    layer, x = built(mixer), rows()
    y, _ = layer(x)
    for row in range(2):
        close(y[row], by_hand(layer, array(x[row])))


def convolved(weight: Tensor, z: Array) -> Array:
    """silu(w_1 z_{t-n+1} + ... + w_n z_t) per channel."""
    w, y = array(weight), np.zeros_like(z)
    for t in range(len(z)):
        for k in range(w.shape[1]):
            if t - w.shape[1] + 1 + k >= 0:
                y[t] += w[:, k] * z[t - w.shape[1] + 1 + k]
    return np.asarray(silu(y))


# -- recurrent networks --------------------------------------------------------------------------------------------


def slstm(layer: Layer, x: Array) -> Array:
    """With the stabiliser m: i = exp(i~ - m'), f = exp(log sigmoid(f~) + m - m'), m' = max(i~, log sigmoid(f~) + m)."""
    before_gates = convolved(layer.conv_weight, x) if layer.window else x
    gates, values, y = through(layer.gate_inputs, before_gates), through(layer.value_inputs, x), np.zeros_like(x)
    for head in range(HEADS):
        R, h, c, n, m = array(layer.R)[0, head], *np.zeros((4, SIZE))
        for t in range(TIME):
            raw = np.concatenate([heads_of(gates[t], HEADS, head), heads_of(values[t], HEADS, head)]) + R @ h
            i, f, z, o = np.split(raw, 4)
            log_f = np.log(sigmoid(f))
            largest = i if t == 0 else np.maximum(i, log_f + m)
            write, keep = np.exp(i - largest), np.exp(log_f + m - largest)
            c, n, m = keep * c + write * np.tanh(z), keep * n + write, largest
            h = sigmoid(o) * c / n
            heads_of(y, HEADS, head)[t] = h
    if not hasattr(layer, "head_norm"):
        return y
    for head in range(HEADS):
        h = heads_of(y, HEADS, head)
        scaled = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
        h[:] = scaled * heads_of(array(layer.head_norm), HEADS, head)
    return y


@pytest.mark.parametrize("options", [{}, {"convolution": 0, "output": "plain"}])
def test_slstm(options: dict[str, Any]):
    same_outputs(Slstm(heads=HEADS, **options), slstm)


def test_slstm_starts_with_gates_that_keep():
    layer = Slstm(heads=4).build(256, Rng.seeded(0))
    forget = layer.gate_inputs.bias.detach().view(4, 2, 64)[:, 1]
    assert 3 <= float(forget.min()) < 3.1
    assert 5.9 < float(forget.max()) <= 6


def m2rnn(layer: Layer, x: Array) -> Array:
    z = through(layer.project, x)
    q, k, v = np.split(convolved(layer.conv_weight, z) if layer.window else z, 3, axis=-1)
    decay = layer.decay
    f = np.exp(-np.exp(array(decay.A_log)) * softplus(through(layer.forget, x) + array(decay.dt_bias)))
    y = np.zeros_like(x)
    for head in range(HEADS):
        W, D, H = array(layer.state_weight)[0, head], array(layer.D)[head], np.zeros((SIZE, SIZE))
        for t in range(TIME):
            q_t, k_t, v_t = (heads_of(part[t], HEADS, head) for part in (q, k, v))
            H = f[t, head] * H + (1 - f[t, head]) * np.tanh(H @ W + np.outer(k_t, v_t))
            o = q_t @ H + D * v_t
            if layer.output == "gated":
                o = o / np.sqrt((o**2).mean() + 1e-5) * array(layer.head_norm)
                o = o * silu(heads_of(through(layer.gate, x[t]), HEADS, head))
            heads_of(y, HEADS, head)[t] = o
    return through(layer.out, y)


@pytest.mark.parametrize("options", [{}, {"convolution": 0, "output": "plain"}])
def test_m2rnn(options: dict[str, Any]):
    same_outputs(M2rnn(heads=HEADS, **options), m2rnn)


def test_m2rnn_starts_with_the_identity():
    layer = M2rnn(heads=HEADS).build(WIDTH, Rng.seeded(0))
    assert torch.equal(layer.state_weight, torch.eye(SIZE).expand(1, HEADS, -1, -1))


# -- state-space models --------------------------------------------------------------------------------------------


def network(part: Layer, x: Array) -> Array:
    hidden = torch.nn.functional.gelu(torch.tensor(through(part[0], x)))
    return through(part[2], array(hidden))


def pd_ssm(layer: Layer, x: Array) -> Array:
    """h' = P D h + B u: entry j of D h moves to the row of the largest entry of column j of the mixture."""
    N = layer.dim
    B, matrices = array(layer.B)[:N] + 1j * array(layer.B)[N:], array(layer.matrices)
    h, y = np.eye(N)[0].astype(complex), np.zeros_like(x)
    for t in range(TIME):
        share = softmax(through(layer.select, x[t]))
        mixture = sum(share[n] * matrices[n] for n in range(len(share)))
        D = sigmoid(network(layer.magnitude, x[t])) * np.exp(2j * np.pi * sigmoid(network(layer.phase, x[t])))
        after = B @ x[t]
        for j in range(N):
            after[int(np.argmax(mixture[:, j]))] += D[j] * h[j]
        h = after
        y[t] = through(layer.out, np.concatenate([h.real, h.imag])) + array(layer.skip) * x[t]
    return y


def test_pd_ssm():
    same_outputs(PdSsm(states=5, dictionary=3), pd_ssm)


def test_pd_ssm_holds_few_matrices_without_gradients(monkeypatch: pytest.MonkeyPatch):
    layer, x, sizes = built(PdSsm(states=5, dictionary=3)), rows(), list[int]()
    expected, final = layer(x)
    monkeypatch.setattr(pd_ssm_module, "MOST_NUMBERS", 4 * 2 * 25 + 1)
    one_hot = pd_ssm_module.one_hot_columns
    monkeypatch.setattr(pd_ssm_module, "one_hot_columns", lambda M: (sizes.append(M.shape[1]), one_hot(M))[1])
    with torch.no_grad():
        y, state = layer(x)
    assert sizes == [4, 4, 3], "tokens at once"
    close(y, expected)
    close(state, final)


def test_one_hot_columns_have_the_gradient_of_softmax():
    M = torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.0, -1.0]], dtype=torch.float64, requires_grad=True)
    P = one_hot_columns(M)
    close(P, np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]), 1e-12)
    weight = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (got,) = torch.autograd.grad((P * weight).sum(), M)
    (wanted,) = torch.autograd.grad((M.softmax(0) * weight).sum(), M)
    close(got, wanted, 1e-12)


def rms_normed(x: Array, weight: Tensor) -> Array:
    return x / np.sqrt((x**2).mean() + 1e-5) * array(weight)


def mamba_3(layer: Layer, x: Array) -> Array:
    """Step by step, with the angles, the last key and the last value as states."""
    N, inner, pairs = layer.states, layer.inner, layer.pairs
    sizes = np.cumsum([inner, inner, N, N, HEADS, HEADS, HEADS])
    z, v, k, q, dt, A, mix, angles = np.split(through(layer.project, x), sizes, axis=-1)
    y = np.zeros((TIME, inner))
    for head in range(HEADS):
        V = inner // HEADS
        S, last_k, last_v, turn = np.zeros((N, V)), np.zeros(N), np.zeros(V), np.zeros(pairs)
        for t in range(TIME):
            step = softplus(dt[t, head] + array(layer.dt_bias)[head])
            w = np.exp(-step * max(softplus(A[t, head]), 1e-4))
            share = sigmoid(mix[t, head])
            turn = turn + step * np.pi * np.tanh(angles[t])
            q_t = rms_normed(q[t], layer.q_norm) + array(layer.q_bias)[head, 0]
            k_t = rms_normed(k[t], layer.k_norm) + array(layer.k_bias)[head, 0]
            for vector in (q_t, k_t):
                for i in range(pairs):
                    turned = (vector[2 * i] + 1j * vector[2 * i + 1]) * np.exp(1j * turn[i])
                    vector[2 * i], vector[2 * i + 1] = turned.real, turned.imag
            v_t = heads_of(v[t], HEADS, head)
            S = w * S + (1 - share) * step * w * np.outer(last_k, last_v) + share * step * np.outer(k_t, v_t)
            heads_of(y, HEADS, head)[t] = S.T @ q_t + array(layer.D)[head] * v_t
            last_k, last_v = k_t, v_t
    return through(layer.out, y * silu(z))


@pytest.mark.parametrize("options", [{"states": 6}, {"states": 5, "rotated": 1.0, "expand": 1}, {"rotated": 0.0}])
def test_mamba_3(options: dict[str, Any]):
    same_outputs(Mamba3(heads=HEADS, **options), mamba_3)


def test_mamba_3_does_not_lose_its_angles_on_long_inputs():
    """They add up to thousands of turns; in float32 the whole input gives what single steps give."""
    layer = Mamba3(heads=HEADS).build(WIDTH, Rng.seeded(0))
    with torch.no_grad():
        layer.project.weight.mul_(3)
        layer.dt_bias.fill_(2.0)
        x = torch.randn(1, 1024, WIDTH, generator=torch.Generator().manual_seed(1)) + 1
        y, (*_, angles) = layer(x)
        expected, _ = layer.double()(x.double())
    assert (y - expected).abs().max() < 1e-6 * expected.abs().max()
    assert angles.abs().max() <= np.pi * (1 + 1e-6)


# -- attention -----------------------------------------------------------------------------------------------------


def scores_of(layer: Layer, x: Array, head: int) -> tuple[Array, Array, Array, Array]:
    """q k^T / sqrt d, and q, k, v of a head."""
    q, k, v = (heads_of(part, HEADS, head) for part in np.split(through(layer.project, x), 3, axis=-1))
    return q @ k.T / SIZE**0.5, q, k, v


def attended(layer: Layer, x: Array, weigh: Any) -> Array:
    """`weigh` gives the weights of query i on the keys up to its own."""
    y = np.zeros_like(x)
    for head in range(HEADS):
        z, q, k, v = scores_of(layer, x, head)
        for i in range(TIME):
            weights = weigh(z[i, : i + 1], i, head, q, k)
            heads_of(y, HEADS, head)[i] = sum(weights[j] * v[j] for j in range(i + 1))
    return through(layer.out, y)


def test_alibi():
    def weigh(z: Array, i: int, head: int, *_: Array) -> Array:
        slope = 2 ** (-8 * (head + 1) / HEADS)
        return softmax(np.array([z[j] - slope * (i - j) for j in range(i + 1)]))

    same_outputs(Attention(heads=HEADS, alibi=True), lambda layer, x: attended(layer, x, weigh))


def test_alibi_under_other_weightings():
    """A weighting that is not softmax sees the distances themselves."""
    layer, x = built(Attention(heads=HEADS, alibi=True)), rows()
    expected, state = layer(x)
    layer.weighting = lambda scores: scores.softmax(-1)
    close(layer(x)[0], expected)
    layer.weighting = torch.sigmoid
    whole, _ = layer(x)
    _, state = layer(x[:, :5])
    close(layer(x[:, 5:], state)[0], whole[:, 5:])


def test_forgetting_attention():
    def by_hand(layer: Layer, x: Array) -> Array:
        f = sigmoid(through(layer.forget, x))

        def weigh(z: Array, i: int, head: int, *_: Array) -> Array:
            return softmax(np.array([z[j] + np.log(f[j + 1 : i + 1, head]).sum() for j in range(i + 1)]))

        return attended(layer, x, weigh)

    same_outputs(ForgettingAttention(heads=HEADS), by_hand)


def test_stick_breaking():
    def weigh(z: Array, i: int, *_: Any) -> Array:
        share = sigmoid(z)
        return np.array([share[j] * np.prod([1 - share[n] for n in range(j + 1, i)]) for j in range(i)] + [0.0])

    same_outputs(StickBreaking(heads=HEADS), lambda layer, x: attended(layer, x, weigh))


@pytest.mark.parametrize("convolution", [0, 3])
def test_path_attention(convolution: int):
    def by_hand(layer: Layer, x: Array) -> Array:
        w = through(layer.normal, x)
        w = convolved(layer.conv_weight, w) if convolution else w
        beta = 2 * sigmoid(through(layer.beta, x))

        def weigh(z: Array, i: int, head: int, q: Array, k: Array) -> Array:
            scores = []
            for j in range(i + 1):
                key = k[j]
                for s in range(j + 1, i + 1):
                    w_s = heads_of(w[s], HEADS, head)
                    w_s = w_s / np.sqrt(sum(w_s * w_s))
                    key = key - beta[s, head] * w_s * (w_s @ key)
                scores.append(q[i] @ key / SIZE**0.5)
            return softmax(np.array(scores))

        return attended(layer, x, weigh)

    same_outputs(PathAttention(heads=HEADS, convolution=convolution), by_hand)
