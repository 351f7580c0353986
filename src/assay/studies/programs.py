"""Between which programs does a self-referential weight matrix switch?

Three SRWMs, on parity, the flip-flop and a^n b^n. Their weights are kept, and `assay extract` groups the matrices that
occur into programs: the self-modifying automata that Irie et al. 2023 ask for.
"""

from assay.spec import run_spec

RUNS = [
    run_spec(
        task,
        "srwm",
        seed=seed,
        model_options={"width": 32},
        training={"lr": 3e-3, "steps": 3_000, **lengths},
    )
    for task, seed, lengths in (("parity", 0, {}), ("flip-flop", 2, {}), ("an-bn", 0, {"lengths": [2, 40]}))
]
