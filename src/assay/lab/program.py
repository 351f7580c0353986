"""Which runs can be trained as one program."""

from __future__ import annotations

from assay.description import digest
from assay.spec import RunSpec

SHARED = ("batch", "lengths", "fixed", "validation", "validation_rows", "validate_every", "precision", "compile")


def program_of(spec: RunSpec) -> str:
    """A key that is equal for runs that can be members of one population."""
    training, testing, task = spec.training.plain(), spec.testing, spec.task
    widths = [spec.width, *(task.width(bin_.high) for bin_ in spec.training.validation)]
    shared = {name: training.get(name) for name in SHARED}  # a field at its default may be left out
    parts = [spec.model.plain(), list(task.shape), widths, shared]
    if testing.states:  # these are saved while the population is trained
        bins = [[bin_.plain(), task.width(bin_.high)] for bin_ in testing.first_bins]
        parts.append([testing.states, testing.watch_every, testing.rows, testing.every_length, bins])
    return digest(parts)
