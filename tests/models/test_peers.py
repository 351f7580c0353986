"""Mamba's mixer against that of the transformers package, with the same weights; forms of attention against the plain
references of flash-linear-attention, which work in float32 on [batch, time, heads, dim]."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay import ops
from assay.models.mamba import SelectiveSsm
from assay.models.path_attention import path_scores
from assay.models.stick_breaking import stick_breaking
from assay.rng import Rng

from ..ops.test_peers import FLA, alike, naive


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


# -- forms of attention --------------------------------------------------------------------------------------------

by_fla = pytest.mark.skipif(FLA is None, reason="flash-linear-attention is not installed")


def heads(*names: str, time: int = 96) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 3, time, 8, generator=rng).requires_grad_() for _ in names)


def turned(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


@by_fla
def test_forgetting_attention_is_that_of_fla():
    q, k, v = heads("q", "k", "v")
    log_f = F.logsigmoid(torch.randn(2, 3, 96, generator=torch.Generator().manual_seed(1))).requires_grad_()
    theirs = naive("forgetting_attn").naive_forgetting_attn(*turned(q, k, v, log_f)).transpose(1, 2)
    for backend in ("reference", "cpu"):
        alike((ops.biased_attention(q, k, v, -log_f.cumsum(-1), backend=backend),), (theirs,), (q, k, v, log_f))


@by_fla
def test_stick_breaking_is_that_of_fla():
    q, k, v = heads("q", "k", "v")
    theirs, _ = naive("stickbreaking_attn").naive_stickbreaking_attn(*turned(q, k, v))
    alike((stick_breaking(ops.causal_scores(q, k)) @ v,), (theirs.transpose(1, 2),), (q, k, v))


@by_fla
@pytest.mark.parametrize("time", [1, 96])
def test_path_attention_is_that_of_fla(time: int):
    pytest.importorskip("einops")
    q, k, v, w = heads("q", "k", "v", "w", time=time)
    raw = torch.randn(2, 3, time, generator=torch.Generator().manual_seed(1)).requires_grad_()
    unit, beta = F.normalize(w, dim=-1), 2 * raw.sigmoid()
    no_gate = torch.zeros(2, time, 3)
    theirs = naive("path_attn").naive_path_attn(*turned(q, k, v, unit, beta), no_gate, 8**-0.5).transpose(1, 2)
    scores, _ = path_scores(q, k, unit, beta)
    alike((scores.softmax(-1) @ v,), (theirs,), (q, k, v, w, raw))
