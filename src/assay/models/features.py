"""Feature maps: functions from a projected vector to a key or a query."""

from __future__ import annotations

from typing import Literal

from assay.ops.fusions import feature_map as features

__all__ = ["FeatureMap", "features"]

FeatureMap = Literal["elu", "elu-sum", "softmax", "unit", "identity"]
