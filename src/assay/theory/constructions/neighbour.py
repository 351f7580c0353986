"""Nearest neighbour by two layers of attention: as published, and with a width that does not depend on the margin."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from assay.errors import BadInput, suggestion
from assay.models.attention import Attention
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.neighbour import NearestNeighbour
from assay.theory.claim import NOTHING, Change, Construction, Examined
from assay.theory.codes import scattered_code, scattered_size, trace_code, trace_size
from assay.theory.subspaces import Relus, Space, attend, blank, place, say

APART = 4.0  # inner products of unit vectors differ by at most 2, so a logit lower by 4 gets no weight
NEARLY = 4.8  # inner products of position vectors must be at most gamma / 4.8 in the published construction
WIDEST = 0.3  # the largest margin of the task, at which nearly orthogonal vectors have 512 coordinates
Positions = Literal["narrowest", "nearly-orthogonal"]


class Neighbour(Construction):
    """Layer 1 copies what layer 2 needs, layer 2 copies the label, and the feed-forward part rounds it to a sign.

    N is the number of points, including the last one, which has no label. A point and its label share a position
    vector T(i) of unit length.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 7"
    length: ClassVar[int] = 24
    largest: ClassVar[int] = 64
    small: ClassVar[tuple[int, ...]] = ()  # there are infinitely many real inputs

    def __init__(self, margin: float = 1e-3, dimension: int = 8) -> None:
        self.margin, self.dimension = margin, dimension

    def task(self, length: int) -> NearestNeighbour:
        return NearestNeighbour(dimension=self.dimension, margin=self.margin)

    def tokens(self, length: int) -> int:
        return 2 * length - 1

    def draw(self, length: int, rows: Rng) -> Tensor:
        """In every second input all other points are as near as the margin allows, with the opposite label."""
        drawn = super().draw(length, rows)
        hard = rows.child("hard").integers(1, 2)[..., None] == 1
        return torch.where(hard, crowded(drawn, self.dimension, self.margin), drawn)

    # -- the construction ----------------------------------------------------------------------------------------------

    @abstractmethod
    def vectors(self, length: int) -> Float[Tensor, "length k"]: ...

    @abstractmethod
    def width_at(self, length: int, margin: float) -> int:
        """The width, without building the machine."""

    @abstractmethod
    def look(self, model: Model, stream: Space, length: int) -> None:
        """Write the two layers: the first copies into `brought`, the second copies the label into `said`."""

    def build(self, length: int) -> Model:
        d, T = self.dimension, self.vectors(length)
        width = self.width_at(length, self.margin)
        stream = Space(x=d, y=1, label=1, one=1, T=T.shape[1], said=1, brought=width - d - T.shape[1] - 4)
        stack = Stack(name="nearest-neighbour", mixers=(Attention(heads=1),) * 2, width=width, ff=1, norm="none",
                      positions="learned", longest=self.tokens(length))  # fmt: skip
        model, features = blank(stack, self.task(length)), Space(x=d, no=1, yes=1)
        no, yes = features.read("no"), features.read("yes")
        model.embed.weight.copy_(stream.write("x", "y", "label") @ torch.cat([features.read("x"), yes - no, yes + no]))
        place(model, stream.vector(T=T.repeat_interleave(2, 0)[:-1], one=1.0))
        self.look(model, stream, length)
        rounding = Relus(model, 1)
        rounding.between(stream.read("said"), -0.5, stream.write("said"), high=0.5)
        rounding.clear(stream.read("said"), stream.write("said"))
        say(model, torch.cat([-stream.read("said"), stream.read("said")]), torch.tensor([0.5, -0.5]))
        return model


