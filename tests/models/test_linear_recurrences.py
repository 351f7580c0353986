"""Layers with a matrix as their state against their papers' equations, written out with loops over time and heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from assay.errors import BadInput
from assay.models import named_model
from assay.models.gated_delta import ChannelDelta, GatedDelta
from assay.models.gated_linear import GatedLinearAttention, Hgrn2
from assay.models.mamba2 import Mamba2
from assay.models.mixer import HeadedMixer
from assay.models.mlstm import Mlstm
from assay.models.rwkv7 import Rwkv7
from assay.rng import Rng

from .test_equations import Array, Layer, array, heads_of, layer_input, sigmoid, unit

HEADS, WIDTH, TIME = 2, 8, 11


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def through(linear: Layer, x: Array) -> Array:
    """A linear map, or a product of two."""
    if hasattr(linear, "down"):
        return through(linear.up, through(linear.down, x))
    y = x @ array(linear.weight).T
    return y if linear.bias is None else y + array(linear.bias)


def convolved(layer: Layer, z: Array) -> Array:
    """silu(w_1 z_{t-3} + ... + w_4 z_t + b) per channel, if the layer has a convolution."""
    if not layer.window:
        return z
    w, n = array(layer.conv_weight), layer.window
    bias = 0 if layer.conv_bias is None else array(layer.conv_bias)
    padded = np.concatenate([np.zeros((n - 1, z.shape[1])), z])
    return np.array([silu(sum(w[:, i] * padded[t + i] for i in range(n)) + bias) for t in range(len(z))])


def projected(layer: Layer, x: Array) -> tuple[Array, Array, Array]:
    """q [time, width]; k and v [time, writes, width]."""
    z = np.concatenate([through(part, x) for part in (layer.query, layer.key, layer.value)], axis=1)
    parts = convolved(layer, z).reshape(len(x), 1 + 2 * layer.steps, -1)
    return parts[:, 0], parts[:, 1 : 1 + layer.steps], parts[:, 1 + layer.steps :]


def finished(layer: Layer, x: Array, o: Array) -> Array:
    """Each head divided by its root mean square, the gate, and the last map."""
    if layer.output != "plain":
        o = o / np.sqrt((o**2).mean(-1, keepdims=True) + 1e-5) * array(layer.head_norm)
    y = o.reshape(len(x), -1)
    if layer.output == "gated":
        gate = through(layer.gate, x)
        y = y * (silu(gate) if layer.activation == "silu" else sigmoid(gate))
    return y @ array(layer.out.weight).T


def of_length_one(layer: Layer, z: Array) -> Array:
    return unit(z) if layer.unit else z


def decay_of(layer: Layer, z: Array, head: int) -> Array:
    """exp(-exp(A) softplus(z + b)) of a head's part of z."""
    bias = array(layer.decay.dt_bias)
    return np.exp(-np.exp(array(layer.decay.A_log)[head]) * softplus(heads_of(z + bias, layer.heads, head)))


def gated_delta(layer: Layer, x: Array) -> Array:
    """S = alpha S, then S = S + beta k (v - S^T k)^T for every write; o = S^T q."""
    (q, k, v), d = projected(layer, x), layer.dim
    beta = layer.beta_range * sigmoid(through(layer.beta, x))
    alpha = through(layer.alpha, x) if layer.decays else x
    o = np.zeros((len(x), layer.heads, d))
    for head in range(layer.heads):
        S = np.zeros((d, d))
        for t in range(len(x)):
            S = decay_of(layer, alpha, head)[t] * S if layer.decays else S
            for n in range(layer.steps):
                key = of_length_one(layer, heads_of(k[t, n], layer.heads, head))
                error = heads_of(v[t, n], layer.heads, head) - S.T @ key
                S = S + beta[t, n * layer.heads + head] * np.outer(key, error)
            o[t, head] = S.T @ of_length_one(layer, heads_of(q[t], layer.heads, head))
    return finished(layer, x, o)


