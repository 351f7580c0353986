"""Named subspaces of a residual stream, and how a construction writes its maps between them into a machine.

A map is a matrix that acts on the stream (`read`: onto a block's coordinates) or into it (`write`: from them). Maps are
tensors: a proof's `eta * idx` is `eta * stream.read("idx")`, a sum of blocks is a sum of maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.models.attention import AttentionLayer
from assay.models.linear_attention import LinearAttentionLayer
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.task import Task

Map = Float[Tensor, "_ _"]  # [to, from]
FAR = 200.0  # elu(-200) + 1 = 0, sigmoid(-200) = 0 and sigmoid(200) = 1 in float32


class Space:
    """A space with named blocks of coordinates, one after the other.

    >>> stream = Space(bits=2, one=1)
    >>> stream.vector(one=3.0)
    tensor([0., 0., 3.])
    >>> stream.read("bits")
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """

    def __init__(self, **sizes: int) -> None:
        self.sizes, self.places, end = sizes, {}, 0
        for name, size in sizes.items():
            self.places[name] = slice(end, end + size)
            end += size
        self.width = end

    def read(self, *names: str) -> Map:
        """The coordinates of some blocks."""
        return torch.cat([torch.eye(self.width)[self.places[name]] for name in names])

    def write(self, *names: str) -> Map:
        """The vector of the stream that has given coordinates in some blocks, and zeros elsewhere."""
        return self.read(*names).T

    def vector(self, **blocks: Any) -> Float[Tensor, "*rows width"]:
        """A vector by its blocks, zero where nothing is said; with a leading axis, one for each row."""
        given = {name: torch.as_tensor(value, dtype=torch.float32) for name, value in blocks.items()}
        rows = torch.broadcast_shapes(*(x.shape[:-1] for x in given.values() if x.ndim))
        made = torch.zeros(*rows, self.width)
        for name, value in given.items():
            made[..., self.places[name]] = value
        return made


def blank(stack: Stack, task: Task) -> Model:
    """The machine of a description for a task, with every parameter zero."""
    model = stack.build(*task.shape, Rng.seeded(0))
    for p in model.parameters():
        p.data.zero_()
    return model.eval().requires_grad_(requires_grad=False)


def embed(model: Model, symbols: Float[Tensor, "symbols width"]) -> None:
    """What every symbol puts into the stream; padding puts nothing."""
    table: Any = model.embed.weight
    table[1:] = symbols


def place(model: Model, positions: Float[Tensor, "positions width"]) -> None:
    """What every position adds, the first ones in order."""
    table: Any = model.positions
    table.table[: len(positions)] = positions


def attend(model: Model, layer: int, query: Map, key: Map, value: Map, into: Map, head: int = 0) -> None:
    """A head of softmax or linear attention: logits <query x, key y>, values `value y`, put `into` the stream.

    Softmax attention divides logits by the root of the head's size; the query makes up for it.
    """
    mixer: Any = model.blocks[layer].mixer
    size, width = mixer.dim, mixer.out.out_features
    scale = size**0.5 if isinstance(mixer, AttentionLayer) else 1.0
    assert isinstance(mixer, AttentionLayer | LinearAttentionLayer)
    for part, rows in zip(mixer.project.weight.split(width), (scale * query, key, value), strict=True):
        part[head * size : head * size + len(rows)] = rows
    mixer.out.weight[:, head * size : head * size + into.shape[1]] = into


def average(model: Model, layer: int, value: Map, into: Map) -> None:
    """A head whose logits are all 0: the mean of `value` over all positions so far."""
    nowhere = torch.zeros_like(value)
    attend(model, layer, query=nowhere, key=nowhere, value=value, into=into)


def first_feature(stream: Space) -> Map:
    """A query or key whose features are (1, 0, ..., 0), by elu(0) + 1 = 1 and elu(-FAR) + 1 = 0."""
    return -FAR * torch.cat([0 * stream.read("one"), stream.read("one").expand(stream.width - 1, -1)])


def program(model: Model, layer: int, query: Map, writes: Sequence[tuple[Map, Map, Map]], into: Map) -> None:
    """A delta rule with one head: its query, and the key, the value and the logit of beta of each of its writes."""
    mixer: Any = model.blocks[layer].mixer
    keys, values = (linear.weight.unflatten(0, (mixer.steps, -1)) for linear in (mixer.key, mixer.value))
    mixer.query.weight[: len(query)] = query
    for step, (key, value, beta) in enumerate(writes):
        keys[step, : len(key)], values[step, : len(value)], mixer.beta.weight[step] = key, value, beta[0]
    mixer.out.weight[:, : into.shape[1]] = into


class Relus:
    """The feed-forward part of a layer, unit by unit: each adds `into` * relu(`read` x + bias) to the stream."""

    def __init__(self, model: Model, layer: int) -> None:
        block: Any = model.blocks[layer]
        self.inside: nn.Linear
        self.outside: nn.Linear
        (self.inside, self.outside), self.used = block.ff, 0

    def unit(self, read: Map, bias: float, into: Map) -> None:
        """One unit, or one for each row of `read` and column of `into`, all with the same bias."""
        some = slice(self.used, self.used + len(read))
        if some.stop > len(self.inside.weight):
            raise ValueError(f"{some.stop} units do not fit into {len(self.inside.weight)}; a larger ff would do")
        self.inside.weight[some], self.inside.bias[some] = read, bias
        self.outside.weight[:, some] = into
        self.used = some.stop

    def between(self, read: Map, low: float, into: Map, high: float | None = None) -> None:
        """A ramp: 0 up to `low`, 1 from `high` (low + 1 unless given) on, straight in between."""
        slope = 1.0 / (1.0 if high is None else high - low)
        self.unit(slope * read, -slope * low, into)
        self.unit(slope * read, -slope * low - 1.0, -into)

    def clear(self, read: Map, into: Map) -> None:
        """Take away what stands there: adds -`read` x, which is x = relu(x) - relu(-x)."""
        self.unit(read, 0.0, -into)
        self.unit(-read, 0.0, into)


def say(model: Model, read: Float[Tensor, "answers width"], bias: Float[Tensor, "answers"] | None = None) -> None:
    """The logit of every answer."""
    model.read_out.weight.copy_(read)
    if bias is not None:
        model.read_out.bias.copy_(bias)
