"""Mamba's mixer against that of the transformers package, with the same weights."""

from __future__ import annotations

import pytest
import torch

from assay.models.mamba import SelectiveSsm
from assay.rng import Rng


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
