"""Nearest neighbour (Bhattamishra et al. 2024): labelled real vectors, and one vector without a label."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe
from assay.tasks.task import Task, columns, unpadded


class NearestNeighbour(Task):
    """x_1 y_1 x_2 y_2 ... x_k: the label of the point nearest to the last one, by inner product.

    A feature vector is [x | y = 0 | y = 1]: a point has its unit vector in the first `dimension` features, a label has
    a 1 in one of the last two. Points are uniform on the sphere and labels are fair coins; the last point is a random
    earlier one moved by half a random unit vector. Any other point within `margin` of being the nearest is replaced by
    its opposite, so there are no ties.

    >>> task = NearestNeighbour(dimension=2)
    >>> x1, yes, x2, no = (1.0, 0, 0, 0), (0, 0, 0, 1), (0, 1.0, 0, 0), (0, 0, 1, 0)
    >>> task.solve(torch.tensor([[x1, yes, x2, no, (0.8, 0.6, 0, 0)]])).tolist()
    [[-100, -100, -100, -100, 1]]
    """

    kind: ClassVar[str] = "nearest-neighbour"
    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    symbols: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    train_lengths: ClassVar[tuple[int, int]] = (3, 51)
    dimension: Annotated[int, Field(ge=2, description="numbers of a point")] = 16
    margin: Annotated[
        float, Field(gt=0, le=0.3, description="by how much the nearest point is nearer than every other one")
    ] = 0.1

    @property
    def features(self) -> int:
        return self.dimension + 2

    def answer(self, inputs: Float[Tensor, "rows time features"]) -> Int[Tensor, "rows time"]:
        """The label of the nearest earlier point; 0 if there is none."""
        time = columns(inputs)
        last = unpadded(inputs).sum(1, keepdim=True) - 1
        points = inputs[..., : self.dimension].double()
        query = points.gather(1, last.clamp(min=0)[..., None].expand(-1, -1, self.dimension))
        is_point = (inputs[..., -2] == 0) & (inputs[..., -1] == 0)
        earlier = is_point & (time < last)
        nearness = torch.bmm(points, query.mT)[..., 0]
        nearest = torch.where(earlier, nearness, -torch.inf).argmax(1, keepdim=True)
        label = inputs[..., -1].gather(1, (nearest + 1).clamp(max=len(time) - 1)) > 0.5
        return (label & earlier.any(1, keepdim=True)).long().expand(inputs.shape[:2])

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Float[Tensor, "rows time features"]:
        count, rows, d = (width + 1) // 2, len(lengths), self.dimension
        # The dimension is the first axis: `dot` sums over it in the same order on every device. In double precision,
        # because float32 division and square root differ in their last bit between devices; rounding hides that here.
        points = rng.child("points").normal(count * d).view(rows * count, d).T.double().view(d, rows, count)
        points /= length(points)
        query = ((lengths - 1) // 2)[:, None]  # the number of the last point
        target = rng.child("target").integers(1, query)
        chosen = points.gather(2, target.expand(d, -1, -1))
        apart = rng.child("apart").normal(d).double().T[..., None]
        last = chosen + apart / (2 * length(apart))
        last /= length(last)
        too_near = dot(points, last) > dot(chosen, last) - (self.margin + 1e-5)  # 1e-5: more than any rounding error
        numbers = torch.arange(count, device=lengths.device)
        points *= torch.where(too_near & (numbers != target), -1.0, 1.0)
        points.scatter_(2, query.expand(d, -1, -1), last)
        drawn = torch.zeros(rows * count, 2, self.features, device=lengths.device)
        drawn[:, 0, :d] = points.view(d, -1).T
        drawn = drawn.view(rows, count, 2, self.features)
        drawn[:, :, 1, d:] = torch.nn.functional.one_hot(rng.child("labels").integers(count, 2), 2)
        return drawn.flatten(1, 2)[:, :width]

    def fits(self, length: int) -> bool:
        return length >= 3 and length % 2 == 1

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The nearest point first or last, all others as near as the margin allows, and with the other label."""
        probes = []
        for name, place in (("nearest first", 0), ("nearest last", -1)):
            rows = []
            for length in sorted({self.lengths(trained[0], longest)[i] for i in (0, -1)}):
                for label in (0, 1):
                    count = length // 2
                    row = torch.zeros(longest, self.features)
                    row[0 : 2 * count : 2, :2] = _at(0.9 - self.margin - 1e-4)
                    row[1 : 2 * count : 2, self.dimension + 1 - label] = 1
                    nearest = place % count
                    row[2 * nearest, :2] = _at(0.9)
                    row[2 * nearest + 1, self.dimension :] = torch.tensor([1.0 - label, label])
                    row[2 * count, :2] = _at(1.0)
                    rows.append(row)
            probes.append(Probe(name, torch.stack(rows)))
        return probes


def _at(nearness: float) -> Float[Tensor, "2"]:
    """The unit vector in the plane with this inner product with (1, 0)."""
    return torch.tensor([nearness, (1 - nearness**2) ** 0.5])


def dot(a: Float[Tensor, "d *#rows"], b: Float[Tensor, "d *#rows"]) -> Float[Tensor, "*#rows"]:
    """Inner products over the first axis, summed in a fixed order, so that every device gives the same bits."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total += x * y
    return total


def length(x: Float[Tensor, "d *rows"]) -> Float[Tensor, "*rows"]:
    return dot(x, x).sqrt()
