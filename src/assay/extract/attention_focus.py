"""How attention finds a position: the weight on the right one at the query of index lookup, and overlaps of keys."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from assay.models.attention import AttentionLayer, Scores, Weighting, softmax
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.index_lookup import IndexLookup

STRINGS, ASKED, SHOWN = 16, 64, 16  # random strings; at most so many positions are asked for, and shown as a matrix


@torch.no_grad()
def focus(model: Model, task: IndexLookup, length: int, rng: Rng) -> dict[str, Any]:
    """The head of any layer that puts most weight on the right position, for random strings of N symbols.

    `weights` has, for each asked position, the mean share of the head's weight on it; `overlaps` are cosines between
    the keys of positions, which are means over the strings, less their mean over the positions (what all keys have in
    common changes no weight of softmax).
    """
    model.eval()
    prefix = rng.rows(STRINGS).child("symbols").integers(length, task.alphabet) + 1
    _, state = model(prefix)
    asked = evenly(length, ASKED)
    layers = [(i, b.mixer) for i, b in enumerate(model.blocks) if isinstance(b.mixer, AttentionLayer)]
    shares = torch.stack([_shares(model, layers, state, task.alphabet + 1 + p, p) for p in asked])
    means = shares.mean((0, 1))  # [layers, heads], over positions and strings
    best = int(means.flatten().argmax())
    layer, head = divmod(best, means.shape[1])
    by_position = shares[:, :, layer, head].mean(1)
    keys = state[1][layers[layer][0]][0][:, head].mean(0)
    cosines = overlaps(keys)
    shown = evenly(length, SHOWN)
    apart = cosines[~torch.eye(length, dtype=torch.bool)]
    return {
        "layer": layers[layer][0] + 1,
        "head": head + 1,
        "strings": STRINGS,
        "weight": _short(by_position.mean()),
        "least": _short(by_position.min()),
        "positions": [p + 1 for p in asked],
        "weights": [_short(x) for x in by_position],
        "overlap": _short(apart.abs().mean()) if length > 1 else 0.0,
        "largest_overlap": _short(apart.max()) if length > 1 else 0.0,
        "shown": [p + 1 for p in shown],
        "overlaps": [[_short(x) for x in row] for row in cosines[shown][:, shown]],
    }


def evenly(length: int, most: int) -> list[int]:
    """Positions from the first to the last, at most so many, evenly spread.

    >>> evenly(3, 5), evenly(100, 4)
    ([0, 1, 2], [0, 33, 66, 99])
    """
    count = min(length, most)
    return [round(i * (length - 1) / max(1, count - 1)) for i in range(count)]


def _shares(
    model: Model, layers: list[tuple[int, AttentionLayer]], state: Any, query: int, position: int
) -> Float[Tensor, "strings layers heads"]:
    """The share of each head's weight that is on a position, when its index is asked for."""
    recorded: list[Tensor] = []
    before = [layer.weighting for _, layer in layers]

    def recording(weigh: Weighting) -> Weighting:
        def record(scores: Scores) -> Scores:
            weights = weigh(scores)
            size = weights[:, :, -1].abs()
            recorded.append(size[..., position] / size.sum(-1).clamp(min=1e-30))
            return weights

        return record

    try:
        for (_, layer), weigh in zip(layers, before, strict=True):
            layer.weighting = recording(weigh or softmax)
        rows = state[1][layers[0][0]][0].shape[0]
        model(torch.full((rows, 1), query), state)
    finally:
        for (_, layer), weigh in zip(layers, before, strict=True):
            layer.weighting = weigh
    return torch.stack(recorded, 1)


def overlaps(keys: Float[Tensor, "positions dim"]) -> Float[Tensor, "positions positions"]:
    """The cosines of vectors, less their mean."""
    centred = torch.nn.functional.normalize((keys - keys.mean(0)).double(), dim=1)
    return centred @ centred.T


def _short(x: Tensor) -> float:
    return round(float(x), 4)
