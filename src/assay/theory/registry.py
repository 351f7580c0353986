"""The claims, by name. A new claim is a class and a line here."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, in_one_line, suggestion
from assay.registry import Entry, Registry

if TYPE_CHECKING:
    from assay.theory.claim import Claim

SEPARATIONS, IRIE, OWN = "Bhattamishra 2024", "Irie 2023", "own"

CLAIMS = Registry(
    "claim",
    "assay.theory",
    {
        "lookup-random": Entry(
            "constructions.index_lookup:RandomLookup", "index lookup by one layer, random signs", f"{SEPARATIONS}, T1"
        ),
        "lookup-trace": Entry(
            "constructions.index_lookup:TraceLookup", "index lookup by one layer, trace codes", f"{SEPARATIONS}, T1"
        ),
        "lookup-binary": Entry(
            "constructions.index_lookup:BinaryLookup", "index lookup by one layer, binary positions", OWN
        ),
        "lookup-quadratic": Entry(
            "constructions.index_lookup:QuadraticLookup", "index lookup by one layer, logits 2pj - j^2", OWN
        ),
        "equality-two-layers": Entry(
            "constructions.equality:EqualityTwoLayers", "equality and inequality by two layers", f"{SEPARATIONS}, T6"
        ),
        "equality-one-layer": Entry(
            "constructions.equality:EqualityOneLayer", "equality by one layer of width N / 2b + 4", OWN
        ),
        "thresholds-disjointness": Entry(
            "constructions.thresholds:DisjointnessTwoLayers",
            "disjointness as a threshold, two layers, two heads",
            f"{SEPARATIONS}, T13",
        ),
        "k-dnf": Entry(
            "constructions.thresholds:KDnf", "at least b terms of a k-DNF by two layers", f"{SEPARATIONS}, T13"
        ),
        "k-cnf": Entry(
            "constructions.thresholds:KCnf", "at least b clauses of a k-CNF by two layers", f"{SEPARATIONS}, T13"
        ),
        "neighbour-published": Entry(
            "constructions.neighbour:PublishedNeighbour",
            "nearest neighbour by two layers, as published",
            f"{SEPARATIONS}, T7",
        ),
        "neighbour-repaired": Entry(
            "constructions.neighbour:RepairedNeighbour", "nearest neighbour, its width independent of the margin", OWN
        ),
        "recall-pairs": Entry("constructions.recall:PairRecall", "associative recall of N pairs by two layers", OWN),
        "recall-many": Entry("constructions.recall:MultiQuery", "multi-query recall among N tokens by two layers", OWN),
        "dyck-rnn": Entry("constructions.dyck:DyckRnn", "bounded Dyck by a relu network with a stack of bits", OWN),
        "dyck-two-layers": Entry("constructions.dyck:DyckTwoLayers", "Dyck-(2, 2) by two layers of width 12", OWN),
        "parity-delta-net": Entry(
            "constructions.parity:DeltaNetParity", "parity at every length: beta = 2 reflects", OWN
        ),
        "parity-lstm": Entry("constructions.parity:LstmParity", "parity at every length by one LSTM unit", OWN),
        "parity-recurrent-delta": Entry(
            "constructions.parity:RecurrentDeltaParity", "parity at every length by one head of size 1", OWN
        ),
        "parity-srwm": Entry("constructions.parity:SrwmParity", "parity at every length by an SRWM with 7 rows", OWN),
        "parity-elman": Entry("constructions.parity:ElmanParity", "parity at every length by two relu units", OWN),
        "counter-an-bn": Entry(
            "constructions.counters:AnBnCounter", "a^n b^n by linear attention, up to 2^22", f"after {IRIE}"
        ),
        "counter-an-bn-cn": Entry(
            "constructions.counters:AnBnCnCounter", "a^n b^n c^n by linear attention, up to 2^22", f"after {IRIE}"
        ),
        "counter-shuffle": Entry(
            "constructions.counters:ShuffleCounter", "Shuffle-k by linear attention, up to 2^22", f"after {IRIE}"
        ),
        "counter-dyck-1": Entry(
            "constructions.counters:Dyck1Counter", "Dyck-1 by linear attention, up to 2^22", f"after {IRIE}"
        ),
        "reset-dyck-delta": Entry(
            "constructions.fast_weights:ResetDyck",
            "Reset Dyck-1 by the delta rule, N ~ 1 / sqrt(beta)",
            f"after {IRIE}",
        ),
        "reset-dyck-rounded": Entry(
            "constructions.fast_weights:RoundedResetDyck", "Reset Dyck-1 up to 2^22: rounding repairs the decay", OWN
        ),
        "linear-transformer-rnn": Entry(
            "constructions.fast_weights:LinearTransformerIsRnn", "linear attention equals its recurrent form", IRIE
        ),
        "dfa-rnn": Entry("constructions.automata:DfaRnn", "any automaton by a relu network of |Q||S| units", OWN),
        "dfa-srwm": Entry("constructions.automata:DfaSrwm", "any automaton by one SRWM, |Q||S| + |S| + 1 rows", OWN),
        "reflections-s5": Entry(
            "constructions.groups:Reflections", "S_5 (or any group) by products of reflections", OWN
        ),
        "reflections-a5": Entry("constructions.groups:A5Reflections", "A_5 by products of reflections", OWN),
        "reflections-s3": Entry("constructions.groups:S3Reflections", "S_3 by products of reflections", OWN),
        "reflections-cyclic": Entry(
            "constructions.groups:CyclicReflections", "Z_n by reflections, via Cayley's theorem", OWN
        ),
        "rnn-protocol": Entry(
            "bounds.memories:RecurrentProtocol",
            "a recurrent machine's state is a one-way message",
            f"{SEPARATIONS}, T2",
        ),
        "lookup-bits": Entry(
            "bounds.claims:LookupBits", "bits that a recurrent machine needs for index lookup", f"{SEPARATIONS}, T3"
        ),
        "lookup-accuracy": Entry("bounds.memories:LookupAccuracy", "the best accuracy with too few bits (Fano)", OWN),
        "recall-bits": Entry(
            "bounds.claims:RecallBits", "bits that a recurrent machine needs for recall", f"{SEPARATIONS}, P9"
        ),
        "mqar-bits": Entry(
            "bounds.claims:MqarBits", "bits that a recurrent machine needs for multi-query recall", f"{SEPARATIONS}, T8"
        ),
        "neighbour-bits": Entry(
            "bounds.claims:NeighbourBits",
            "bits that a recurrent machine needs for nearest neighbour",
            f"{SEPARATIONS}, T8",
        ),
        "equality-bits": Entry(
            "bounds.claims:EqualityBits", "bits that a recurrent machine needs for equality", f"{SEPARATIONS}, T11"
        ),
        "equality-layer": Entry(
            "bounds.claims:EqualityLayer", "bits that one layer must pass on for equality", f"{SEPARATIONS}, T12"
        ),
        "disjointness-layer": Entry(
            "bounds.claims:DisjointnessLayer", "bits that one layer must pass on for disjointness", f"{SEPARATIONS}, T4"
        ),
        "dyck-layer": Entry(
            "bounds.claims:DyckLayer", "bits that one layer must pass on for Dyck-(2,2)", f"{SEPARATIONS}, T5"
        ),
        "dyck-bits": Entry(
            "bounds.memories:DyckBits", "Dyck-(2,2) takes 3 bits, and 3 are enough", f"{SEPARATIONS}, L4"
        ),
        "automaton-bits": Entry(
            "bounds.memories:AutomatonBits",
            "bits that a recurrent machine needs for an automaton",
            f"{SEPARATIONS}, L4",
        ),
        "linear-not-softmax": Entry(
            "separations:LinearNotSoftmax", "a count at every length: by a sum, not by a mean", f"after {IRIE}"
        ),
        "softmax-not-linear": Entry(
            "separations:SoftmaxNotLinear", "index lookup: by a cache, not by a state of its size", f"after {IRIE}"
        ),
    },
)


# What each option of these claims means, in one line for `assay show`; it means the same in every claim.
OPTIONS = {
    "alphabet": "how many symbols the string has",
    "formula": "the formula, as '(x1 & ~x2) | x3'; by default a random one",
    "at_least": "the threshold: how many clauses must be true; by default all thresholds",
    "margin": "by how much the nearest point is nearer than every other one",
    "dimension": "numbers of a point",
    "positions": "vectors of positions: narrowest or nearly-orthogonal",
    "vocabulary": "number of symbols; half are keys, half values",
    "k": "bracket types",
    "depth": "the largest depth of a word",
    "task": """a task with an automaton, by name or as {"kind": name, option: value, ...}; by default a random one""",
    "group": """the group, by name or as {"kind": name, option: value, ...}""",
}


def load_claim_class(name: str) -> type[Claim]:
    """The class of a claim, by its name in the registry or as module:Class."""
    from assay.theory.claim import Claim

    claim_class: type[Claim] = CLAIMS.load_class(name, Claim)
    return claim_class


def named_claim(name: str, **options: Any) -> Claim:
    """A claim with its options, by its name in the registry or as module:Class."""
    claim_class = load_claim_class(name)
    known = inspect.signature(claim_class).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"{name} has no option '{option}'{suggestion(option, known)}")
    try:
        claim = claim_class(**options)
    except BadInput:
        raise
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        values = ", ".join(f"{option} = {value!r}" for option, value in options.items())
        raise BadInput(f"{name} cannot have {values}: {in_one_line(error)}") from None
    claim.name = name
    return claim
