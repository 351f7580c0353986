"""Layers against those of the transformers package, with the same weights."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.gated_delta import ChannelDelta, GatedDelta
from assay.models.mamba import SelectiveSsm
from assay.models.mamba2 import Mamba2
from assay.models.mlstm import Mlstm
from assay.rng import Rng

HEADS, DIM = 2, 8
WIDTH = HEADS * DIM


@pytest.mark.parametrize("time", [1, 3, 9])
def test_selective_ssm_is_the_mamba_mixer(time: int, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    ours = SelectiveSsm(states=5).build(32, Rng.seeded(0)).double()
    config = MambaConfig(hidden_size=32, state_size=5, num_hidden_layers=1)
    theirs = MambaMixer(config, layer_idx=0).double()
    names = {
        "in_proj.weight": ours.project.weight,
        "conv1d.weight": ours.conv_weight,
        "conv1d.bias": ours.conv_bias,
        "x_proj.weight": ours.select.weight,
        "dt_proj.weight": ours.dt.weight,
        "dt_proj.bias": ours.dt.bias,
        "A_log": ours.A_log,
        "D": ours.D,
        "out_proj.weight": ours.out.weight,
    }
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in (ours.A_log, ours.D):  # which start alike in every channel
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    theirs.load_state_dict(names)
    assert len(names) == len(list(ours.parameters()))

    # The peer turns some intermediate results into float32, which would hide errors below 1e-7.
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    x = torch.randn(2, time, 32, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, time, 32, generator=rng, dtype=torch.float64)
    y, wanted = ours(x)[0], theirs(x)
    torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)
    parameters = dict(theirs.named_parameters())
    for mine, other in zip(
        torch.autograd.grad((y * weight).sum(), [x, *names.values()]),
        torch.autograd.grad((wanted * weight).sum(), [x, *(parameters[name] for name in names)]),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def layer_of(description: Any) -> Any:
    """A layer in float32 whose norms and constants are not all one."""
    layer = description.build(WIDTH, Rng.seeded(0))
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=rng))
    return layer


def alike(ours: Any, theirs: Any, weights: dict[str, Tensor]) -> None:
    """With our weights, outputs and the gradients of the input agree to float32, which the peers work in."""
    theirs.load_state_dict({name: weight.detach() for name, weight in weights.items()})
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(2, 11, WIDTH, generator=rng, requires_grad=True)
    results = [layer(x)[0] if isinstance(layer(x), tuple) else layer(x) for layer in (ours, theirs)]
    weight = torch.randn(results[0].shape, generator=rng)
    gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in results]
    for mine, other in (results, gradients):
        torch.testing.assert_close(mine, other, rtol=2e-4, atol=2e-4)


def without_kernels(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a module of transformers call its functions in PyTorch, where it prefers the kernels of other packages."""
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function) and hasattr(function, "__wrapped__") and function.__module__ == module.__name__:
            monkeypatch.setattr(module, name, inspect.unwrap(function))


def test_mamba_2():
    pytest.importorskip("transformers")
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    ours = layer_of(Mamba2(heads=HEADS, states=5))
    sizes: dict[str, Any] = {
        "hidden_size": WIDTH,
        "num_heads": HEADS,
        "head_dim": 2 * DIM,
        "state_size": 5,
        "n_groups": 1,
    }
    weights = {
        "in_proj.weight": torch.cat([ours.gate.weight, ours.project.weight, ours.dt.weight]),
        "conv1d.weight": ours.conv_weight[:, None],
        "conv1d.bias": ours.conv_bias,
        "dt_bias": ours.dt.bias,
        "A_log": ours.A_log,
        "D": ours.D,
        "norm.weight": ours.head_norm,
        "out_proj.weight": ours.out.weight,
    }
    alike(ours, Mamba2Mixer(Mamba2Config(**sizes, num_hidden_layers=1, chunk_size=4), layer_idx=0).eval(), weights)


