"""Which small trained networks can be proved right on inputs of every length?

Six recurrent architectures with one layer learn parity and the flip-flop, from three seeds. Half of the runs carry a
state that is rounded to fixed point after every step, in training and in testing, so that the network is a finite
machine; half of their training inputs have a long run of one symbol. The other half of the runs are trained as usual.
`assay certify` then rounds the state of every network in the same way, and visits every state that any input leads to.
"""

from typing import Any

from assay.spec import run_spec

NUMBERS = "fixed:2.2"
SIZES = {
    "elman": {"width": 8},
    "gru": {"width": 8},
    "lstm": {"width": 8},
    "e-lstm": {"width": 8},
    "recurrent-delta": {"width": 4, "heads": 2},
    "srwm": {"width": 8, "heads": 2},
}
Options = dict[str, Any]
ROUNDED: tuple[Options, Options] = ({"runs": 0.5}, {"state": {"numbers": NUMBERS}})  # of the task and of the model
AS_USUAL: tuple[Options, Options] = ({}, {})

RUNS = [
    run_spec(
        task,
        model,
        seed=seed,
        task_options=task_options,
        model_options={"layers": 1, **size, **state},
        training={"lengths": [2, 24], "lr": 1e-2, "steps": 1_500, "validate_every": 50},
        testing={"rows": 64},
    )
    for task_options, state in (ROUNDED, AS_USUAL)
    for task in ("parity", "flip-flop")
    for model, size in SIZES.items()
    for seed in range(3)
]
