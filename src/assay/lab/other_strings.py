"""Testing a run with the other strings of its task: uniform ones if it was trained on published ones, or vice versa."""

from __future__ import annotations

import torch
from torch import nn

from assay.lab.data import held_out
from assay.lab.evaluate import OnProgress, evaluate
from assay.lab.replays import Replays
from assay.lab.training_sets import seen_in_training
from assay.record import Score
from assay.spec import RunSpec


def other_scores(
    model: nn.Module,
    spec: RunSpec,
    device: torch.device,
    on_progress: OnProgress = lambda tested, total: None,
    replays: Replays | None = None,
) -> tuple[Score, ...]:
    """The scores of Bin0 and Bin1 with the other strings; none unless `testing.both_strings`.

    `shared` counts the rows that the run's own training may have shown.
    """
    if not spec.testing.both_strings:
        return ()
    task, trained = spec.task.other_strings(), spec.training.lengths
    testing = spec.testing.model_copy(update={"bins": spec.testing.first_bins, "every_length": False})
    other = spec.model_copy(update={"task": task, "testing": testing})
    scores, _ = evaluate(model, other, device, on_progress, replays)
    sets = [held_out(task, bin_, trained, testing.rows, "test", device, False) for bin_ in testing.bins]
    shared = [seen_in_training(spec.task, trained, rows.batch.inputs.cpu(), rows.lengths.cpu()) for rows in sets]
    return tuple(
        score.model_copy(update={"shared": int(rows.sum())}) for score, rows in zip(scores, shared, strict=True)
    )
