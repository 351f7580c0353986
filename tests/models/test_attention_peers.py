"""Forms of attention against the plain references of flash-linear-attention.

Those work in float32 on [batch, time, heads, dim].
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay import ops
from assay.models.path_attention import path_scores
from assay.models.stick_breaking import stick_breaking

from ..ops.test_peers import FLA, alike, naive

pytestmark = pytest.mark.skipif(FLA is None, reason="flash-linear-attention is not installed")


def heads(*names: str, time: int = 96) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 3, time, 8, generator=rng).requires_grad_() for _ in names)


def turned(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


def test_forgetting_attention_is_that_of_fla():
    q, k, v = heads("q", "k", "v")
    log_f = F.logsigmoid(torch.randn(2, 3, 96, generator=torch.Generator().manual_seed(1))).requires_grad_()
    theirs = naive("forgetting_attn").naive_forgetting_attn(*turned(q, k, v, log_f)).transpose(1, 2)
    for backend in ("reference", "cpu"):
        alike((ops.biased_attention(q, k, v, -log_f.cumsum(-1), backend=backend),), (theirs,), (q, k, v, log_f))


def test_stick_breaking_is_that_of_fla():
    q, k, v = heads("q", "k", "v")
    theirs, _ = naive("stickbreaking_attn").naive_stickbreaking_attn(*turned(q, k, v))
    alike((stick_breaking(ops.causal_scores(q, k)) @ v,), (theirs.transpose(1, 2),), (q, k, v))


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