class PublishedNeighbour(Neighbour):
    """A two-layer Transformer of width O(min(N, gamma^-2 log N)) finds the label of the nearest of N points, if it is
    nearer than the others by a margin of gamma.

    Layer 1 finds the nearest point and copies its T(i), with the logit <x_k, x_i> - (2 + gamma) <T(k), T(i)>; the
    second term keeps the query from finding itself. So |<T(i), T(j)>| must be below gamma: at most gamma / 4.8 (the
    paper asks for gamma / 100). Layer 2 copies the label with this T(i). If N vectors with such products need more than
    N dimensions, orthogonal vectors are used.

    The check runs both kinds of vectors: those that are narrowest at its margin, and, on a few inputs,
    nearly orthogonal ones of 512 coordinates at the largest margin of the task, 0.3.
    """

    length: ClassVar[int] = 16

    def __init__(self, margin: float = 1e-3, dimension: int = 8, positions: Positions = "narrowest") -> None:
        super().__init__(margin, dimension)
        if positions not in get_args(Positions):
            raise BadInput(f"unknown positions '{positions}'{suggestion(positions, get_args(Positions))}")
        self.positions = positions

    def examine_others(self, length: int, rng: Rng, inputs: int, change: Change | None) -> Examined:
        if self.positions == "nearly-orthogonal":
            return NOTHING
        other = type(self)(WIDEST, self.dimension, "nearly-orthogonal")
        return other.examine_random(other.machine(length, change), rng.child("nearly"), max(8, inputs // 500))

    def vectors(self, length: int) -> Float[Tensor, "length k"]:
        if self.size(length, self.margin) == length:
            return torch.eye(length)
        code = scattered_code(length, self.margin / NEARLY, Rng.seeded(0, "positions"))
        return code.signs / math.sqrt(code.k)

    def size(self, length: int, margin: float) -> int:
        """The dimension of the position vectors."""
        least = dimensions(length, margin / NEARLY)
        return least if self.positions == "narrowest" else 1 << scattered_size(length, margin / NEARLY)

    def largest_product(self, length: int) -> float:
        """The largest |<T(i), T(j)>|."""
        T = self.vectors(length)
        return float((T @ T.T - torch.eye(length)).abs().max())

    def width_at(self, length: int, margin: float) -> int:
        return self.dimension + 2 * self.size(length, margin) + 4

    def look(self, model: Model, stream: Space, length: int) -> None:
        apart, eps = 2 + self.margin, 1 / 8
        gap = self.margin - 2 * apart * self.largest_product(length)  # of the logits, before they are scaled
        eta_1 = math.log(length * (1 - eps) / eps) / gap
        query = eta_1 * torch.cat([stream.read("x"), -apart * stream.read("T"), -APART * stream.read("one")])
        key = stream.read("x", "T", "label")
        attend(model, 0, query, key, value=stream.read("T"), into=stream.write("brought"))
        eta_2 = math.log(6 * length) / (1 - 4 * eps)
        query = eta_2 * torch.cat([stream.read("brought"), APART * stream.read("one")])
        attend(model, 1, query, key=stream.read("T", "label"), value=stream.read("y"), into=stream.write("said"))


class RepairedNeighbour(Neighbour):
    """A two-layer Transformer of width O(log^2 N) finds the label of the nearest of N points, for any margin.

    Layer 1 copies x_i onto its label. In layer 2 the last point attends to labels only, so it cannot find itself, and
    T(i) does not affect the comparison. The margin enters the scale of the logits alone; float32 allows 1e-5.
    """

    source: ClassVar[str] = "own, after Bhattamishra et al. 2024, Theorem 7"

    def vectors(self, length: int) -> Float[Tensor, "length k"]:
        code = trace_code(length)
        return code.signs / math.sqrt(code.k)

    def width_at(self, length: int, margin: float) -> int:
        return 2 * self.dimension + (1 << trace_size(length)[0]) + 4

    def look(self, model: Model, stream: Space, length: int) -> None:
        eta_1 = trace_code(length).scale(2 * length, eps=self.margin / 8)
        query = eta_1 * torch.cat([stream.read("T"), -APART * stream.read("one")])
        attend(model, 0, query, key=stream.read("T", "label"), value=stream.read("x"), into=stream.write("brought"))
        eta_2 = 2 / self.margin * math.log(6 * length)  # the blur of layer 1 leaves half of the margin
        query = eta_2 * torch.cat([stream.read("x"), APART * stream.read("one")])
        attend(model, 1, query, key=stream.read("brought", "label"), value=stream.read("y"), into=stream.write("said"))


# -- widths and inputs ---------------------------------------------------------------------------------------------


def dimensions(count: int, gamma: float) -> int:
    """The least known dimension of this many vectors with |inner products| up to gamma: orthogonal vectors, Lemma 2, or
    a trace code with two coefficients.

    >>> dimensions(500, 1 / 16), dimensions(600, 1 / 16), dimensions(10**9, 1e-3)
    (500, 512, 2097152)
    """
    lemma = math.ceil(8 / gamma**2 * math.log(2 * count))
    return min(count, lemma, 1 << scattered_size(count, gamma))


def crowded(inputs: Tensor, dimension: int, margin: float) -> Tensor:
    """Move all other points so that the nearest leads by exactly the margin, and give them the opposite label."""
    points, labels = inputs[:, ::2, :dimension].double(), inputs[:, 1::2, dimension:]
    others, last = points[:, :-1], points[:, -1:]
    nearness = (others * last).sum(-1, keepdim=True)
    most, nearest = nearness.max(1, keepdim=True)
    apart = torch.nn.functional.normalize(others - nearness * last, dim=-1)
    level = most - margin
    moved = level * last + (1 - level**2).sqrt() * apart
    is_nearest = torch.arange(others.shape[1])[:, None] == nearest
    label = labels.gather(1, nearest.expand(-1, -1, 2))
    hard = inputs.clone()
    hard[:, :-1:2, :dimension] = torch.where(is_nearest, others, moved).float()
    hard[:, 1::2, dimension:] = torch.where(is_nearest, label, 1 - label)
    return hard
