"""What theory says about each class of models on a regular task, from the task's algebra, with sources.

Each line says no more than its source proves, and under which assumptions. "open" means that these sources do not
decide it. All lines are about the right answer to every string, with its dead prefixes too, and none is about what
training finds: a task may be easier on the strings that training shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from assay.tasks.algebra import Algebra, algebra_of
from assay.tasks.task import Task

Answer = Literal["yes", "no", "not unless TC0 = NC1", "open"]
FINITE = "finite precision, any length, some number of layers"
LOG = "precision that grows like log(length), any fixed number of layers"
CAUSAL = "attention to strictly earlier positions, any number of layers, any length"

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


class Statement(NamedTuple):
    """Whether a class of models can compute a task, why, and what the proof assumes."""

    answer: Answer
    reason: str
    assumes: str = ""
    source: str = ""


class Prediction(NamedTuple):
    """A statement about a class of models; `column` names the class in a few words."""

    column: str
    models: str
    answer: Answer
    reason: str
    assumes: str
    source: str

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return self._asdict()


def predictions(algebra: Algebra) -> list[Prediction]:
    """One prediction for each class of models."""
    return [Prediction(column, models, *state(algebra)) for column, (models, state) in CLASSES.items()]


def predictions_for(tasks: Iterable[Task]) -> dict[str, dict[str, Prediction]]:
    """The predictions by kind of task and class of models, of the tasks that have a finite automaton."""
    algebras = {task.kind: algebra_of(task) for task in tasks}
    return {
        kind: {prediction.column: prediction for prediction in predictions(algebra)}
        for kind, algebra in algebras.items()
        if algebra
    }


# -- recurrences that are linear in the state ----------------------------------------------------------------------


def _diagonal_positive(algebra: Algebra) -> Statement:
    reason = "aperiodic, so star-free" if algebra.aperiodic else "not aperiodic, so not star-free"
    reason = f"{reason}; these models recognise the star-free languages and no other regular ones"
    return Statement("yes" if algebra.aperiodic else "no", reason, FINITE, SARROF)


def _diagonal_real(algebra: Algebra) -> Statement:
    symbol, period = max(algebra.periods.items(), key=lambda item: odd_part(item[1]))
    if algebra.aperiodic:
        return Statement("yes", "aperiodic, for which eigenvalues in [0, 1] are enough", FINITE, SARROF)
    if odd_part(period) > 1:
        reason = f"the symbol {symbol} alone counts modulo {period}, no power of 2: some eigenvalue must not be real"
        return Statement("no", reason, FINITE, GRAZZI)
    if not algebra.solvable:
        return _in_tc0(MERRILL)
    if _are_parities(algebra):
        return Statement("yes", "parities of symbols, each with an eigenvalue of -1", FINITE, SARROF)
    return Statement("open", "neither aperiodic nor parities, and no symbol counts beyond powers of 2")


def _diagonal_complex(algebra: Algebra) -> Statement:
    if algebra.aperiodic:
        return Statement("yes", "aperiodic, for which eigenvalues in [0, 1] are enough", FINITE, SARROF)
    if algebra.group:
        steps = algebra.groups[-1].steps
        assumes = "finite precision; proved for inputs that are all elements of the group"
        if steps is None:
            return Statement("no", "a group that is not solvable: no number of layers is enough", assumes, SHAKERINAVA)
        layers = "one layer is enough" if steps == 1 else f"{steps} layers are enough, and fewer are not"
        reason = f"a group with a shortest series of {steps} Abelian {'step' if steps == 1 else 'steps'}: {layers}"
        return Statement("yes", reason, assumes, SHAKERINAVA)
    if not algebra.solvable:
        return _in_tc0(MERRILL)
    return Statement("open", "neither aperiodic nor a group")


def _one_step(algebra: Algebra) -> Statement:
    even = [symbol for symbol, period in algebra.periods.items() if period % 2 == 0]
    if even:
        reason = f"the symbol {even[0]} alone asks for parity, which needs an eigenvalue that is not positive"
        return Statement("no", reason, FINITE, GRAZZI)
    return Statement("open", "no symbol alone asks for parity")


def _one_signed_step(algebra: Algebra) -> Statement:
    if _are_parities(algebra):
        return Statement("yes", "parities of symbols, each with one reflection", FINITE, GRAZZI)
    if algebra.group and algebra.groups and algebra.groups[-1].dihedral:
        reason = f"the dihedral group D_{algebra.elements // 2}: two layers are enough"
        return Statement("yes", reason, "finite precision", SIEMS)
    if algebra.group and algebra.groups and algebra.groups[-1].cyclic:
        reason = f"the rotations of the dihedral group D_{algebra.elements}: two layers are enough"
        return Statement("yes", reason, "finite precision", SIEMS)
    return Statement("open", "neither parities nor a dihedral or cyclic group")


def _several_steps(algebra: Algebra) -> Statement:
    reason = "products of generalised Householder matrices with eigenvalues in [-1, 1] give every regular language"
    return Statement("yes", reason, f"{FINITE}, enough steps per token", GRAZZI)


def _rwkv7(algebra: Algebra) -> Statement:
    # On equal tokens an eigenvalue between -1 and 0 dies out, and then even parity is impossible.
    assumes = "a fixed number of layers; eigenvalues down to -1, while the published decay and removal end at -0.455"
    return Statement("yes", "such models recognise every regular language", assumes, PENG)


def _permutation_diagonal(algebra: Algebra) -> Statement:
    reason = f"one layer of dimension {algebra.states}, the number of states, follows the automaton"
    return Statement("yes", reason, "a linear read-out of all states", TERZIC)


# -- other models --------------------------------------------------------------------------------------------------


def _non_linear(algebra: Algebra) -> Statement:
    reason = "a network of threshold units follows any finite automaton"
    return Statement("yes", reason, "finite precision, saturated units", MINSKY)


def _softmax_fixed(algebra: Algebra) -> Statement:
    is_or_not = "is" if algebra.r_trivial else "is not"
    reason = f"the monoid {is_or_not} R-trivial; these models recognise exactly the languages with an R-trivial monoid"
    return Statement("yes" if algebra.r_trivial else "no", reason, CAUSAL, LI)


def _hard_attention(algebra: Algebra) -> Statement:
    is_or_not = "is" if algebra.aperiodic else "is not"
    reason = f"the monoid {is_or_not} aperiodic; these models recognise exactly the star-free languages"
    return Statement("yes" if algebra.aperiodic else "no", reason, CAUSAL, YANG)


def _softmax_log(algebra: Algebra) -> Statement:
    if not algebra.solvable:
        return _in_tc0(PARALLELISM)
    reason = "every group in the monoid is solvable: the number of layers need not grow with the length"
    assumes = "weights may differ from length to length, and precision grows like log(length)"
    return Statement("yes", reason, assumes, LIU)


# -- parts ---------------------------------------------------------------------------------------------------------


def _are_parities(algebra: Algebra) -> bool:
    """Whether the monoid is a product of groups of two elements."""
    return algebra.group and algebra.commutative and max(algebra.periods.values()) <= 2


def _in_tc0(source: str) -> Statement:
    reason = "complete for NC1 (a group that is not solvable), and these models compute functions in TC0"
    return Statement("not unless TC0 = NC1", reason, LOG, source)


def odd_part(number: int) -> int:
    """A whole number without its factors of 2.

    >>> odd_part(12)
    3
    """
    return number // (number & -number)


CLASSES: dict[str, tuple[str, Callable[[Algebra], Statement]]] = {
    "diagonal [0, 1]": (
        "diagonal, input-dependent, eigenvalues in [0, 1] (Mamba, GLA, HGRN-2)",
        _diagonal_positive,
    ),
    "diagonal [-1, 1]": ("diagonal, input-dependent, eigenvalues in [-1, 1]", _diagonal_real),
    "diagonal, complex": ("diagonal, input-dependent, complex eigenvalues", _diagonal_complex),
    "one step": ("one delta step per token, beta in (0, 1) (DeltaNet, Gated DeltaNet, KDA)", _one_step),
    "one signed step": ("one delta step per token, beta in (0, 2) (signed DeltaNet)", _one_signed_step),
    "several signed steps": (
        "several delta steps per token, beta in (0, 2) (DeltaProduct)",
        _several_steps,
    ),
    "RWKV-7": ("diagonal plus low rank, with keys of their own for removal (RWKV-7, to eigenvalues of -1)", _rwkv7),
    "PD-SSM": ("permutation times diagonal (PD-SSM)", _permutation_diagonal),
    "Elman": ("non-linear recurrence (Elman network)", _non_linear),
    "softmax, fixed precision": ("softmax Transformer, fixed precision, no positions", _softmax_fixed),
    "hard attention": ("Transformer with unique hard attention, no positions", _hard_attention),
    "softmax, fixed depth": ("softmax Transformer, a fixed number of layers", _softmax_log),
}
