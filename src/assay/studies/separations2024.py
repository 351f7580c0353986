"""Where do attention and recurrence part, and at which sizes?

Bhattamishra et al. 2024 prove that Transformers of logarithmic size look up in one layer, and compare and recall in
two, where recurrent models need linear size; on bounded Dyck languages, one layer needs linear size and a recurrent
model constant size. This study trains both, with five seeds and fewer steps than the paper's 250,000, and sets the
sizes that training finds beside those of theory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from assay.findings import Comparison, Finding, Separations
from assay.studies.separations2024_runs import Block, expect, lazily, named_variant

LOOKUP, DYCK, COPY, RECALL = "index-lookup", "bounded-dyck", "equality-ncp", "recall"
EQUAL, ONE_OFF, DISJOINT = "equality-random", "equality-one", "disjointness"
MANY, NEAREST, BOOK = "multi-query-recall", "nearest-neighbour", "phone-book"
TRANSFORMER, LSTM, MAMBA = "transformer", "lstm", "mamba"
RECURRENT = (LSTM, MAMBA, "dss", "retnet", "linear-transformer", "delta-net", "recurrent-delta", "srwm")
SEEDS = 5
ALL_RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6)
HIGH, MIDDLE = (1e-3, 3e-3, 1e-2), (3e-4, 1e-3, 3e-3)  # short trials chose 1e-2 for states and narrow attention
SHORT, USUAL, LONG = 5_000, 10_000, 20_000  # steps
NUMBERS = ("fixed:0.1", "fixed:1.1", "fixed:1.3", "fixed:2.5")  # of 2, 3, 5 and 8 bits
FEW_SYMBOLS = {"alphabet": 128}  # of copies and of strings that differ in one symbol
BALANCED = {"negatives": "count-balanced"}
WEIGHTINGS = ("hard", "sigmoid", "linear")
# Variants of their own, so that no claim about the others waits for them.
WIDE, LONGEST = "wide", "250,000 steps"
NONE_SHORTER = 1 << 20  # training has inputs of length N alone
# One yes or no about two strings teaches little, and the theorems are about one N; so these have no other lengths.
SHORTEST = dict.fromkeys((EQUAL, ONE_OFF, DISJOINT), NONE_SHORTER) | {BOOK: 20}


def block(
    task: str,
    lengths: tuple[int, ...],
    model: str,
    widths: tuple[int, ...],
    layers: int = 1,
    rates: tuple[float, ...] = MIDDLE,
    steps: int = USUAL,
    task_options: dict[str, Any] | None = None,
    **others: Any,
) -> Block:
    others = {"seeds": SEEDS, "shortest": SHORTEST.get(task, 10)} | others
    return Block(task, lengths, model, layers, widths, rates, steps=steps, task_options=task_options or {}, **others)


def attention(task: str, lengths: tuple[int, ...], widths: tuple[int, ...], layers: int = 1, **others: Any) -> Block:
    return block(task, lengths, TRANSFORMER, widths, layers, **others)


class Part(NamedTuple):
    """Blocks that answer one question: a piece of at most nine minutes on an H200 by forecast."""

    question: str
    blocks: tuple[Block, ...]


def _all_rates() -> Iterable[Block]:
    """One seed, which no other piece has."""
    for model in (TRANSFORMER, *RECURRENT):
        yield block(LOOKUP, (50,), model, (64,), rates=ALL_RATES, seeds=1, first_seed=100)


def _recurrent(
    lengths: tuple[int, ...], models: Iterable[str] = RECURRENT, rates: tuple[float, ...] = HIGH, steps: int = USUAL
) -> tuple[Block, ...]:
    return tuple(block(LOOKUP, lengths, model, (64,), rates=rates, steps=steps) for model in models)


def _state_bits() -> Iterable[Block]:
    """At N = 20 and 64 symbols 120 bits are needed; 16 to 64 numbers of 2 to 8 bits are below and above that."""
    yield block(LOOKUP, (20,), LSTM, (8, 16, 32), rates=HIGH[1:], steps=SHORT, numbers=NUMBERS)
    yield block(LOOKUP, (20,), LSTM, (8, 16, 32, 128), rates=HIGH)
    yield block(LOOKUP, (20,), MAMBA, (8, 16, 32), rates=HIGH)
    yield block(LOOKUP, (20,), "delta-net", (16, 32), rates=HIGH)


def _dyck(options: dict[str, Any], change: str = "") -> Iterable[Block]:
    for layers in (1, 2):
        yield attention(
            DYCK, (20, 50, 100), (8, 16, 32, 64, 128), layers, task_options=options, change=change, rates=MIDDLE[1:]
        )
    for model in (LSTM, MAMBA):
        yield block(DYCK, (20, 50, 100), model, (16,), task_options=options, change=change, rates=HIGH)


def _long_dyck() -> Iterable[Block]:
    for length, steps in ((200, USUAL), (400, LONG)):
        for layers in (1, 2):
            yield attention(
                DYCK,
                (length,),
                (64,),
                layers,
                task_options=BALANCED,
                change="count-balanced",
                rates=(1e-3,),
                steps=steps,
            )
        for model in (LSTM, MAMBA):
            yield block(
                DYCK,
                (length,),
                model,
                (16,),
                task_options=BALANCED,
                change="count-balanced",
                rates=(3e-3,),
                steps=steps,
            )


def _pairs(task: str, lengths: tuple[int, ...], widths: tuple[int, ...], **others: Any) -> Iterable[Block]:
    """One layer against two, beside recurrent models."""
    for layers in (1, 2):
        yield attention(task, lengths, widths, layers, rates=MIDDLE[1:], **others)
    for model in (LSTM, MAMBA):
        yield block(task, lengths, model, (64,), rates=HIGH, **others)


def _weightings() -> Iterable[Block]:
    for change in WEIGHTINGS:
        options: dict[str, Any] = {"options": {"weighting": change}, "change": change, "rates": MIDDLE}
        yield attention(LOOKUP, (20, 100), (64,), **options)
        yield attention(DYCK, (50,), (64,), 2, task_options=BALANCED, **options)
        yield attention(COPY, (40,), (64,), 2, task_options=FEW_SYMBOLS, **options)
        yield attention(EQUAL, (40,), (64,), 2, **options)


def _width(model: str, widths: tuple[int, ...], layers: int = 1, rates: tuple[float, ...] = MIDDLE[1:]) -> Block:
    return block(LOOKUP, (100,), model, widths, layers, rates=rates)


def _one_rate(model: str, width: int, rate: float, steps: int = USUAL, change: str = "") -> Block:
    """A width that is too slow for several rates."""
    return block(LOOKUP, (100,), model, (width,), rates=(rate,), steps=steps, change=change)


BEYOND = "beyond: "  # the first words of pieces that are not among the ninety minutes
# In the order in which they are worth running.
PARTS = {
    "rates": Part("Which learning rate suits which architecture?", tuple(_all_rates())),
    "lookup: attention": Part(
        "Does a small one-layer Transformer look up at every length, and how does its smallest size grow?",
        (
            attention(LOOKUP, (20, 50, 100, 200), (8, 16), rates=HIGH),
            attention(LOOKUP, (20, 50, 100, 200), (32, 64)),
        ),
    ),
    "lookup: recurrence to 100": Part("From which length on do recurrent models fail?", _recurrent((20, 50, 100))),
    "state bits": Part("How near does a state of few bits come to the ceiling?", tuple(_state_bits())),
    "Dyck, count-balanced": Part(
        "Does one layer of attention fail on Dyck-(2,2) where others do not?",
        tuple(_dyck(BALANCED, change="count-balanced")),
    ),
    "copy": Part(
        "Do two layers copy a string, and one not, and at which width?",
        tuple(_pairs(COPY, (20, 40, 80), (8, 16, 32, 64), task_options=FEW_SYMBOLS)),
    ),
    "lookup: recurrence at 200": Part("Do recurrent models look up 200 symbols?", _recurrent((200,))),
    "lookup: attention at 400": Part(
        "Does attention look up 400 symbols, and at which width?",
        (
            attention(LOOKUP, (400,), (8, 16), rates=HIGH[1:], steps=LONG),
            attention(LOOKUP, (400,), (32, 64), rates=MIDDLE[1:], steps=LONG),
        ),
    ),
    "lookup: one head": Part(
        "Do narrow Transformers of one head, as in the construction, look up more?",
        (
            attention(LOOKUP, (20, 50, 100, 200), (4, 8, 16, 32), heads=(1,), rates=HIGH[1:]),
            attention(LOOKUP, (400,), (4, 8, 16, 32), heads=(1,), rates=HIGH[1:], steps=LONG),
        ),
    ),
    "recall": Part("Who recalls the value of one key, of 10 to 100?", tuple(_pairs(RECALL, (10, 30, 100), (16, 64)))),
    "equality": Part(
        "Which width learns equality of random strings, with one layer and with two?",
        tuple(_pairs(EQUAL, (24, 40, 80), (8, 16, 32, 64, 128))),  # of 20 bits too few equal ones can be held out
    ),
    "lookup: LSTM by width": Part(
        "Does a larger state of an LSTM look up more?", (_width(LSTM, (128, 256, 512)), _width(LSTM, (128,), layers=2))
    ),
    "lookup: Mamba by width": Part(
        "Does Mamba gain with width, and stay below?",
        (_width(MAMBA, (16,), rates=HIGH), _width(MAMBA, (128, 256)), _one_rate(MAMBA, 512, 1e-3)),
    ),
    "weightings": Part("Do other attentions learn lookup, Dyck, copying and equality?", tuple(_weightings())),
    "Dyck": Part("And with corrupted words, which counting symbols nearly tells from others?", tuple(_dyck({}))),
    "lookup: recurrence at 400": Part(
        "Do recurrent models look up 400 symbols?", _recurrent((400,), rates=(3e-3,), steps=LONG)
    ),
    "lookup: 800 and 1,600": Part(
        "Does attention still look up beyond the paper's lengths?",
        # With inputs from 10 symbols on, one run in four would ever be asked for the last of 1,600 positions.
        (
            attention(LOOKUP, (800,), (64,), rates=MIDDLE[1:], shortest=NONE_SHORTER),
            attention(LOOKUP, (1600,), (64,), rates=(1e-3,), shortest=NONE_SHORTER),
        ),
    ),
    "phone book": Part("Who looks up a number by a name?", tuple(_pairs(BOOK, (76, 146), (64,)))),
    "one symbol": Part(
        "Who tells strings that differ in one symbol?",
        tuple(_pairs(ONE_OFF, (20, 40), (64,), task_options=FEW_SYMBOLS)),
    ),
    "disjointness": Part("Who tells disjoint sets?", tuple(_pairs(DISJOINT, (20, 40), (64,)))),
    "nearest neighbour": Part("Who finds the nearest neighbour?", tuple(_pairs(NEAREST, (20, 50), (64,)))),
    "multi-query recall": Part("Who recalls the values of many keys?", tuple(_pairs(MANY, (32, 64), (64,)))),
    "Dyck to 400": Part("Who learns Dyck-(2,2) of 200 and 400 brackets?", tuple(_long_dyck())),
    "copy to 800": Part(
        "Do two layers copy 400 of 1,024 symbols?",
        (attention(COPY, (200, 800), (64,), 2, rates=(1e-3,), task_options={"alphabet": 1024}),),
    ),
    "heads": Part(
        "Do 8 heads do what 4 do not?",
        (attention(LOOKUP, (100, 200), (64,), heads=(8,), rates=MIDDLE[1:], change="8 heads"),),
    ),
    "depth": Part(
        "Do more layers help?",
        (
            *(block(LOOKUP, (100,), MAMBA, (64,), layers, rates=(1e-3,)) for layers in (2, 4, 6)),
            *(block(LOOKUP, (100,), LSTM, (64,), layers, rates=(1e-3,)) for layers in (2, 3)),
            *(attention(DYCK, (50,), (32,), layers, rates=(1e-3,)) for layers in (3, 6)),
        ),
    ),
    "Mamba at 800": Part(
        "Does Mamba do 800 symbols?", (block(LOOKUP, (800,), MAMBA, (64,), rates=(1e-3,), shortest=NONE_SHORTER),)
    ),
    "Mamba of width 1,024": Part(
        "Does Mamba of the paper's largest width look up?", (_one_rate(MAMBA, 1024, 3e-4, change=WIDE),)
    ),
    f"{BEYOND}long": Part(
        "Do recurrent models only need more steps?",
        tuple(
            block(LOOKUP, (100,), model, (64,), rates=(1e-3,), steps=250_000, change=LONGEST) for model in (LSTM, MAMBA)
        ),
    ),
    f"{BEYOND}width 2,048": Part(
        "And Mamba of twice the paper's largest width?", (_one_rate(MAMBA, 2048, 3e-4, 4_000, WIDE),)
    ),
}
PIECES = lazily((name, block) for name, part in PARTS.items() for block in part.blocks)
VARIANTS = lazily((block.variant, block) for part in PARTS.values() for block in part.blocks)
QUESTIONS = {name: part.question for name, part in PARTS.items()}

# -- what is compared and judged ---------------------------------------------------------------------------------------

ONE, TWO = named_variant(TRANSFORMER, 1), named_variant(TRANSFORMER, 2)
STATES = tuple(named_variant(model, 1) for model in RECURRENT)
BALANCED_ONE, BALANCED_TWO = (named_variant(TRANSFORMER, layers, "count-balanced") for layers in (1, 2))
LSTM_1, MAMBA_1 = named_variant(LSTM, 1), named_variant(MAMBA, 1)
BALANCED_STATES = tuple(named_variant(model, 1, "count-balanced") for model in (LSTM, MAMBA))
COMPARISONS = [Comparison("Attention and recurrence", "Five seeds.", (ONE, TWO, *STATES))]

THEORY, HERE = "expected from theory", "asked here"
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
        says="Recurrent models of one layer and width 64 do not learn index lookup of 200 and 400 symbols, though "
        "their states have enough bits.",
        source=HERE,
        asked_here=True,
        expects=expect("fails", STATES, LOOKUP, 200, 400),
    ),
    Finding(
        name="Mamba stays below",
        says="Mamba gains with width, and does not learn index lookup of 100 symbols up to width 512.",
        source=HERE,
        asked_here=True,
        expects=expect("fails", (MAMBA_1,), LOOKUP, 100),
    ),
    Finding(
        name="bounded Dyck",
        says="The LSTM and Mamba of width 16 learn Dyck-(2,2) of every length, with both kinds of negatives.",
        quote="constant-size RNNs can recognize bounded Dyck languages",
        source="abstract",
        expects=expect("learns", (LSTM_1, MAMBA_1, *BALANCED_STATES), DYCK),
    ),
    Finding(
        name="bounded Dyck in two layers",
        says="A two-layer Transformer learns Dyck-(2,2), with both kinds of negatives.",
        source=f"{THEORY}: explicit weights of constant width",
        expects=expect("learns", (TWO, BALANCED_TWO), DYCK),
    ),
    Finding(
        name="bounded Dyck in one layer",
        says="A one-layer Transformer up to width 128 does not learn Dyck-(2,2) of 100 brackets, if counts of symbols "
        "do not tell words from others.",
        source=HERE,
        asked_here=True,
        expects=expect("fails", (BALANCED_ONE,), DYCK, 100),
    ),
    Finding(
        name="equality and disjointness",
        says="A two-layer Transformer tells equal strings, and disjoint sets.",
        quote="we show that two-layer Transformers of logarithmic size can perform decision tasks such as string "
        "equality or disjointness",
        source="abstract",
        expects=expect("learns", (TWO,), EQUAL) + expect("learns", (TWO,), DISJOINT),
    ),
    Finding(
        name="one symbol",
        says="A two-layer Transformer tells strings that differ in one symbol.",
        source=f"{THEORY}, Theorem 6",
        expects=expect("learns", (TWO,), ONE_OFF),
    ),
    Finding(
        name="equality without two layers",
        says="A one-layer Transformer, the LSTM and Mamba do not tell strings of 20 symbols that differ in one.",
        source=HERE,
        asked_here=True,
        expects=expect("fails", (ONE, LSTM_1, MAMBA_1), ONE_OFF, 40),
    ),
    Finding(
        name="copying",
        says="A two-layer Transformer copies strings at every N from 20 to 800; a one-layer one, the LSTM and Mamba do "
        "not at N = 80.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (TWO,), COPY) + expect("fails", (ONE, LSTM_1, MAMBA_1), COPY, 80),
    ),
    Finding(
        name="nearest neighbour",
        says="A two-layer Transformer finds the label of the nearest neighbour.",
        quote="a log-size two-layer Transformer can implement the nearest neighbor algorithm in its forward pass",
        source="abstract",
        expects=expect("learns", (TWO,), NEAREST),
    ),
    Finding(
        name="nearest neighbour without two layers",
        says="A one-layer Transformer, the LSTM and Mamba of width 64 do not find it among 25 points.",
        source=HERE,
        asked_here=True,
        expects=expect("fails", (ONE, LSTM_1, MAMBA_1), NEAREST, 50),
    ),
    Finding(
        name="recall",
        says="A two-layer Transformer recalls the value of one key of 10 to 100; of 100, the LSTM and Mamba do not.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (TWO,), RECALL) + expect("fails", (LSTM_1, MAMBA_1), RECALL, 100),
    ),
    Finding(
        name="hard attention",
        says="Trained hard attention looks up as softmax does.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (named_variant(TRANSFORMER, 1, "hard"),), LOOKUP),
    ),
    Finding(
        name="sigmoid attention",
        says="Trained sigmoid attention looks up as softmax does.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (named_variant(TRANSFORMER, 1, "sigmoid"),), LOOKUP),
    ),
    Finding(
        name="linear attention",
        says="Trained linear attention, which has a state of fixed size, looks up 20 symbols and not 100.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (named_variant(TRANSFORMER, 1, "linear"),), LOOKUP, 20)
        + expect("fails", (named_variant(TRANSFORMER, 1, "linear"),), LOOKUP, 100),
    ),
    Finding(
        name="natural text",
        says="A two-layer Transformer looks up a number in a phone book; the LSTM and Mamba do not.",
        source=HERE,
        asked_here=True,
        expects=expect("learns", (TWO,), BOOK) + expect("fails", (LSTM_1, MAMBA_1), BOOK),
    ),
]
SEPARATIONS = Separations(
    title="Where attention and recurrence part: Bhattamishra et al. 2024, repeated",
    main="lookup by attention",
    recurrent=(*STATES, named_variant(MAMBA, 1, WIDE)),
    attention=ONE,
    growing=(
        *((variant, LOOKUP) for variant in (ONE, LSTM_1, MAMBA_1)),
        *((variant, EQUAL) for variant in (ONE, TWO)),
        *((variant, DYCK) for variant in (BALANCED_ONE, BALANCED_TWO)),
    ),
    depths=((ONE, TWO), (BALANCED_ONE, BALANCED_TWO)),
    depth_tasks=(EQUAL, COPY, DYCK),
    questions=QUESTIONS,
)
