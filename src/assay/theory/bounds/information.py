"""The bits that a recurrent machine must carry, in closed form, and the best accuracy with fewer.

The state after a prefix must distinguish all prefixes that some suffix tells apart (Theorem 2). Lengths are the N of
the source: symbols of a string, pairs to recall, or tokens; `Need` gives the number of tokens.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import NamedTuple

from assay.errors import BadInput
from assay.tasks.automaton import RegularTask
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.counter import EqualCounts
from assay.tasks.dyck import Dyck1, ResetDyck1, Shuffle
from assay.tasks.equality import Disjointness, Equality, EqualityNcp, EqualityOne
from assay.tasks.groups import WordProblem
from assay.tasks.index_lookup import IndexLookup
from assay.tasks.neighbour import NearestNeighbour
from assay.tasks.recall import Bindings, MultiQueryRecall, Recall
from assay.tasks.regular import FlipFlop, ModularArithmetic
from assay.tasks.task import Task
from assay.theory.bounds.residuals import automaton, told_apart

ANY_STRING = "any string over the symbols"
SOME_CUTS = 250


def bits_for(states: int) -> int:
    """The least number of bits that distinguish this many states.

    >>> bits_for(1), bits_for(8), bits_for(9)
    (0, 3, 4)
    """
    return (states - 1).bit_length()


def bits_of_power(base: int, exponent: int) -> int:
    """ceil(exponent * log2(base)), exactly.

    >>> bits_of_power(64, 400), bits_of_power(3, 4)
    (2400, 7)
    """
    whole = base.bit_length() - 1
    return exponent * whole if base == 1 << whole else bits_for(base**exponent)


class Need(NamedTuple):
    """The bits that every recurrent machine must carry at some time, even if its updates depend on the time."""

    bits: int
    cut: int  # tokens read until then
    tokens: int  # of the whole input
    inputs: str  # the inputs that the bound uses
    source: str
    invariant: int = 0  # the bits if updates do not depend on the time and shorter inputs count too (Lemma 4)


@singledispatch
def one_way(task: Task, length: int) -> Need | None:
    """The bits that a recurrent machine needs for inputs of length N; None if no closed form is known."""
    return None


# -- tasks that ask for a part of the input ------------------------------------------------------------------------


@one_way.register
def _(task: IndexLookup, length: int) -> Need:
    """Some index tells any two strings apart."""
    return Need(bits_of_power(task.alphabet, length), length, length + 1, "N symbols, then an index", "Theorem 3")


@one_way.register
def _(task: Equality | EqualityNcp | Disjointness, length: int) -> Need:
    """Some second half tells any two first halves apart."""
    n = length // 2
    inputs = "two strings of N/2 symbols, # between them"
    return Need(bits_of_power(task.alphabet, n), n, 2 * n + 1, inputs, f"Theorem 11{_as_drawn(task)}")


def _as_drawn(task: Task) -> str:
    """A remark if the inputs that the task draws need fewer bits."""
    if not isinstance(task, EqualityOne):
        return ""
    return f"; as drawn, with one symbol changed, a checksum of {bits_for(task.alphabet)} bits does"


@one_way.register
def _(task: Recall, length: int) -> Need:
    if length >= task.keys:
        raise BadInput(
            f"recall of {length} pairs needs more keys than that; a vocabulary of {2 * (length + 1)} has them"
        )
    return _assigned(task, length, 2 * length + 1, "N keys bound, then one of them")


@one_way.register
def _(task: MultiQueryRecall, length: int) -> Need:
    pairs = task.pairs_bound
    if length < 4 * pairs:
        raise BadInput(f"{task.kind} with {pairs} pairs has no length {length}: at least {4 * pairs}")
    return _assigned(task, pairs, length, f"{pairs} keys bound, then each of them")


def _assigned(task: Bindings, pairs: int, tokens: int, inputs: str) -> Need:
    """Some key tells any two assignments of values apart."""
    return Need(bits_of_power(task.keys, pairs), 2 * pairs, tokens, inputs, "Proposition 9")


@one_way.register
def _(task: NearestNeighbour, length: int) -> Need:
    """Some point tells any two labellings apart."""
    n = length // 2
    inputs = "N/2 points with their labels, each the margin away from the others, then one of them"
    return Need(n, 2 * n, 2 * n + 1, inputs, "Theorem 8")


# -- tasks that track a state --------------------------------------------------------------------------------------


@one_way.register
def _(task: EqualCounts | Dyck1 | Shuffle | ResetDyck1, length: int) -> Need:
    return _following(task, length)


@one_way.register
def _(task: RegularTask | WordProblem | BoundedDyck | FlipFlop, length: int) -> Need:
    states, since = automaton(task).minimal
    return _following(task, length)._replace(invariant=bits_for(states) if length >= since else 0)


@one_way.register
def _(task: ModularArithmetic, length: int) -> Need | None:
    """An operator and a digit tell apart all pairs of the sum of the finished terms and the current term."""
    return Need(bits_for(task.n**2), 3, length, "digits and operators in turn", "Theorem 2") if length >= 5 else None


def _following(task: Task, length: int) -> Need:
    states, cut = max(((told_apart(task, t, length - t), -t) for t in _cuts(length)), default=(1, 0))
    return Need(bits_for(states), -cut, length, ANY_STRING, "Theorem 2")


def _cuts(length: int) -> list[int]:
    """All cuts, or some cuts of a long input: a bound at any cut is a bound."""
    spread = (length * i // SOME_CUTS for i in range(SOME_CUTS))
    return sorted({*range(1, length)[:SOME_CUTS], *range(1, length)[-SOME_CUTS:], *spread} - {0})


# -- two-way communication -----------------------------------------------------------------------------------------


class Split(NamedTuple):
    """The bits that two parties must exchange if each holds a part of the tokens; one layer must pass on as many."""

    bits: int
    tokens: int
    parts: str  # the partition of the tokens
    source: str


@singledispatch
def two_way(task: Task, length: int) -> Split | None:
    """The bits that two parties must exchange on inputs of length N; None if no large bound is known."""
    return None


@two_way.register
def _(task: Equality | Disjointness, length: int) -> Split:
    n = length // 2
    source = f"Theorem 12{_as_drawn(task)}"
    return Split(bits_of_power(task.alphabet, n), 2 * n + 1, "first and second half", source)


@two_way.register
def _(task: BoundedDyck, length: int) -> Split | None:
    """At depth 2 the bound uses every word; deeper, only words of depth 1: a bracket opens and closes at once."""
    k, pairs = task.k, length // 2
    words = k * (2 * k) ** (pairs - 1) if task.depth == 2 else k**pairs
    odd = length % 2 == 1  # no word has an odd length
    return None if odd or words == 1 else Split(bits_for(words), length, "odd and even positions", "Theorem 5")


class OneLayer(NamedTuple):
    """The least size of one layer of attention that passes on this many bits."""

    paper: int  # m H, from the 3 m (p + log2 N) H bits of Theorem 4
    lean: int  # the width d = m H, from the d p + H (2 m p + 4 p + 2 log2 N) bits of the lean protocol


def one_layer(bits: int, tokens: int, precision: int = 32, heads: int = 1) -> OneLayer:
    """
    >>> [one_layer(N - 1, N, precision=16).paper for N in (400, 10_000, 1_000_000)]
    [6, 114, 9277]
    """
    p, log_n = precision, math.log2(tokens)
    lean = max(0, math.ceil((bits - heads * (4 * p + 2 * log_n)) / (3 * p)))
    return OneLayer(math.ceil(bits / (3 * (p + log_n))), lean)


# -- fewer bits than needed ----------------------------------------------------------------------------------------


def bits_at_error(length: int, alphabet: int, error: float) -> float:
    """The bits that index lookup needs if this share of the answers may be wrong, over uniform inputs (Fano).

    N (log2 |S| - h2(error) - error log2(|S| - 1)): the information about each symbol adds up to the bits of the state.
    """
    if error <= 0:
        return length * math.log2(alphabet)
    doubt = -error * math.log2(error) - (1 - error) * math.log2(1 - error)
    return length * (math.log2(alphabet) - doubt - error * math.log2(alphabet - 1))


def best_accuracy(length: int, alphabet: int, bits: float) -> float:
    """The largest share of right answers in uniform index lookup with a memory of this many bits.

    >>> [round(best_accuracy(400, 64, bits), 3) for bits in (100, 500, 1000, 2000, 2400)]
    [0.132, 0.364, 0.579, 0.907, 1.0]
    """
    low, high = 0.0, 1 - 1 / alphabet  # the bits fall with the error, to none when guessing
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if bits_at_error(length, alphabet, middle) <= bits else (middle, high)
    return 1 - low
