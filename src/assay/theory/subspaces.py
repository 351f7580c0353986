"""Named blocks of a residual stream, and functions that write maps between them into a model.

A map is a matrix from the stream to the coordinates of a block (`read`), or back (`write`). Maps are tensors: `eta *
idx` of a proof is `eta * stream.read("idx")`, and a sum of blocks is a sum of maps.
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
    """A vector space with named, consecutive blocks of coordinates.

    >>> stream = Space(bits=2, one=1)
    >>> stream.vector(one=3.0)
    tensor([0., 0., 3.])
    >>> stream.read("bits")
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """

    def __init__(self, **sizes: int) -> None:
        self.sizes, self.slices, end = sizes, {}, 0
        for name, size in sizes.items():
            self.slices[name] = slice(end, end + size)
            end += size
        self.width = end

    def read(self, *names: str) -> Map:
        """The map from the stream to the coordinates of the blocks."""
        return torch.cat([torch.eye(self.width)[self.slices[name]] for name in names])

    def write(self, *names: str) -> Map:
        """The map from coordinates of the blocks to the stream, with zeros elsewhere."""
        return self.read(*names).T

    def vector(self, **blocks: Any) -> Float[Tensor, "*rows width"]:
        """The vector with these values in its blocks and zeros elsewhere; values with a leading axis give one per
        row."""
        values = {name: torch.as_tensor(value, dtype=torch.float32) for name, value in blocks.items()}
        rows = torch.broadcast_shapes(*(x.shape[:-1] for x in values.values() if x.ndim))
        vector = torch.zeros(*rows, self.width)
        for name, value in values.items():
            vector[..., self.slices[name]] = value
        return vector


def blank(stack: Stack, task: Task) -> Model:
    """A model for a task, with every parameter zero."""
    model = stack.build(*task.shape, Rng.seeded(0))
    for p in model.parameters():
        p.data.zero_()
    return model.eval().requires_grad_(requires_grad=False)


def embed(model: Model, symbols: Float[Tensor, "symbols width"]) -> None:
    """Set the embedding of every symbol; the embedding of padding stays zero."""
    table: Any = model.embed.weight
    table[1:] = symbols


def place(model: Model, positions: Float[Tensor, "positions width"]) -> None:
    """Set the vectors of the first positions."""
    table: Any = model.positions
    table.table[: len(positions)] = positions


def attend(model: Model, layer: int, query: Map, key: Map, value: Map, into: Map, head: int = 0) -> None:
    """Set a head of softmax or linear attention: logits <query x, key y>, values `value y`, written `into` the stream.

    Softmax attention divides logits by the square root of the head's size; the query is scaled to undo this.
    """
    mixer: Any = model.blocks[layer].mixer
    size, width = mixer.dim, mixer.out.out_features
    scale = size**0.5 if isinstance(mixer, AttentionLayer) else 1.0
    assert isinstance(mixer, AttentionLayer | LinearAttentionLayer)
    for part, rows in zip(mixer.project.weight.split(width), (scale * query, key, value), strict=True):
        part[head * size : head * size + len(rows)] = rows
    mixer.out.weight[:, head * size : head * size + into.shape[1]] = into


def average(model: Model, layer: int, value: Map, into: Map) -> None:
    """Set a head with all logits 0: it takes the mean of `value` over all positions so far."""
    zero = torch.zeros_like(value)
    attend(model, layer, query=zero, key=zero, value=value, into=into)


def first_feature(stream: Space) -> Map:
    """A query or key whose features are (1, 0, ..., 0), by elu(0) + 1 = 1 and elu(-FAR) + 1 = 0."""
    return -FAR * torch.cat([0 * stream.read("one"), stream.read("one").expand(stream.width - 1, -1)])


def program(model: Model, layer: int, query: Map, writes: Sequence[tuple[Map, Map, Map]], into: Map) -> None:
    """Set a delta rule with one head: its query, and the key, value and logit of beta of each write."""
    mixer: Any = model.blocks[layer].mixer
    keys, values = (linear.weight.unflatten(0, (mixer.steps, -1)) for linear in (mixer.key, mixer.value))
    mixer.query.weight[: len(query)] = query
    for step, (key, value, beta) in enumerate(writes):
        keys[step, : len(key)], values[step, : len(value)], mixer.beta.weight[step] = key, value, beta[0]
    mixer.out.weight[:, : into.shape[1]] = into


class Relus:
    """Sets the feed-forward part of a layer unit by unit: each adds `into` * relu(`read` x + bias) to the stream."""

    def __init__(self, model: Model, layer: int) -> None:
        block: Any = model.blocks[layer]
        self.inside: nn.Linear
        self.outside: nn.Linear
        (self.inside, self.outside), self.used = block.ff, 0

    def unit(self, read: Map, bias: float, into: Map) -> None:
        """Add one unit, or one for each row of `read` and column of `into`, with the same bias."""
        units = slice(self.used, self.used + len(read))
        if units.stop > len(self.inside.weight):
            raise ValueError(f"{units.stop} units do not fit into {len(self.inside.weight)}; a larger ff would do")
        self.inside.weight[units], self.inside.bias[units] = read, bias
        self.outside.weight[:, units] = into
        self.used = units.stop

    def between(self, read: Map, low: float, into: Map, high: float | None = None) -> None:
        """Add a ramp: 0 up to `low`, 1 from `high` on (default: low + 1), linear in between."""
        slope = 1.0 / (1.0 if high is None else high - low)
        self.unit(slope * read, -slope * low, into)
        self.unit(slope * read, -slope * low - 1.0, -into)

    def clear(self, read: Map, into: Map) -> None:
        """Add -`read` x, by x = relu(x) - relu(-x): with `into` the same block, this clears it."""
        self.unit(read, 0.0, -into)
        self.unit(-read, 0.0, into)


def say(model: Model, read: Float[Tensor, "answers width"], bias: Float[Tensor, "answers"] | None = None) -> None:
    """Set the read-out: the logit of every answer."""
    model.read_out.weight.copy_(read)
    if bias is not None:
        model.read_out.bias.copy_(bias)
