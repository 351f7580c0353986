"""The machines. Importing this package imports no torch; `model` builds a description by name."""

from assay.models.registry import MIXERS, MODELS, model, read_model

__all__ = ["MIXERS", "MODELS", "model", "read_model"]
