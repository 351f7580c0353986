"""Mixers and models as users write them, right and wrong ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Running(nn.Module):
    """A mixer: a running mean of projected tokens."""

    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.project, self.scale = nn.Linear(width, width), scale

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return self.scale * self.project(x).cumsum(1) / steps[:, None]


class InTuple(Running):
    """A layer in the style of flash-linear-attention: another name for the width, and a tuple."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None, None


class Whole(nn.Module):
    """A whole model."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(vocab, 8), nn.Linear(8, answers)
        self.rnn = nn.GRU(8, 8, batch_first=True)

    def forward(self, tokens: Tensor) -> Any:
        return self.out(self.rnn(self.embed(tokens))[0])


class WithLogits(Whole):
    """A whole model whose output has the Hugging Face style."""

    def forward(self, tokens: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(tokens))


class ShortTable(Whole):
    """A table of positions for 40 tokens."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__(vocab, features, answers)
        self.positions = nn.Embedding(40, 8)

    def forward(self, tokens: Tensor) -> Any:
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.out(self.rnn(x)[0])


class FewAnswers(Whole):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        if answers > 2:
            raise ValueError(f"{answers} answers are too many")
        super().__init__(vocab, features, answers)


class Unbuildable(nn.Module):
    def __init__(self, width: int) -> None:
        raise RuntimeError("no such luck")


class Needy(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()


class Halved(Running):
    def forward(self, x: Tensor) -> Tensor:
        return x[..., ::2]


class Moving(Running):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to("meta")


class BadGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError("forward only")


class ForwardOnly(Running):
    def forward(self, x: Tensor) -> Tensor:
        return BadGradient.apply(super().forward(x))


class Nothing(nn.Module):
    """A whole model without parameters."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.one_hot(tokens % self.answers, self.answers).float()


class SeesFuture(Running):
    def forward(self, x: Tensor) -> Tensor:
        return self.project(x).mean(1, keepdim=True).expand_as(x)


class Neither(nn.Module):
    def __init__(self) -> None:
        super().__init__()


def not_a_module(width: int) -> int:
    return width


class Remembering(Running):
    """It goes on where its last call ended."""

    last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        y = y if self.last is None else y + self.last
        self.last = y.detach()[:1, -1:]
        return y


class Once(Running):
    """It cannot be called a second time."""

    was_called = False

    def forward(self, x: Tensor) -> Tensor:
        if self.was_called:
            raise RuntimeError("out of tape")
        self.was_called = True
        return super().forward(x)


class Double(Running):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).double()


class NotANumber(Running):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * float("nan")


class Loud(Running):
    def forward(self, x: Tensor) -> Tensor:
        print("in forward")  # noqa: T201
        return super().forward(x)


class Exits(Running):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(0)


class Lazy(nn.Module):
    """Its sizes are found in the first call, after the optimizer has its parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.LazyLinear(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x)


class NotANumberLater(Running):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (float("nan") if x.shape[1] > 50 else 1.0)
