"""The models. Importing this package does not import torch; `named_model` gives a description by name."""

from assay.models.registry import MIXERS, MODELS, named_model, read_model

__all__ = ["MIXERS", "MODELS", "named_model", "read_model"]
