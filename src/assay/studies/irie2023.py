"""Which formal languages do linear Transformers and their recurrent and self-referential extensions learn?

The table of Irie et al. 2023 with seeds, learning rates and untouched test lengths: seven architectures as published,
eight languages, four learning rates, ten seeds. A run stops when its validation is right three times in a row, and is
censored at the end of its steps. The published code trains for 300 epochs: 94,000 steps of 32 strings on parity, Dyck-1
and their like, 600 on a^n b^n and 2,400 on (aa)*. Test bins reach 1,024 tokens and more; nothing is chosen by them.
"""

from assay.findings import Expectation, Finding, Outcome
from assay.models import named_model
from assay.spec import RunSpec, run_spec
from assay.tasks import named_task

MODELS = ("transformer", "linear-transformer", "delta-net", "recurrent-delta", "srwm", "lstm", "e-lstm")
STEPS = {
    "parity": 20_000,
    "reset-dyck-1": 20_000,
    "dyck-1": 20_000,
    "shuffle": 20_000,
    "an-bn": 10_000,
    "an-bn-cn": 10_000,
    "even-a": 5_000,
    "abab": 5_000,
}
LONG = ("even-a", "abab")  # trained on up to 500 tokens: a model at a time is a piece
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
SEEDS = range(10)


def runs(language: str, model: str) -> list[RunSpec]:
    task, machine = named_task(language), named_model(model)
    return [
        run_spec(task, machine, seed=seed, training={"steps": STEPS[language], "lr": lr})
        for lr in RATES
        for seed in SEEDS
    ]


PIECES: dict[str, list[RunSpec]] = {}
for language in STEPS:
    for model in MODELS:
        piece = f"{language}:{model}" if language in LONG else language
        PIECES[piece] = [*PIECES.get(piece, []), *runs(language, model)]

RUNS = [run for piece in PIECES.values() for run in piece]


def expect(outcome: Outcome, models: tuple[str, ...], *languages: str) -> tuple[Expectation, ...]:
    return tuple(Expectation(task=task, model=model, outcome=outcome) for model in models for task in languages)


LINEAR, RECURRENT = ("linear-transformer",), ("recurrent-delta", "srwm")
FINDINGS = [
    Finding(
        name="linear Transformers fail",
        says="The linear Transformer fails on parity and (aa)*, as the Transformer does.",
        source="Section 4.2",
        expects=expect("fails", (*LINEAR, "transformer"), "parity", "even-a"),
    ),
    Finding(
        name="counters",
        says="All variants of the linear Transformer learn the counter languages that the Transformer learns.",
        source="Section 4.2",
        expects=expect("solves", (*LINEAR, "delta-net", *RECURRENT), "an-bn", "an-bn-cn", "shuffle", "dyck-1"),
    ),
    Finding(
        name="erasing",
        says="The delta rule can forget: DeltaNet learns reset Dyck-1, the linear Transformer does not.",
        source="Section 4.2, Table 2",
        expects=expect("solves", ("delta-net",), "reset-dyck-1") + expect("fails", LINEAR, "reset-dyck-1"),
    ),
    Finding(
        name="recurrence and self-reference",
        says="Recurrent delta and SRWM solve parity, (aa)* and reset Dyck-1, and generalise.",
        source="Section 4.2",
        expects=expect("solves", RECURRENT, "parity", "even-a", "reset-dyck-1"),
    ),
    Finding(
        name="LSTM",
        says="The LSTM learns parity, (aa)* and reset Dyck-1.",
        source="Table 1",
        expects=expect("solves", ("lstm",), "parity", "even-a", "reset-dyck-1"),
    ),
]
