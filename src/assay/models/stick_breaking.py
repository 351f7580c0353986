"""Stick-breaking attention (Tan et al. 2025): the nearest key takes its share first, the others of what is left."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F

from assay.models.attention import Attention, AttentionLayer, Scores
from assay.models.mixer import HeadedMixer
from assay.rng import Rng


class StickBreaking(HeadedMixer):
    """A_ij = sigmoid(z_ij) prod_{j<k<i} (1 - sigmoid(z_ik)) for j < i, with z = q k^T / sqrt d: not at itself."""

    kind: ClassVar[str] = "stick-breaking"

    def build(self, width: int, rng: Rng) -> StickBreakingLayer:
        return StickBreakingLayer(Attention(heads=self.heads), width, rng)


class StickBreakingLayer(AttentionLayer):
    def __init__(self, description: Attention, width: int, rng: Rng) -> None:
        super().__init__(description, width, rng)
        self.weighting = stick_breaking


def stick_breaking(scores: Scores) -> Scores:
    time, source = scores.shape[-2:]
    positions = torch.arange(source, device=scores.device)
    earlier = positions < positions[source - time :, None]
    z = scores.where(earlier, 0.0)
    rest = (-F.softplus(z)).where(earlier, 0.0)
    after = rest.flip(-1).cumsum(-1).flip(-1) - rest
    return (F.logsigmoid(z) + after).exp().where(earlier, 0.0)
