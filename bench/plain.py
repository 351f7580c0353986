"""The models that plain PyTorch has fast kernels for, as a user would write them: fused attention, cuDNN, one run.

Same parts and sizes as the named model: embedding, one mixer per layer, feed-forward part, norms, read-out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.models.attention import Attention
from assay.models.mixer import Mixer
from assay.models.rnn import Elman, Gru, Lstm
from assay.models.skeleton import Stack
from assay.spec import RunSpec

NETWORKS = {Lstm: nn.LSTM, Gru: nn.GRU, Elman: nn.RNN}


class PlainAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        y: Tensor = self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return y


class PlainNetwork(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x)[0]
        return y


class PlainBlock(nn.Module):
    def __init__(self, mixer: nn.Module, stack: Stack) -> None:
        super().__init__()
        width, hidden = stack.width, stack.ff * stack.width
        self.mixer, self.residual = mixer, stack.residual
        self.norm = nn.Identity() if stack.norm == "none" else nn.LayerNorm(width)
        parts = [nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)]
        self.ff = nn.Sequential(*parts) if hidden else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.mixer(self.norm(x))
        x = x + y if self.residual else y
        return x if self.ff is None else x + self.ff(x)


def has_plain_form(spec: RunSpec) -> bool:
    return isinstance(spec.model, Stack) and all(type(m) in (Attention, *NETWORKS) for m in spec.model.mixers)


def plain_step(spec: RunSpec, device: torch.device) -> Callable[[], None]:
    """A training step of one run: forward, backward, fused AdamW."""
    stack, (vocab, _, answers) = spec.model, spec.task.shape
    assert isinstance(stack, Stack)

    def mixer(kind: Mixer) -> nn.Module:
        if isinstance(kind, Attention):
            return PlainAttention(stack.width, kind.heads)
        return PlainNetwork(NETWORKS[type(kind)](stack.width, stack.width, batch_first=True))

    blocks = [PlainBlock(mixer(kind), stack) for kind in stack.mixers]
    model = nn.Sequential(nn.Embedding(vocab, stack.width), *blocks, nn.Linear(stack.width, answers)).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    size = spec.training.batch, spec.width
    inputs = torch.randint(vocab, size, device=device)
    targets = torch.randint(answers, size, device=device)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        optimiser.step()

    return step
