"""The claims, by name. A claim is one file's class and its line here."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from assay.description import BadInput, in_one_line, suggestion
from assay.registry import Entry, Registry

if TYPE_CHECKING:
    from assay.theory.claim import Claim

SEPARATIONS, IRIE, OWN = "Bhattamishra 2024", "Irie 2023", "own"

CLAIMS = Registry(
    "claim",
    "assay.theory",
    {
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
        "thresholds-disjointness": Entry(
            "constructions.thresholds:DisjointnessTwoLayers",
            "disjointness as a threshold, two layers, two heads",
            f"{SEPARATIONS}, T13",
        ),
        "k-dnf": Entry("constructions.thresholds:KDnf", "a k-DNF by two layers with k heads", f"{SEPARATIONS}, T13"),
        "k-cnf": Entry("constructions.thresholds:KCnf", "a k-CNF by two layers with k heads", f"{SEPARATIONS}, T13"),
        "neighbour-published": Entry(
            "constructions.neighbour:PublishedNeighbour",
            "nearest neighbour by two layers, as published",
            f"{SEPARATIONS}, T7",
        ),
        "neighbour-repaired": Entry(
            "constructions.neighbour:RepairedNeighbour", "nearest neighbour, a width that no margin moves", OWN
        ),
        "recall": Entry("constructions.recall:PairRecall", "associative recall of N pairs by two layers", OWN),
        "recall-many": Entry("constructions.recall:MultiQuery", "every bound key among N tokens, by two layers", OWN),
        "dyck-rnn": Entry("constructions.dyck:DyckRnn", "bounded Dyck by a relu network with a stack of bits", OWN),
        "dyck-two-layers": Entry("constructions.dyck:DyckTwoLayers", "Dyck-(2, 2) by two layers of width 12", OWN),
    },
)


def claim_named(name: str, **options: Any) -> Claim:
    """A claim by its name, or one's own as module:Class, with its options."""
    from assay.theory.claim import Claim

    kind = CLAIMS.load_class(name, Claim)
    known = inspect.signature(kind).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"{name} has no option '{option}'{suggestion(option, known)}")
    try:
        claim: Claim = kind(**options)
    except (TypeError, RuntimeError) as error:
        said = ", ".join(f"{option} = {value!r}" for option, value in options.items())
        raise BadInput(f"{name} cannot have {said}: {in_one_line(error)}") from None
    claim.name = name
    return claim
