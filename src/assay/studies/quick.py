"""Which architectures solve which tasks? Small enough for a laptop.

Six architectures, four tasks, three seeds: one layer of width 32 for each, otherwise as published (but the Transformer
has sinusoidal positions, since index lookup needs some), with the same batch, learning rate and steps for all.
Nothing is tuned for or against any of them. Test bins go to four times the longest training input, except for
index lookup, which is tested up to its full length.
"""

from assay.spec import run_spec

MODELS: dict[str, dict[str, int | str]] = {
    "transformer": {"width": 32, "layers": 1, "heads": 4, "positions": "sinusoidal"},
    "linear-transformer": {"width": 32, "layers": 1, "heads": 4},
    "delta-net": {"width": 32, "layers": 1, "heads": 4},
    "recurrent-delta": {"width": 32, "layers": 1, "heads": 4},
    "srwm": {"width": 32, "layers": 1, "heads": 4},
    "lstm": {"width": 32, "layers": 1},
}
BINS = [
    {"name": "Bin0", "low": 2, "high": 24},
    {"name": "Bin1", "low": 25, "high": 48},
    {"name": "Bin2", "low": 49, "high": 96},
]
LOOKUP = {"alphabet": 8, "positions": 12}
TASKS = {
    "parity": ({}, {"lengths": [2, 24]}, {"bins": BINS}),
    "reset-dyck-1": ({}, {"lengths": [2, 24]}, {"bins": BINS}),
    "an-bn": ({}, {"lengths": [2, 24]}, {"bins": BINS}),
    "index-lookup": (LOOKUP, {"lengths": [5, 13]}, {}),
}

RUNS = [
    run_spec(
        task,
        model,
        seed=seed,
        task_options=options,
        model_options=size,
        training={**training, "steps": 1000, "lr": 1e-2},
        testing={**testing, "rows": 192},
    )
    for task, (options, training, testing) in TASKS.items()
    for model, size in MODELS.items()
    for seed in range(3)
]
