"""Whole models against their equations, written out again with loops over time and heads, and against torch's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models import named_model
from assay.models.delta_rule import DeltaRule
from assay.models.diagonal import DiagonalSsm
from assay.models.features import features
from assay.models.mamba import SelectiveSsm
from assay.models.recurrent_delta import RecurrentDelta
from assay.models.retention import Retention
from assay.rng import Rng

from .cases import tokens

Array = Any  # of numpy, whose functions have results of type Any
Layer = Any  # a torch module: the types of its parts are not known to mypy
Mix = Callable[[Layer, Array], Array]  # from the layer of a mixer and its inputs [time, width]


def built(name: str, **options: Any) -> Layer:
    """A model in float64, with norms that are not the identity."""
    model = named_model(name, **options).build(3, 0, 3, Rng.seeded(0)).double()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    return model


def close(got: Tensor | Array, expected: Tensor | Array, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(expected), rtol=tolerance, atol=tolerance)


def array(x: Tensor) -> Array:
    return x.detach().numpy()


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum()


def elu(x: Array) -> Array:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def elu_sum(x: Array) -> Array:
    return elu(x) / elu(x).sum()


def unit(x: Array) -> Array:
    return x / math.sqrt(sum(x * x))


def layer_norm(norm: Layer, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * array(norm.weight) + array(norm.bias)


def feed_forward(block: Layer, x: Array) -> Array:
    first, second = block.ff
    hidden = np.maximum(layer_norm(block.ff_norm, x) @ array(first.weight).T + array(first.bias), 0)
    return x + hidden @ array(second.weight).T + array(second.bias)


def by_hand(model: Layer, row: Tensor, mix: Mix, carry: bool = False) -> Array:
    """x = x + W_o Mix(LN(x)), or LN(x) + W_o Mix(x) where the norm is carried; then x = x + FF(LN(x)); no last norm."""
    x = array(model.embed.weight)[row.numpy()]
    for block in model.blocks:
        normed = layer_norm(block.mixer_norm, x)
        mixed = mix(block.mixer, x if carry else normed) @ array(block.mixer.out.weight).T
        x = feed_forward(block, (normed if carry else x) + mixed)
    return x @ array(model.read_out.weight).T + array(model.read_out.bias)


def same_logits(model: Layer, mix: Mix, carry: bool = False) -> None:
    x = tokens(2, 11)
    logits, _ = model(x)
    for row in range(2):
        close(logits[row], by_hand(model, x[row], mix, carry))


def heads_of(x: Array, heads: int, head: int) -> Array:
    d = x.shape[-1] // heads
    return x[..., head * d : (head + 1) * d]


# -- the models of Irie et al. 2023, as published ------------------------------------------------------------------


def linear_mix(layer: Layer, x: Array, phi: Callable[[Array], Array] = elu) -> Array:
    """W_t = W_{t-1} + v phi(k)^T, o = W_t phi(q); no normaliser. Gated, the write is beta v phi(k)^T."""
    beta = np.ones((len(x), layer.heads)) if layer.beta is None else sigmoid(x @ array(layer.beta.weight).T)
    q, k, v = np.split(x @ array(layer.project.weight).T, 3, axis=-1)
    y = np.zeros_like(x)
    for head in range(layer.heads):
        W = 0
        for t in range(len(x)):
            q_t, k_t, v_t = (heads_of(part[t], layer.heads, head) for part in (q, k, v))
            W = W + beta[t, head] * np.outer(v_t, phi(k_t))
            heads_of(y, layer.heads, head)[t] = W @ phi(q_t)
    return y


def delta_mix(layer: Layer, x: Array, phi: Callable[[Array], Array] = elu_sum, before: bool = False) -> Array:
    """W_t = W_{t-1} + beta (v - W_{t-1} phi(k)) phi(k)^T once for each of a token's writes, then o = W_t phi(q)."""
    H, D, n = layer.heads, x.shape[-1], layer.steps
    q, k, v, b = (x @ array(part.weight).T for part in (layer.query, layer.key, layer.value, layer.beta))
    y = np.zeros_like(x)
    for head in range(H):
        W = np.zeros((D // H, D // H))
        for t in range(len(x)):
            held = W
            for step in range(n):
                k_t = phi(heads_of(k[t, step * D : (step + 1) * D], H, head))
                v_t = heads_of(v[t, step * D : (step + 1) * D], H, head)
                beta = layer.beta_range * sigmoid(b[t, step * H + head])
                W = W + beta * np.outer(v_t - W @ k_t, k_t)
            heads_of(y, H, head)[t] = (held if before else W) @ phi(heads_of(q[t], H, head))
    return y


def recurrent_delta_mix(layer: Layer, x: Array, additive: bool = False) -> Array:
    """The delta rule with softmax features, and feedback from h = tanh(o_{t-1}) of the head into q, k, v and beta."""
    q, k, v = np.split(x @ array(layer.project.weight).T, 3, axis=-1)
    b = x @ array(layer.beta.weight).T
    y = np.zeros_like(x)
    for head in range(layer.heads):
        R_q, R_k, R_v, r_b = (array(R)[0, head] for R in (layer.R_q, layer.R_k, layer.R_v, layer.r_b))
        d = len(r_b)
        W, o = np.zeros((d, d)), np.zeros(d)
        for t in range(len(x)):
            h = np.tanh(o)
            q_t, k_t, v_t = (heads_of(part[t], layer.heads, head) for part in (q, k, v))
            key = softmax(k_t + R_k @ h)
            held = 0 if additive else W @ key
            W = W + sigmoid(b[t, head] + r_b @ h) * np.outer(v_t + R_v @ h - held, key)
            o = W @ softmax(q_t + R_q @ h)
            heads_of(y, layer.heads, head)[t] = o
    return y


def srwm_mix(layer: Layer, x: Array, after: bool = False, written: tuple[int, ...] = (1, 1, 1, 1)) -> Array:
    """Row vectors: y = x W_y, read before the write; each W_i += beta_i k^T (q W_i - k W_i)."""
    y = np.zeros_like(x)
    for head in range(layer.heads):
        W = [array(M)[0, head] for M in (layer.W_y, layer.W_q, layer.W_k, layer.w_b)]
        for t in range(len(x)):
            u = heads_of(x[t], layer.heads, head)
            q, k, beta = softmax(u @ W[1]), softmax(u @ W[2]), sigmoid(u @ W[3]) * written
            read = u @ W[0]
            W = [W_i + beta_i * np.outer(k, q @ W_i - k @ W_i) for W_i, beta_i in zip(W, beta, strict=True)]
            heads_of(y, layer.heads, head)[t] = u @ W[0] if after else read
    return y


SMALL = {"width": 8, "heads": 2, "layers": 2}
PUBLISHED: dict[str, tuple[Mix, bool]] = {
    "linear-transformer": (linear_mix, False),
    "delta-net": (delta_mix, False),
    "recurrent-delta": (recurrent_delta_mix, False),
    "srwm": (srwm_mix, True),
}
CONTROLLED: dict[str, Mix] = {
    "linear-transformer": lambda layer, x: linear_mix(layer, x, softmax),
    "delta-net": lambda layer, x: delta_mix(layer, x, softmax),
    "recurrent-delta": recurrent_delta_mix,
    "srwm": lambda layer, x: srwm_mix(layer, x, after=True),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_published(name: str):
    same_logits(built(name, **SMALL), *PUBLISHED[name])


@pytest.mark.parametrize("name", CONTROLLED)
def test_controlled(name: str):
    """One skeleton, one feature map, one reading order: only the update rule differs."""
    same_logits(built(name, **SMALL, convention="controlled"), CONTROLLED[name])


def test_signed_delta_rule_and_its_products():
    same_logits(built("delta-net-signed", **SMALL), lambda layer, x: delta_mix(layer, x, unit))
    same_logits(built("delta-product", **SMALL, steps=3), lambda layer, x: delta_mix(layer, x, unit))


ONE_THING_CHANGED: dict[str, tuple[dict[str, Any], Mix, bool]] = {
    "linear-transformer": ({"gated": True}, linear_mix, False),
    "delta-net": ({"reading": "before"}, lambda layer, x: delta_mix(layer, x, before=True), False),
    "recurrent-delta": ({"additive": True}, lambda layer, x: recurrent_delta_mix(layer, x, additive=True), False),
    "srwm": ({"fixed": "qb"}, lambda layer, x: srwm_mix(layer, x, written=(1, 0, 1, 0)), True),
}


@pytest.mark.parametrize("name", ONE_THING_CHANGED)
def test_ablations(name: str):
    options, mix, carries = ONE_THING_CHANGED[name]
    same_logits(built(name, **SMALL, **options), mix, carries)


def test_products_read_before_all_their_writes():
    mixer = {"kind": "delta-rule", "heads": 2, "features": "unit", "beta": 2, "steps": 3, "reading": "before"}
    same_logits(
        built("hybrid", width=8, mixers=(mixer, mixer)), lambda layer, x: delta_mix(layer, x, unit, before=True)
    )


def test_initial_values_of_the_self_referential_matrix():
    usual, other = (
        built("srwm", width=64, **options).blocks[0].mixer for options in ({}, {"q_scale": 1.0, "b_mean": 3.0})
    )
    torch.testing.assert_close(100 * usual.W_q, other.W_q)
    torch.testing.assert_close(usual.w_b + 4, other.w_b)
    assert torch.equal(usual.W_y, other.W_y)


def encoder_like(model: Layer, norm_first: bool) -> Layer:
    """Torch's encoder with the weights of a Transformer of ours."""
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=32, dropout=0.0, batch_first=True, norm_first=norm_first)
    norm = nn.LayerNorm(8) if isinstance(model.final_norm, nn.LayerNorm) else None
    theirs: Layer = nn.TransformerEncoder(layer, 2, norm=norm, enable_nested_tensor=False).double()
    with torch.no_grad():
        for block, other in zip(model.blocks, theirs.layers, strict=True):
            other.self_attn.in_proj_weight.copy_(block.mixer.project.weight)
            other.self_attn.in_proj_bias.copy_(0 if block.mixer.project.bias is None else block.mixer.project.bias)
            other.self_attn.out_proj.weight.copy_(block.mixer.out.weight)
            other.self_attn.out_proj.bias.copy_(0 if block.mixer.out.bias is None else block.mixer.out.bias)
            other.norm1.load_state_dict(block.mixer_norm.state_dict())
            other.norm2.load_state_dict(block.ff_norm.state_dict())
            other.linear1.load_state_dict(block.ff[0].state_dict())
            other.linear2.load_state_dict(block.ff[1].state_dict())
    if norm is not None:
        theirs.norm.load_state_dict(model.final_norm.state_dict())
    return theirs


@pytest.mark.parametrize(("convention", "norm_first"), [("paper", False), ("controlled", True)])
def test_transformer_is_torch_encoder(convention: str, norm_first: bool):
    """Published: post-norm, biases, a last norm. Controlled: pre-norm, neither."""
    model, x = built("transformer", **SMALL, convention=convention), tokens(2, 11)
    assert isinstance(model.final_norm, nn.LayerNorm) == (not norm_first)
    assert (model.blocks[0].mixer.project.bias is None) == norm_first
    mask = nn.Transformer.generate_square_subsequent_mask(11, dtype=torch.float64)
    hidden = encoder_like(model, norm_first)(model.embed(x), mask=mask)
    close(model(x)[0], hidden @ model.read_out.weight.T + model.read_out.bias)


@pytest.mark.parametrize(
    ("name", "network", "options"),
    [
        ("lstm", nn.LSTM, {}),
        ("gru", nn.GRU, {}),
        ("elman", nn.RNN, {}),
        ("elman", nn.RNN, {"activation": "relu"}),
    ],
)
def test_recurrent_networks_are_torch_ones(name: str, network: Callable[..., nn.Module], options: dict[str, str]):
    """Embedding, layers, read-out: nothing else."""
    model = built(name, width=8, layers=2, **options)
    nonlinearity = {"nonlinearity": "relu"} if options else {}
    theirs = network(8, 8, num_layers=2, batch_first=True, **nonlinearity).double()
    with torch.no_grad():
        for i, block in enumerate(model.blocks):
            getattr(theirs, f"weight_ih_l{i}").copy_(block.mixer.project.weight)
            getattr(theirs, f"bias_ih_l{i}").copy_(block.mixer.project.bias)
            getattr(theirs, f"weight_hh_l{i}").copy_(block.mixer.R[0, 0])
            getattr(theirs, f"bias_hh_l{i}").zero_()
            if name == "gru":
                getattr(theirs, f"bias_hh_l{i}")[16:].copy_(block.mixer.b_n[0, 0])
    x = tokens(2, 11)
    close(model(x)[0], theirs(model.embed(x))[0] @ model.read_out.weight.T + model.read_out.bias)


def test_elementwise_lstm():
    model = built("e-lstm", width=6)
    (block,), row = model.blocks, tokens(1, 11)
    W_z, W_f, W_o, b_z, b_f, b_o, w_z, w_f = (
        array(getattr(block.mixer, name)) for name in ("W_z", "W_f", "W_o", "b_z", "b_f", "b_o", "w_z", "w_f")
    )
    c, outputs = np.zeros(6), []
    for x in array(model.embed.weight)[row[0].numpy()]:
        z = np.tanh(W_z @ x + w_z[0, 0] * c + b_z)
        f = sigmoid(W_f @ x + w_f[0, 0] * c + b_f)
        c = f * c + (1 - f) * z
        outputs.append(c * sigmoid(W_o @ np.concatenate([x, c]) + b_o))
    close(model(row)[0][0], np.array(outputs) @ array(model.read_out.weight).T + array(model.read_out.bias))


# -- layers that are one another's special cases, or have a second form --------------------------------------------


def layer_input(width: int = 8) -> Tensor:
    return torch.randn(2, 11, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_delta_product_of_one_step_is_the_delta_rule():
    x = tokens(2, 11)
    close(built("delta-product", **SMALL, steps=1)(x)[0], built("delta-net-signed", **SMALL)(x)[0], 0.0)


def test_recurrent_delta_without_feedback_is_the_delta_rule_with_softmax():
    recurrent = RecurrentDelta(heads=2).build(8, Rng.seeded(0)).double()
    plain = DeltaRule(heads=2, features="softmax").build(8, Rng.seeded(1)).double()
    with torch.no_grad():
        for R in (recurrent.R_q, recurrent.R_k, recurrent.R_v, recurrent.r_b):
            R.zero_()
        for part, weight in zip((plain.query, plain.key, plain.value), recurrent.project.weight.chunk(3), strict=True):
            part.weight.copy_(weight)
        plain.beta.weight.copy_(recurrent.beta.weight)
        plain.out.weight.copy_(recurrent.out.weight)
        x = layer_input()
        (ours, (W, _)), (theirs, W_plain) = recurrent(x), plain(x)
    close(ours, theirs)
    close(W, W_plain)


def test_retention_is_a_sum_over_the_past():
    """o_i = sum_{j<=i} gamma^(i-j) (q_i . k_j) / sqrt d v_j with rotated q and k; heads normalised, then gated."""
    layer, x = Retention(heads=2).build(8, Rng.seeded(0)).double(), layer_input()
    q, k, v = (array(part) for part in (x @ layer.project.weight.T).chunk(3, -1))
    expected = np.zeros((2, 11, 8))
    for row in range(2):
        for head in range(2):
            gamma = 1 - 2.0 ** (-5 - head)

            def rotated(z: Array, row: int = row, head: int = head) -> Array:
                z = heads_of(z[row], 2, head)
                pairs = (z[:, :2] + 1j * z[:, 2:]) * np.exp(1j * np.arange(11)[:, None] * np.array([1, 0.01]))
                return np.concatenate([pairs.real, pairs.imag], axis=-1)

            q_h, k_h, v_h = rotated(q), rotated(k), heads_of(v[row], 2, head)
            for i in range(11):
                o = sum(gamma ** (i - j) * (q_h[i] @ k_h[j]) / 2 * v_h[j] for j in range(i + 1))
                heads_of(expected[row], 2, head)[i] = (o - o.mean()) / np.sqrt(o.var() + 1e-5)
    gate = array(F.silu(x @ layer.gate.weight.T))
    close(layer(x)[0], (gate * expected) @ array(layer.out.weight).T)


def test_diagonal_state_space_model_is_a_convolution():
    """K_l = 2 Re sum_n C_n (exp(dt L_n) - 1) / L_n exp(dt L_n)^l, y = K * u + D u."""
    layer, u = DiagonalSsm(states=3).build(8, Rng.seeded(0)).double(), layer_input()
    L = -np.exp(array(layer.log_decay)) + 1j * array(layer.frequency)
    dt, C = np.exp(array(layer.log_dt))[:, None], array(layer.C)[..., 0] + 1j * array(layer.C)[..., 1]
    y = np.zeros((2, 11, 8))
    for t in range(11):
        for j in range(t + 1):
            kernel = 2 * (C * (np.exp(dt * L) - 1) / L * np.exp(dt * L * (t - j))).sum(-1).real
            y[:, t] += kernel * array(u)[:, j]
    y += array(layer.D) * array(u)
    first, gate = (F.gelu(torch.as_tensor(y)) @ layer.out.weight.T + layer.out.bias).chunk(2, -1)
    close(layer(u)[0], first * gate.sigmoid())


@pytest.mark.parametrize("convolution", [1, 2, 20])
def test_a_selective_state_space_model_keeps_the_inputs_of_the_next_window(convolution: int):
    layer, u = SelectiveSsm(states=3, convolution=convolution).build(8, Rng.seeded(0)).double(), layer_input()
    whole, last = layer(u)
    first, state = layer(u[:, :4])
    second, final = layer(u[:, 4:], state)
    close(torch.cat([first, second], dim=1), array(whole))
    assert [x.shape for x in final] == [x.shape for x in layer.initial_state(2)]
    for got, wanted in zip(final, last, strict=True):
        close(got, array(wanted))


def test_feature_maps():
    z = torch.tensor([[-1.0, 0.0, 2.0]], dtype=torch.float64)
    positive = torch.tensor([[math.exp(-1), 1.0, 3.0]], dtype=torch.float64)
    close(features("elu", z), positive, 1e-14)
    close(features("elu-sum", z), positive / (math.exp(-1) + 4), 1e-14)
    powers = torch.tensor([[math.exp(-1), 1.0, math.exp(2)]], dtype=torch.float64)
    close(features("softmax", z), powers / powers.sum(), 1e-14)
    close(features("unit", z), z / 5**0.5, 1e-14)
    close(features("identity", z), z, 0.0)


# -- how the parameters start --------------------------------------------------------------------------------------


def initial_model(name: str, **options: Any) -> Layer:
    return named_model(name, **options).build(100, 0, 3, Rng.seeded(0))


def spread(parameter: Tensor, mean: float, std: float) -> None:
    """Mean and standard deviation are within five standard errors of the stated ones."""
    parameter, n = parameter.detach(), parameter.numel()
    assert abs(float(parameter.mean()) - mean) < 5 * std / n**0.5
    assert float(parameter.std()) == pytest.approx(std, rel=5 / (2 * n) ** 0.5)


def test_srwm_starts_as_published():
    layer = initial_model("srwm", width=256, heads=4).blocks[1].mixer
    d = 64
    spread(layer.W_y, 0, d**-0.5)
    spread(layer.W_k, 0, d**-0.5)
    spread(layer.W_q, 0, 0.01 * d**-0.5)
    spread(layer.w_b, -1, d**-0.5)


def test_feedback_starts_as_published():
    layer = initial_model("recurrent-delta", width=256, heads=4).blocks[1].mixer
    for R in (layer.R_q, layer.R_k, layer.R_v, layer.r_b):
        spread(R, 0, 64**-0.5)


def test_elementwise_lstm_starts_as_published():
    layer = initial_model("e-lstm", width=128).blocks[0].mixer
    for parameter in layer.parameters():
        spread(parameter, 0, 0.1)


def test_tables_start_as_standard_normal():
    model = initial_model("transformer", width=64, positions="learned", longest=100)
    spread(model.embed.weight, 0, 1)
    spread(model.positions.table, 0, 1)


def test_linear_maps_start_as_torch_ones():
    model = initial_model("transformer", width=64)
    block = model.blocks[0]
    for layer, inputs in ((block.ff[0], 64), (block.ff[1], 256), (block.mixer.project, 64)):
        spread(layer.weight, 0, inputs**-0.5 / 3**0.5)
        for parameter in layer.parameters():
            assert 0.9 * inputs**-0.5 < float(parameter.detach().abs().max()) <= inputs**-0.5


@pytest.mark.parametrize("name", ["lstm", "gru", "elman"])
def test_recurrent_weights_start_as_torch_ones(name: str):
    layer = initial_model(name, width=64).blocks[0].mixer
    for parameter in layer.parameters():
        assert 0.9 / 8 < float(parameter.detach().abs().max()) <= 1 / 8
    spread(layer.R, 0, 1 / 8 / 3**0.5)


def test_step_sizes_start_log_uniform():
    mamba = initial_model("mamba", width=256).blocks[0].mixer
    dss = initial_model("dss", width=512).blocks[0].mixer
    for dt in (F.softplus(mamba.dt.bias).detach(), dss.log_dt.exp().detach()):
        assert 1e-3 * 0.999 < float(dt.min()) < 1.1e-3
        assert 0.9e-1 < float(dt.max()) < 1e-1 * 1.001
        spread(dt.log(), math.log(1e-2), math.log(100) / 12**0.5)
    close(mamba.A_log.exp(), torch.arange(1.0, 17).expand(512, 16), 1e-6)
    close(dss.frequency, math.pi * torch.arange(16.0).expand(512, 16), 1e-6)
    close(-dss.log_decay.exp(), torch.full((512, 16), -0.5), 1e-6)
