"""The claims, by name. A claim is one file's class and its line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    },
)


def claim_named(name: str) -> Claim:
    """A claim by its name, or one's own as module:Class."""
    from assay.theory.claim import Claim

    claim: Claim = CLAIMS.load_class(name, Claim)()
    claim.name = name
    return claim
