"""Fast weights: the delta rule erases, and the linear Transformer is a recurrent network."""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from assay.models import zoo
from assay.models.causal import Causal, State
from assay.models.delta_rule import DeltaRule
from assay.models.features import FeatureMap, features
from assay.models.linear_attention import LinearAttentionLayer
from assay.models.mixer import join_heads, split_heads
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.dyck import ResetDyck1
from assay.theory.claim import CheckResult, Claim, Recurrent
from assay.theory.subspaces import FAR, Relus, Space, blank, embed, first_feature, program, say


class ResetDyck(Recurrent):
    """The delta rule counts with a small beta and forgets with beta = 1: two layers of width 8 solve Reset Dyck-1 for
    all lengths up to N, where (beta + u) N^2 + 8 u N = 1 and u = 2^-24.

    A bracket writes the value +-1/beta at the rate beta. This adds +-1 and removes the share beta of the count: beta
    N^2 / 4 in total on the way to depth N/2 and back; the rounding of the sums does the same with u in place of beta.
    The count can be told from its neighbours while this total is at most 1/4. A second layer remembers mistakes.
    """

    source: ClassVar[str] = "own; after Irie et al. 2023"
    length: ClassVar[int] = 200
    largest: ClassVar[int] = 2894
    beta: ClassVar[float] = 2.0**-24

    @property
    def exact_to(self) -> float:
        u = torch.finfo(torch.float32).eps / 2
        a, b = self.beta + u, 8 * u
        return math.floor((math.sqrt(b**2 + 4 * a) - b) / (2 * a))

    def task(self, length: int) -> ResetDyck1:
        return ResetDyck1()

    def draw(self, length: int, rows: Rng) -> Tensor:
        """After a reset, every second input goes as deep as it can and ends at depth 0 or below."""
        shallow, position = super().draw(length, rows), torch.arange(length)
        reset = rows.child("reset").integers(1, length)
        top = reset + (length - reset) // 2
        deep = torch.where(position < top, 1, 2).where(position > reset, torch.where(position == reset, 3, shallow))
        return torch.where(rows.child("deep").integers(1, 2) == 1, deep, shallow)

    def build(self, length: int) -> Model:
        stream = Space(one=1, opens=1, closes=1, resets=1, depth=1, open=1, wrong=1, dead=1)
        one, opens, closes, resets, depth, opened, wrong, dead = map(stream.read, stream.sizes)
        stack = Stack(name="reset-dyck", mixers=(DeltaRule(heads=1),) * 2, width=stream.width, ff=4, norm="none")
        model, only = blank(stack, self.task(length)), first_feature(stream)
        embed(model, stream.vector(one=1.0) + torch.cat([opens, closes, resets]))

        small = torch.tensor(self.beta).logit()  # the beta of a bracket; a reset has 1
        value = (opens - closes) / small.sigmoid()
        program(model, 0, only, [(only, value, small * (opens + closes) + FAR * resets)], depth.T)
        flags = Relus(model, 0)
        flags.between(depth, 0.25, opened.T, high=0.75)
        flags.between(-depth, 0.25, wrong.T, high=0.75)
        # A mistake sets the flag `dead`, a reset clears it, and other tokens leave it as it is.
        program(model, 1, only, [(only, wrong, FAR * (2 * wrong + 2 * resets - one))], dead.T)
        say(model, torch.cat([one - opened, opened, 2 * dead]))
        return model


class RoundedResetDyck(ResetDyck):
    """With beta = 2^-30 the delta rule in two layers of width 8 solves Reset Dyck-1 for all lengths up to 2^22 in
    float32: the share of the count that a write removes is too small for float32, and rounding restores the count.

    While the count w is within 32, +-1/beta - w is rounded to +-1/beta, which adds +-1. Beyond that a write is off by
    at most beta |w| + 3 u, less than half the distance between neighbouring numbers, and the sum is an integer again.
    This holds for one write after another, as the kernels compute it; in float64, or in chunks, the decay is back.
    """

    beta: ClassVar[float] = 2.0**-30
    largest: ClassVar[int] = 30_000

    @property
    def exact_to(self) -> float:
        return 2**22


