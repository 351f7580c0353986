"""Where do attention and recurrence part, as far as two processor cores can tell in a quarter of an hour?

The main separations of Bhattamishra et al. 2024 with small machines: looking up a symbol by its index, bounded Dyck,
copying a string, and recall. One learning rate for each architecture, found in short trials by validation (two for the
smallest Transformers); four seeds, the fewest that decide whether most seeds learn. The whole study is
`separations2024`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from assay.findings import Comparison, Finding, Separations
from assay.studies.separations2024_runs import Block, expect, lazily, named_variant

SEEDS, STEPS = 4, 1_500
WEIGHTINGS = ("hard", "sigmoid", "linear")
ROUNDED = "fixed:1.1"  # three bits a number
RATES = {"transformer": (3e-3,)}
OTHERS = (1e-2,)  # of the other architectures
LOOKUP, DYCK, COPY, RECALL = "index-lookup", "bounded-dyck", "equality-ncp", "recall"
OPTIONS: dict[str, dict[str, Any]] = {
    LOOKUP: {"alphabet": 16},
    DYCK: {"negatives": "count-balanced"},
    COPY: {"alphabet": 16},
    RECALL: {"vocabulary": 32},
}
SHORTEST = {LOOKUP: 4, DYCK: 10, COPY: 10, RECALL: 4}
ONE, TWO = "transformer, 1 layer", "transformer, 2 layers"
LSTM, MAMBA, DELTA = RECURRENT = ("lstm, 1 layer", "mamba, 1 layer", "delta-net, 1 layer")


def block(
    task: str,
    lengths: tuple[int, ...],
    model: str,
    widths: tuple[int, ...],
    layers: int = 1,
    steps: int = STEPS,
    numbers: tuple[str, ...] = ("",),
    rates: tuple[float, ...] = (),
) -> Block:
    return Block(
        task,
        lengths,
        model,
        layers,
        widths,
        rates or RATES.get(model, OTHERS),
        SEEDS,
        steps,
        task_options=OPTIONS[task],
        numbers=numbers,
        shortest=SHORTEST[task],
        rows=256,
    )


def _parts() -> Iterable[tuple[str, Block]]:
    yield "lookup", block(LOOKUP, (8, 16, 32), "transformer", (32,))
    yield "lookup", block(LOOKUP, (8, 32), "lstm", (32,))
    yield "lookup", block(LOOKUP, (8, 32), "mamba", (16,))
    yield "lookup", block(LOOKUP, (8, 32), "delta-net", (32,))
    yield "smallest", block(LOOKUP, (8, 16, 32), "transformer", (8, 16), steps=2 * STEPS, rates=(3e-3, 1e-2))
    yield "state", block(LOOKUP, (16,), "lstm", (8, 16, 32, 64))
    yield "state", block(LOOKUP, (16,), "mamba", (4, 8, 16, 32))
    yield "state", block(LOOKUP, (16,), "delta-net", (16, 32, 64))
    yield "rounded", block(LOOKUP, (16,), "lstm", (4, 8, 16), numbers=(ROUNDED,))
    for layers in (1, 2):
        yield "dyck", block(DYCK, (24,), "transformer", (32,), layers, 2 * STEPS)
    yield "dyck", block(DYCK, (24,), "lstm", (32,))
    yield "dyck", block(DYCK, (24,), "mamba", (16,))
    for layers in (1, 2):
        yield "copy", block(COPY, (32,), "transformer", (32,), layers, 2_000)
    yield "copy", block(COPY, (32,), "lstm", (64,))
    yield "copy", block(COPY, (32,), "mamba", (16,))
    for layers in (1, 2):
        yield "recall", block(RECALL, (8,), "transformer", (32,), layers)
    yield "recall", block(RECALL, (8,), "lstm", (64,))
    yield "recall", block(RECALL, (8,), "mamba", (16,))
    for weighting in WEIGHTINGS:
        softmax = block(LOOKUP, (16,), "transformer", (32,))
        yield "weightings", replace(softmax, change=weighting, options={"weighting": weighting})


PARTS = list(_parts())
PIECES = lazily(PARTS)
VARIANTS = lazily((block.variant, block) for _, block in PARTS)
QUESTIONS = {
    "lookup": "Who looks up a symbol by its index, at which length?",
    "smallest": "How does the smallest width that looks up grow with the length?",
    "state": "How does accuracy grow with the state?",
    "rounded": "How near does a state of few bits come to the ceiling?",
    "dyck": "Does one layer of attention recognise bounded Dyck words?",
    "copy": "Do two layers copy a string, and one not?",
    "recall": "Who recalls the value of a key?",
    "weightings": "Do other attentions look up, too?",
}
COMPARISONS = [Comparison("Small machines", "Four seeds at one learning rate.", (ONE, TWO, *RECURRENT))]

HERE = "asked here"
FINDINGS = [
    Finding(
        name="lookup by attention",
        says="A small one-layer Transformer learns index lookup at every length.",
        quote="we show that a one-layer Transformer of logarithmic width can perform index lookup",
        source="abstract",
        expects=expect("learns", (ONE,), LOOKUP),
    ),
    Finding(
        name="lookup by recurrence",
        says="Small recurrent models do not learn index lookup of 32 symbols, though their states have enough bits.",
        source=HERE,
        asked_here=True,
        expects=expect("fails", RECURRENT, LOOKUP, 32),
    ),
    Finding(
        name="bounded Dyck",
        says="The LSTM and Mamba learn Dyck-(2,2) with count-balanced negatives.",
        quote="constant-size RNNs can recognize bounded Dyck languages",
        source="abstract",
        expects=expect("learns", (LSTM, MAMBA), DYCK),
    ),
    Finding(
        name="bounded Dyck by attention",
        says="A two-layer Transformer learns these Dyck words, and a one-layer one of the same width does not.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (TWO,), DYCK) + expect("fails", (ONE,), DYCK),
    ),
    Finding(
        name="copying",
        says="A two-layer Transformer copies a string; a one-layer one and small recurrent models do not.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (TWO,), COPY) + expect("fails", (ONE, LSTM, MAMBA), COPY),
    ),
    Finding(
        name="recall",
        says="A two-layer Transformer recalls the value of a key; a one-layer one does not.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (TWO,), RECALL) + expect("fails", (ONE,), RECALL),
    ),
    Finding(
        name="other attention",
        says="Trained hard, sigmoid and linear attention look up 16 symbols as softmax does.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (named_variant("transformer", 1, change) for change in WEIGHTINGS), LOOKUP),
    ),
]
SEPARATIONS = Separations(
    title="Where attention and recurrence part, on two cores",
    main="lookup by attention",
    recurrent=RECURRENT,
    attention=ONE,
    growing=((ONE, LOOKUP),),
    depths=((ONE, TWO),),
    depth_tasks=(DYCK, COPY),
    questions=QUESTIONS,
)
