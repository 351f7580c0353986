"""Does the learning rate of the study `quick` decide who solves parity?

The same six architectures, sizes, seeds and number of steps on parity, at two lower rates.
"""

from assay.spec import run_spec
from assay.studies.quick import MODELS, TASKS

OPTIONS, TRAINING, TESTING = TASKS["parity"]

RUNS = [
    run_spec(
        "parity",
        model,
        seed=seed,
        task_options=OPTIONS,
        model_options=size,
        training={**TRAINING, "steps": 1000, "lr": lr},
        testing={**TESTING, "rows": 192},
    )
    for lr in (3e-3, 1e-3)
    for model, size in MODELS.items()
    for seed in range(3)
]