def test_gated_delta_net(monkeypatch: pytest.MonkeyPatch):
    """Theirs divides the queries by sqrt(dim), so that the norm of the output has another epsilon."""
    pytest.importorskip("transformers")
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next import modeling_qwen3_next

    without_kernels(modeling_qwen3_next, monkeypatch)
    ours = layer_of(GatedDelta(heads=HEADS))
    sizes: dict[str, Any] = {"linear_num_key_heads": HEADS, "linear_num_value_heads": HEADS}
    sizes |= {"linear_key_head_dim": DIM, "linear_value_head_dim": DIM}
    config = Qwen3NextConfig(hidden_size=WIDTH, num_hidden_layers=1, rms_norm_eps=1e-5 / DIM, **sizes)
    parts = (ours.query, ours.key, ours.value, ours.gate)
    by_head = [part.weight.view(HEADS, DIM, WIDTH) for part in parts]
    rates = [part.weight.view(HEADS, 1, WIDTH) for part in (ours.beta, ours.alpha)]
    weights = {
        "in_proj_qkvz.weight": torch.cat(by_head, 1).flatten(0, 1),
        "in_proj_ba.weight": torch.cat(rates, 1).flatten(0, 1),
        "conv1d.weight": ours.conv_weight[:, None],
        "dt_bias": ours.decay.dt_bias,
        "A_log": ours.decay.A_log,
        "norm.weight": ours.head_norm,
        "out_proj.weight": ours.out.weight,
    }
    alike(ours, modeling_qwen3_next.Qwen3NextGatedDeltaNet(config, layer_idx=0), weights)


def test_kimi_delta_attention(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers.models.kimi_linear")
    from transformers import KimiLinearConfig
    from transformers.models.kimi_linear import modeling_kimi_linear

    without_kernels(modeling_kimi_linear, monkeypatch)
    ours = layer_of(ChannelDelta(heads=HEADS))
    sizes: dict[str, Any] = {
        "linear_num_heads": HEADS,
        "linear_head_dim": DIM,
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
    }
    weights = {
        "q_proj.weight": ours.query.weight,
        "k_proj.weight": ours.key.weight,
        "v_proj.weight": ours.value.weight,
        "conv1d.weight": ours.conv_weight[:, None],
        "forget_gate.f_a_proj.weight": ours.alpha.down.weight,
        "forget_gate.f_b_proj.weight": ours.alpha.up.weight,
        "forget_gate.dt_bias": ours.decay.dt_bias,
        "forget_gate.A_log": ours.decay.A_log[None, None, :, None],
        "b_proj.weight": ours.erase.weight,
        "g_a_proj.weight": ours.gate.down.weight,
        "g_b_proj.weight": ours.gate.up.weight,
        "o_norm.weight": ours.head_norm,
        "o_proj.weight": ours.out.weight,
    }
    config = KimiLinearConfig(**sizes, rms_norm_eps=1e-5 / DIM, layer_types=["linear_attention"])
    alike(ours, modeling_kimi_linear.KimiLinearDeltaAttention(config, layer_idx=0), weights)


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_mlstm_cell(shift: float):
    """The recurrence alone, without a last map; input gates around 1 and around e^30."""
    pytest.importorskip("transformers.models.xlstm")
    from transformers.models.xlstm.modeling_xlstm import mlstm_recurrent_sequence_native

    layer = layer_of(Mlstm(heads=HEADS, output="plain"))
    x = torch.randn(2, 11, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layer.input.bias += shift
        layer.out.weight.copy_(torch.eye(WIDTH))
        q, k, v, _ = layer.split(x, (), "reference")
        gates = layer.input(x).transpose(1, 2), layer.forget(x).transpose(1, 2)
        theirs: Any = mlstm_recurrent_sequence_native(q, k[:, :, :, 0], v[:, :, :, 0], *gates, eps=0.0)
        torch.testing.assert_close(layer(x)[0], theirs.transpose(1, 2).flatten(2), rtol=1e-4, atol=1e-5)
