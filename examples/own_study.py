"""How long does a bit survive? Recurrent networks with a gate and without one on the flip-flop.

An Elman network writes its whole state anew at each step; an LSTM can keep parts of it. The second piece trains on
inputs with long runs of one symbol, so that the networks have seen how long they must remember.

    assay study own_study.py
    assay report own_study.py                   # reports/own_study/index.html

The environment variables STEPS and SEEDS make the study smaller.
"""

from __future__ import annotations

import os

from assay import RunSpec, run_spec
from assay.findings import Comparison, Expectation, Finding

STEPS, SEEDS = int(os.environ.get("STEPS", "400")), int(os.environ.get("SEEDS", "3"))
MODELS = ("elman", "lstm")
BINS = [{"name": f"Bin{i}", "low": low, "high": high} for i, (low, high) in enumerate([(2, 16), (17, 32), (33, 64)])]


def runs(runs_of_one_symbol: float) -> list[RunSpec]:
    """Each model with each seed; in this share of the inputs, a random stretch becomes a run of one symbol."""
    return [
        run_spec(
            "flip-flop",
            model,
            seed=seed,
            task_options={"runs": runs_of_one_symbol},
            model_options={"width": 16, "layers": 1},
            training={"lengths": (2, 16), "steps": STEPS, "lr": 1e-2},
            testing={"bins": BINS},
        )
        for model in MODELS
        for seed in range(SEEDS)
    ]


PIECES = {"random": runs(0.0), "with-runs": runs(0.5)}
VARIANTS = {
    f"{model}{suffix}": [run for run in PIECES[piece] if run.model.name == model]
    for piece, suffix in {"random": "", "with-runs": ", with runs"}.items()
    for model in MODELS
}
COMPARISONS = [
    Comparison("Gates and runs", "The same networks, trained without and with runs of one symbol.", tuple(VARIANTS))
]
FINDINGS = [
    Finding(
        name="gates-keep",
        says="An LSTM learns the flip-flop at twice the training length.",
        source="own_study.py",
        asked_here=True,
        expects=(Expectation(variant="lstm", outcome="learns", task="flip-flop"),),
    )
]
