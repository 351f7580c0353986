"""Which architectures solve which tasks? Small enough for a laptop.

Six architectures in their published form, four tasks, three seeds: one layer each, the same width, batch, learning
rate and number of steps for all. Nothing is tuned for or against any of them.
"""

from assay.spec import run_spec

MODELS: dict[str, dict[str, int | str]] = {
    "transformer": {"width": 32, "layers": 1, "heads": 4, "positions": "sinusoidal"},
    "linear-transformer": {"width": 32, "layers": 1, "heads": 4},
    "delta-net": {"width": 32, "layers": 1, "heads": 4},
    "recurrent-delta": {"width": 32, "layers": 1, "heads": 4},
    "srwm": {"width": 32, "layers": 1, "heads": 4},
    "lstm": {"width": 32},
}

TASKS = {
    "parity": ({}, (2, 24)),
    "reset-dyck-1": ({}, (2, 24)),
    "an-bn": ({}, (2, 32)),
    "index-lookup": ({"alphabet": 8, "positions": 12}, (5, 13)),
}

RUNS = [
    run_spec(
        task,
        model,
        seed=seed,
        task_options=options,
        model_options=size,
        training={"lengths": lengths, "steps": 1500, "lr": 3e-3},
        testing={"rows": 128},
    )
    for task, (options, lengths) in TASKS.items()
    for model, size in MODELS.items()
    for seed in range(3)
]