def channel_delta(layer: Layer, x: Array) -> Array:
    """S = (I - k (e * k)^T) Diag(alpha) S + k (g * v)^T, o = S^T q; e = g = beta, or two vectors."""
    (q, k, v), d, H = projected(layer, x), layer.dim, layer.heads
    erase = layer.beta_range * sigmoid(through(layer.erase, x))
    write = erase if layer.write is None else sigmoid(through(layer.write, x))
    alpha, o = through(layer.alpha, x), np.zeros((len(x), H, d))
    for head in range(H):
        S = np.zeros((d, d))
        for t in range(len(x)):
            e, g = heads_of(erase[t], H, head), heads_of(write[t], H, head)
            key = of_length_one(layer, heads_of(k[t, 0], H, head))
            S = (np.eye(d) - np.outer(key, e * key)) @ np.diag(decay_of(layer, alpha[t], head)) @ S
            S = S + np.outer(key, g * heads_of(v[t, 0], H, head))
            o[t, head] = S.T @ of_length_one(layer, heads_of(q[t], H, head))
    return finished(layer, x, o)


def gated_linear_attention(layer: Layer, x: Array) -> Array:
    """S = Diag(alpha) S + k v^T, alpha = sigmoid(.)^(1/16), o = S^T q."""
    (q, k, v), d, H = projected(layer, x), layer.dim, layer.heads
    alpha, o = sigmoid(through(layer.alpha, x)) ** (1 / 16), np.zeros((len(x), H, d))
    for head in range(H):
        S = np.zeros((d, d))
        for t in range(len(x)):
            key = of_length_one(layer, heads_of(k[t, 0], H, head))
            S = np.diag(heads_of(alpha[t], H, head)) @ S + np.outer(key, heads_of(v[t, 0], H, head))
            o[t, head] = S.T @ of_length_one(layer, heads_of(q[t], H, head))
    return finished(layer, x, o)


def hgrn_2(layer: Layer, x: Array) -> Array:
    """S = Diag(f) S + (1 - f) v^T, f = l + (1 - l) sigmoid(.), o = S^T silu(q)."""
    (q, z, v), d, H = projected(layer, x), layer.dim, layer.heads
    f, o = layer.lowest + (1 - layer.lowest) * sigmoid(z[:, 0]), np.zeros((len(x), H, d))
    for head in range(H):
        S = np.zeros((d, d))
        for t in range(len(x)):
            gate = heads_of(f[t], H, head)
            S = np.diag(gate) @ S + np.outer(1 - gate, heads_of(v[t, 0], H, head))
            o[t, head] = S.T @ silu(heads_of(q[t], H, head))
    return finished(layer, x, o)


