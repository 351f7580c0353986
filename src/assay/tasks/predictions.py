"""What theory says about each class of models on a regular task, from the task's algebra, with sources.

Each line says no more than its source proves, and under which assumptions. "open" means that these sources do not
decide it. All lines are about the right answer to every string, with its dead prefixes too, and none is about what
training finds: a task may be easier on the strings that training shows.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from assay.tasks.algebra import Algebra

Answer = Literal["yes", "no", "not unless TC0 = NC1", "open"]
FINITE = "finite precision, any length, some number of layers"
LOG = "precision that grows like log(length), any fixed number of layers"

SARROF = "Sarrof et al. 2024, arXiv 2405.17394"
GRAZZI = "Grazzi et al. 2025, arXiv 2411.12537"
MERRILL = "Merrill et al. 2024, arXiv 2404.08819"
SHAKERINAVA = "Shakerinava et al. 2026, arXiv 2603.01959"
SIEMS = "Siems et al. 2025, arXiv 2502.10297"
PENG = "Peng et al. 2025, arXiv 2503.14456"
TERZIC = "Terzić et al. 2025, arXiv 2509.22284"
LI = "Li and Cotterell 2025, arXiv 2505.23623"
YANG = "Yang et al. 2024, arXiv 2310.13897"
LIU = "Liu et al. 2023, arXiv 2210.10749"
PARALLELISM = "Merrill and Sabharwal 2023, arXiv 2207.00729"
MINSKY = "Minsky 1967, Computation: Finite and Infinite Machines"


class Prediction(NamedTuple):
    """Whether a class of models can compute the task, why, and what the proof assumes."""

    models: str
    answer: Answer
    reason: str
    assumes: str = ""
    source: str = ""

    def plain(self) -> dict[str, Any]:
        return self._asdict()


def predictions(algebra: Algebra) -> list[Prediction]:
    """One line for each class of models."""
    return [
        _diagonal_positive(algebra),
        _diagonal_real(algebra),
        _diagonal_complex(algebra),
        _one_step(algebra),
        _one_signed_step(algebra),
        Prediction(
            "several delta steps per token, beta in (0, 2) (DeltaProduct)",
            "yes",
            "products of generalised Householder matrices with eigenvalues in [-1, 1] give every regular language",
            FINITE + ", enough steps per token",
            GRAZZI,
        ),
        Prediction(
            "diagonal plus low rank with decoupled removal and write (RWKV-7)",
            "yes",
            "such models recognise every regular language",
            "a fixed number of layers",
            PENG,
        ),
        Prediction(
            "permutation times diagonal (PD-SSM)",
            "yes",
            f"one layer of dimension {algebra.states}, the number of states, follows the automaton",
            "a linear read-out of all states",
            TERZIC,
        ),
        Prediction(
            "non-linear recurrence (Elman network)",
            "yes",
            "a network of threshold units follows any finite automaton",
            "finite precision, saturated units",
            MINSKY,
        ),
        _softmax_fixed(algebra),
        _hard_attention(algebra),
        _softmax_log(algebra),
    ]


def _diagonal_positive(algebra: Algebra) -> Prediction:
    reason = "aperiodic, so star-free" if algebra.aperiodic else "not aperiodic, so not star-free"
    return Prediction(
        "diagonal, input-dependent, eigenvalues in [0, 1] (Mamba, GLA, HGRN-2)",
        "yes" if algebra.aperiodic else "no",
        f"{reason}; these models recognise the star-free languages and no other regular ones",
        FINITE,
        SARROF,
    )


def _diagonal_real(algebra: Algebra) -> Prediction:
    models = "diagonal, input-dependent, eigenvalues in [-1, 1]"
    symbol, period = max(algebra.periods.items(), key=lambda item: odd_part(item[1]))
    if algebra.aperiodic:
        return Prediction(models, "yes", "aperiodic, for which eigenvalues in [0, 1] are enough", FINITE, SARROF)
    if odd_part(period) > 1:
        reason = f"the symbol {symbol} alone counts modulo {period}, no power of 2: some eigenvalue must not be real"
        return Prediction(models, "no", reason, FINITE, GRAZZI)
    if not algebra.solvable:
        return _in_tc0(models, MERRILL)
    if algebra.group and algebra.elements == 2 and 2 in algebra.periods.values():
        return Prediction(models, "yes", "parity, with an eigenvalue of -1", FINITE, SARROF)
    return Prediction(models, "open", "neither aperiodic nor parity, and no symbol counts beyond powers of 2")


def _diagonal_complex(algebra: Algebra) -> Prediction:
    models = "diagonal, input-dependent, complex eigenvalues"
    if algebra.aperiodic:
        return Prediction(models, "yes", "aperiodic, for which eigenvalues in [0, 1] are enough", FINITE, SARROF)
    if algebra.group:
        steps, assumes = (
            algebra.groups[-1].steps,
            "finite precision; proved for inputs that are all elements of the group",
        )
        if steps is None:
            reason = "a group that is not solvable: no number of layers is enough"
            return Prediction(models, "no", reason, assumes, SHAKERINAVA)
        layers = "one layer is enough" if steps == 1 else f"{steps} layers are enough, and fewer are not"
        reason = f"a group with a shortest series of {steps} Abelian {'step' if steps == 1 else 'steps'}: {layers}"
        return Prediction(models, "yes", reason, assumes, SHAKERINAVA)
    if not algebra.solvable:
        return _in_tc0(models, MERRILL)
    return Prediction(models, "open", "neither aperiodic nor a group")


def _one_step(algebra: Algebra) -> Prediction:
    models = "one delta step per token, beta in (0, 1) (DeltaNet, Gated DeltaNet, KDA)"
    even = [symbol for symbol, period in algebra.periods.items() if period % 2 == 0]
    if even:
        reason = f"the symbol {even[0]} alone asks for parity, which needs an eigenvalue that is not positive"
        return Prediction(models, "no", reason, FINITE, GRAZZI)
    return Prediction(models, "open", "no symbol alone asks for parity")


def _one_signed_step(algebra: Algebra) -> Prediction:
    models = "one delta step per token, beta in (0, 2) (signed DeltaNet)"
    if algebra.group and algebra.elements == 2:
        return Prediction(models, "yes", "parity, with one reflection", FINITE, GRAZZI)
    if algebra.group and algebra.groups[-1].dihedral:
        reason = f"the dihedral group D_{algebra.elements // 2}: two layers are enough"
        return Prediction(models, "yes", reason, "finite precision", SIEMS)
    return Prediction(models, "open", "neither parity nor a dihedral group")


def _softmax_fixed(algebra: Algebra) -> Prediction:
    is_or_not = "is" if algebra.r_trivial else "is not"
    return Prediction(
        "softmax Transformer, fixed precision, no positions",
        "yes" if algebra.r_trivial else "no",
        f"the monoid {is_or_not} R-trivial; these models recognise exactly the languages with an R-trivial monoid",
        "attention to earlier positions only, any number of layers, any length",
        LI,
    )


def _hard_attention(algebra: Algebra) -> Prediction:
    is_or_not = "is" if algebra.aperiodic else "is not"
    return Prediction(
        "Transformer with unique hard attention, no positions",
        "yes" if algebra.aperiodic else "no",
        f"the monoid {is_or_not} aperiodic; these models recognise exactly the star-free languages",
        "attention to earlier positions only, any number of layers, any length",
        YANG,
    )


def _softmax_log(algebra: Algebra) -> Prediction:
    models = "softmax Transformer, a fixed number of layers"
    if not algebra.solvable:
        return _in_tc0(models, PARALLELISM)
    reason = "every group in the monoid is solvable: the number of layers need not grow with the length"
    assumes = "weights may differ from length to length, and precision grows like log(length)"
    return Prediction(models, "yes", reason, assumes, LIU)


def _in_tc0(models: str, source: str) -> Prediction:
    reason = "complete for NC1 (a group that is not solvable), and these models compute functions in TC0"
    return Prediction(models, "not unless TC0 = NC1", reason, LOG, source)


def odd_part(number: int) -> int:
    """A whole number without its factors of 2.

    >>> odd_part(12)
    3
    """
    return number // (number & -number)
