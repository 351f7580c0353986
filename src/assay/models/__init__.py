"""The machines. Importing this package imports no torch; `named_model` builds a description by name."""

from assay.models.registry import MIXERS, MODELS, named_model, read_model

__all__ = ["MIXERS", "MODELS", "named_model", "read_model"]
