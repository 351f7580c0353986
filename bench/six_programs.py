"""A study of 54 runs on parity in six programs of nine members: three models with widths 64 and 128."""

from __future__ import annotations

from assay.spec import RunSpec, run_spec

MODELS, WIDTHS, SEEDS, STEPS = ("delta-net", "recurrent-delta", "srwm"), (64, 128), range(9), 2_000


def spec(model: str, width: int, seed: int) -> RunSpec:
    return run_spec(
        "parity",
        model,
        seed=seed,
        model_options={"width": width, "layers": 2, "heads": 4},
        training={"lengths": [2, 50], "batch": 32, "steps": STEPS, "stop": "never"},
    )


RUNS = [spec(model, width, seed) for model in MODELS for width in WIDTHS for seed in SEEDS]
