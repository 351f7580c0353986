"""Feature maps: functions from a projected vector to a key or a query."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

FeatureMap = Literal["elu", "elu-sum", "softmax", "unit", "identity"]


def features(name: FeatureMap, z: Tensor) -> Tensor:
    """`elu`: elu(z) + 1. `elu-sum`: the same, divided by its sum. `softmax`. `unit`: z / |z|. `identity`."""
    if name == "elu":
        return F.elu(z) + 1
    if name == "elu-sum":
        positive = F.elu(z) + 1
        return positive / positive.sum(-1, keepdim=True)
    if name == "softmax":
        return z.softmax(-1)
    if name == "unit":
        return F.normalize(z, dim=-1)
    return z
