"""The result of one method on one network, and the sentence that says it."""

from __future__ import annotations

from dataclasses import dataclass

from assay.record import Certified, Outcome
from assay.tasks.words import readable


@dataclass(frozen=True)
class Result:
    """What one method found. Every word up to `length` is right; a proof has no such bound."""

    method: str
    outcome: Outcome
    numbers: str
    detail: str
    length: int | None = None
    states: int | None = None
    pairs_digest: str = ""  # the SHA-256 of the pairs of a proof
    word: tuple[int, ...] = ()  # a wrong word, if refuted
    carried: bool = True  # whether the model has a state of fixed size, which the checker needs
    seconds: float = 0.0

    @property
    def has_certificate(self) -> bool:
        return self.carried and self.outcome in ("proved", "refuted")

    @property
    def rounded(self) -> bool:
        return self.numbers != "float32"

    def certified(self, symbols: tuple[str, ...], certificate: str = "") -> Certified:
        """This result as a field of a record."""
        return Certified(
            method=self.method,
            outcome=self.outcome,
            numbers=self.numbers,
            length=self.length,
            states=self.states,
            word=readable(self.word, symbols),
            detail=self.detail,
            certificate=certificate,
        )