# -- the linear Transformer as a recurrent network -----------------------------------------------------------------


class ParallelForm(Causal):
    """A layer of linear attention in its parallel form: y_t = sum_{j <= t} (phi(q_t) . phi(k_j)) v_j."""

    def __init__(self, layer: LinearAttentionLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        layer = self.layer
        q, k, v = (split_heads(part, layer.heads) for part in layer.project(x).chunk(3, -1))
        q, k = features(layer.features, q), features(layer.features, k)
        return layer.out(join_heads((q @ k.mT).tril() @ v)), state


class Shape(NamedTuple):
    """The size of a linear Transformer, its feature map, and a factor of its initial weights."""

    width: int
    heads: int
    layers: int
    features: FeatureMap = "elu"
    factor: float = 1.0


class LinearTransformerIsRnn(Claim):
    """The linear Transformer is a recurrent network: causal attention without softmax equals the recurrence of the fast
    weight W' = W + v phi(k)^T, to machine precision in float64.

    The equation holds for all weights. It is checked for several initialisations of each of several sizes, feature maps
    and scales of the weights.
    """

    source: ClassVar[str] = "Irie et al. 2023; Katharopoulos et al. 2020"
    length: ClassVar[int] = 64
    largest: ClassVar[int] = 4096
    dtype: ClassVar[torch.dtype] = torch.float64
    tolerance: ClassVar[float] = 1e-12
    inputs: ClassVar[int] = 2  # for each initialisation
    seeds: ClassVar[int] = 3
    shapes: ClassVar[tuple[Shape, ...]] = (
        Shape(64, 4, 2),
        Shape(4, 4, 1),
        Shape(16, 1, 3),
        Shape(24, 3, 1, "identity"),
        Shape(16, 2, 2, "softmax"),
        Shape(16, 2, 2, factor=8.0),
        Shape(16, 2, 2, factor=0.125),
    )

    def model(self, shape: Shape, rng: Rng) -> Model:
        stack = zoo.linear_transformer(shape.width, shape.heads, shape.layers, features=shape.features)
        model = stack.build(vocab=65, features=0, answers=64, rng=rng).to(self.dtype)
        for block in model.blocks:
            layer: Any = block.mixer
            layer.project.weight.data *= shape.factor
        return model.requires_grad_(requires_grad=False)

    def parallel(self, shape: Shape, rng: Rng) -> Model:
        model = self.model(shape, rng)
        for block in model.blocks:
            block.mixer = ParallelForm(block.mixer)  # type: ignore[arg-type]
        return model

    def check(self, length: int | None = None, rng: Rng | None = None) -> CheckResult:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        cases = [(shape, rng.child(i, seed)) for i, shape in enumerate(self.shapes) for seed in range(self.seeds)]
        apart = [self.difference(shape, length, draws) for shape, draws in cases]
        return CheckResult(
            claim=self.name,
            length=length,
            holds=max(apart) <= self.tolerance,
            checked=f"{len(cases)} initialisations",
            inputs=self.inputs * len(cases),
            width=max(shape.width for shape in self.shapes),
            bits=torch.finfo(self.dtype).bits,
            seconds=time.perf_counter() - begin,
            note=f"the forms differ by {max(apart):.1e} of the largest output",
        )

    def difference(self, shape: Shape, length: int, rng: Rng) -> float:
        """The largest difference between attention and the recurrence, step by step and in chunks."""
        tokens = rng.rows(self.inputs).child("tokens").integers(length, 64) + 1
        parallel, recurrent = self.parallel(shape, rng), self.model(shape, rng)
        attention = torch.cat([parallel(row[None])[0] for row in tokens])  # a row at a time: the matrices are large
        forms = Causal.forward(recurrent, tokens)[0], recurrent(tokens)[0]
        return max(relative(form, attention) for form in forms)


def relative(x: Tensor, y: Tensor) -> float:
    """The largest difference of two tensors' entries, as a share of the largest entry."""
    return float((x - y).abs().max() / y.abs().max())
