"""Which runs can be trained as one program."""

from __future__ import annotations

from assay.description import digest
from assay.spec import RunSpec

SHARED = ("batch", "lengths", "validation", "validation_rows", "validate_every", "precision", "compile")


def program_of(spec: RunSpec) -> str:
    """A key that is equal for runs that can be members of one population."""
    training, testing = spec.training.plain(), spec.testing
    parts = [spec.model.plain(), list(spec.task.shape), {name: training[name] for name in SHARED}]
    if testing.states:  # these are saved while the population is trained
        parts.append([testing.states, testing.watch_every, testing.rows, [bin_.plain() for bin_ in testing.bins[:2]]])
    return digest(parts)