def mamba_2(layer: Layer, x: Array) -> Array:
    """S = exp(-dt exp(A)) S + B (dt x)^T, y = S^T C + D x; rms-norm(y silu(z)) over all heads."""
    z, N, H = convolved(layer, through(layer.project, x)), layer.states, layer.heads
    u, B, C = z[:, : layer.inner], z[:, layer.inner : layer.inner + N], z[:, layer.inner + N :]
    dt, o = softplus(through(layer.dt, x)), np.zeros((len(x), H, layer.inner // H))
    for head in range(H):
        S, A = np.zeros((N, layer.inner // H)), np.exp(array(layer.A_log)[head])
        for t in range(len(x)):
            v = heads_of(u[t], H, head)
            key, query = of_length_one(layer, B[t]), of_length_one(layer, C[t])
            S = math.exp(-dt[t, head] * A) * S + dt[t, head] * np.outer(key, v)
            o[t, head] = S.T @ query + array(layer.D)[head] * v
    if layer.output != "gated":
        return finished(layer, x, o)
    y = o.reshape(len(x), -1) * silu(through(layer.gate, x))
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * array(layer.head_norm)
    return y @ array(layer.out.weight).T


def mlstm(layer: Layer, x: Array) -> Array:
    """C = f C + i k v^T, n = f n + i k, o = C^T q / max(|n^T q|, 1), without a running maximum."""
    (q, k, v), d, H = projected(layer, x), WIDTH // HEADS, layer.heads
    i, f = np.exp(through(layer.input, x)), sigmoid(through(layer.forget, x))
    o = np.zeros((len(x), H, d))
    for head in range(H):
        S, n = np.zeros((d, d)), np.zeros(d)
        for t in range(len(x)):
            key = of_length_one(layer, heads_of(k[t, 0], H, head)) / math.sqrt(d)
            query = of_length_one(layer, heads_of(q[t], H, head))
            S = f[t, head] * S + i[t, head] * np.outer(key, heads_of(v[t, 0], H, head))
            n = f[t, head] * n + i[t, head] * key
            o[t, head] = S.T @ query / max(abs(n @ query), 1)
    return finished(layer, x, o)


def rwkv_7(layer: Layer, x: Array) -> Array:
    """S = (Diag(w) - (a * kk) kk^T) S + k v^T; the published code has S transposed."""
    H, d, before = layer.heads, layer.dim, np.concatenate([np.zeros((1, x.shape[1])), x[:-1]])
    mixed = [x] * 6 if not layer.shift else [x + (before - x) * mu for mu in array(layer.mixture)]
    x_r, x_w, x_k, x_v, x_a = mixed[:5]
    r, k, v, a = through(layer.receptance, x_r), through(layer.key, x_k), through(layer.value, x_v), layer.rate
    w = np.exp(-math.exp(-0.5) * sigmoid(through(layer.decay.up, np.tanh(through(layer.decay.down, x_w)))))
    a = sigmoid(through(a, x_a))
    removed, kept = k * array(layer.removed), k * (1 + (a - 1) * array(layer.kept))
    o, bonus = np.zeros((len(x), H, d)), np.zeros((len(x), H, d))
    for head in range(H):
        S = np.zeros((d, d))
        for t in range(len(x)):
            r_t, w_t, v_t, a_t, k_t = (heads_of(z[t], H, head) for z in (r, w, v, a, kept))
            kk = unit(heads_of(removed[t], H, head))
            S = (np.diag(w_t) - np.outer(a_t * kk, kk)) @ S + np.outer(k_t, v_t)
            o[t, head] = S.T @ r_t
            if layer.output == "gated":
                bonus[t, head] = sum(r_t * k_t * array(layer.bonus)[head]) * v_t
    if layer.output != "plain":
        centred = o - o.mean(-1, keepdims=True)
        o = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + d * 1e-5)
        o = o * array(layer.head_norm.weight).reshape(H, d) + array(layer.head_norm.bias).reshape(H, d)
    y = (o + bonus).reshape(len(x), -1)
    if layer.output == "gated":
        y = y * through(layer.gate.up, sigmoid(through(layer.gate.down, mixed[5])))
    return y @ array(layer.out.weight).T


@pytest.mark.parametrize("name", ["gated-delta-net", "gated-delta-product", "kda", "gated-delta-net-2", "m2rnn"])
def test_decays_start_as_published(name: str):
    """exp(-exp(A) softplus(b)): neither all forgotten nor all kept."""
    model: Any = named_model(name, width=512, heads=256).build(3, 0, 2, Rng.seeded(0))
    decay = model.blocks[1].mixer.decay
    A, dt = array(decay.A_log.exp()), softplus(array(decay.dt_bias))
    assert 1 <= A.min() < 1.2
    assert 15.8 < A.max() <= 16
    assert 1e-3 * 0.999 < dt.min() < 1.1e-3
    assert 0.9e-1 < dt.max() < 1e-1 * 1.001


def test_other_decays_start_as_published():
    layers: list[Layer] = [description.build(512, Rng.seeded(0)) for description in STARTING]
    rwkv, mlstm, mamba_2, gla = layers
    w = np.exp(-math.exp(-0.5) * sigmoid(array(rwkv.decay.up.bias)))
    assert 0.68 < w.min() < 0.7
    assert 0.996 < w.max() < 0.998
    forget = array(mlstm.forget.bias)
    assert 3 <= forget.min() < 3.1
    assert 5.9 < forget.max() <= 6
    assert 0.08 < array(mlstm.input.bias).std() < 0.12
    dt = softplus(array(mamba_2.dt.bias))
    assert 1e-3 * 0.999 < dt.min() < 1.1e-3
    assert 0.9e-1 < dt.max() < 1e-1 * 1.001
    assert 1 <= array(mamba_2.A_log.exp()).min() < 1.2
    assert 0.95 < (sigmoid(array(gla.alpha.up.bias)) ** (1 / 16)).mean() < 0.96


STARTING = Rwkv7(heads=4), Mlstm(heads=256), Mamba2(heads=256), GatedLinearAttention(heads=4)
BARE: dict[str, Any] = {"convolution": 0, "output": "plain"}
Equations = Callable[[Layer, Array], Array]
LAYERS: list[tuple[HeadedMixer, Equations]] = [
    (GatedDelta(heads=HEADS), gated_delta),
    (GatedDelta(heads=HEADS, beta=2, output="norm", convolution=2), gated_delta),
    (GatedDelta(heads=HEADS, **BARE, unit=False), gated_delta),
    (GatedDelta(heads=HEADS, beta=2, steps=3), gated_delta),
    (GatedDelta(heads=HEADS, decays=False, output="norm"), gated_delta),
    (GatedDelta(heads=HEADS, beta=2, steps=2, decays=False), gated_delta),
    (ChannelDelta(heads=HEADS), channel_delta),
    (ChannelDelta(heads=HEADS, beta=2, **BARE), channel_delta),
    (ChannelDelta(heads=HEADS, gates=2), channel_delta),
    (ChannelDelta(heads=HEADS, gates=2, beta=2, **BARE), channel_delta),
    (GatedLinearAttention(heads=HEADS), gated_linear_attention),
    (GatedLinearAttention(heads=HEADS, convolution=4, unit=True, output="plain"), gated_linear_attention),
    (Hgrn2(heads=HEADS), hgrn_2),
    (Hgrn2(heads=HEADS, lowest=0.4, output="gated"), hgrn_2),
    (Mamba2(heads=HEADS, states=3), mamba_2),
    (Mamba2(heads=HEADS, states=5, expand=1, unit=True, **BARE), mamba_2),
    (Mamba2(heads=HEADS, states=3, output="norm"), mamba_2),
    (Mlstm(heads=HEADS), mlstm),
    (Mlstm(heads=HEADS, convolution=4, unit=True, output="plain"), mlstm),
    (Rwkv7(heads=HEADS), rwkv_7),
    (Rwkv7(heads=HEADS, output="norm"), rwkv_7),
    (Rwkv7(heads=HEADS, shift=False, output="plain"), rwkv_7),
]


def built(description: HeadedMixer) -> Layer:
    """A layer in float64 whose norms and constants are not all one."""
    layer = description.build(WIDTH, Rng.seeded(0)).double()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    return layer


@pytest.mark.parametrize(("description", "equations"), LAYERS, ids=lambda part: getattr(part, "__name__", str(part)))
def test_equations(description: HeadedMixer, equations: Equations):
    layer, x = built(description), layer_input(WIDTH)
    y, _ = layer(x)
    for row in range(len(x)):
        torch.testing.assert_close(y[row], torch.as_tensor(equations(layer, array(x[row]))), rtol=1e-10, atol=1e-10)


def test_large_gates_do_not_overflow():
    """exp(800) is infinite: the running maximum keeps the state finite."""
    layer, x = built(Mlstm(heads=HEADS, output="plain")), layer_input(WIDTH)
    expected, _ = layer(x)
    with torch.no_grad():
        layer.input.bias += 800
        far, (_, m) = layer(x)
    assert far.isfinite().all()
    assert m.min() > 700
    assert not torch.allclose(far, expected)


def test_the_running_maximum_has_no_gradient_to_miss():
    layer, x = built(Mlstm(heads=HEADS)), layer_input(WIDTH)[:1, :4].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x)[0], x)


def test_two_gates_that_are_one_are_kimi_delta_attention():
    one, two = (built(ChannelDelta(heads=HEADS, gates=gates, **BARE)) for gates in (1, 2))
    parameters = dict(one.named_parameters())
    with torch.no_grad():
        for name, parameter in two.named_parameters():
            if name in ("erase.weight", "write.weight"):
                parameter.copy_(parameters["erase.weight"].repeat_interleave(WIDTH // HEADS, dim=0))
            else:
                parameter.copy_(parameters[name])
    x = layer_input(WIDTH)
    torch.testing.assert_close(two(x)[0], one(x)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("gated-delta-net", {"steps": 2}, "gated-delta-net has no option 'steps'; did you mean 'state'?"),
        ("rwkv-7", {"convolution": 4}, "rwkv-7 has no option 'convolution'"),
        ("hgrn-2", {"unit": True}, "hgrn-2 has no option 'unit'; choose from: convention, ff, heads"),
        ("kda", {"output": "gate"}, "output = 'gate' is not valid: input should be 'plain', 'norm' or 'gated'"),
        ("kda", {"convolution": -1}, "convolution = -1 is not valid"),
        ("gla", {"unit": 1}, "unit = 1 is not valid"),
        ("gated-delta-product", {"steps": 0}, "steps = 0 is not valid"),
        ("mlstm", {"width": 18}, "a width of 18 is not divisible by 4 heads; 16 or 20 would be"),
        ("hybrid", {"mixers": ({"kind": "hgrn-2", "convolution": 4},)}, "convolution = 4 is not valid"),
    ],
)
def test_what_a_model_does_not_have_is_refused_in_one_line(name: str, options: dict[str, Any], expected: str):
    with pytest.raises(BadInput) as caught:
        named_model(name, **options)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
