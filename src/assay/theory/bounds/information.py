"""How many bits a recurrent machine must carry, in closed form, and how well it can do with fewer.

What a machine carries after a prefix must tell all prefixes apart that some suffix tells apart (Theorem 2). Lengths are
the N of the source: symbols of a string, pairs to recall, tokens elsewhere; `Need` says how many tokens that is.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import NamedTuple

from assay.description import BadInput
from assay.tasks.automaton import RegularTask
from assay.tasks.counter import EqualCounts
from assay.tasks.dyck import BoundedDyck, Dyck1, ResetDyck1, Shuffle
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
    """The least whole number of bits with so many states.

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
    """The bits that every recurrent machine must carry at some moment, even one whose updates depend on the time."""

    bits: int
    cut: int  # tokens read by then
    tokens: int  # of the whole input
    inputs: str  # which of them count
    source: str
    invariant: int = 0  # the bits where updates do not depend on the time and shorter inputs count too (Lemma 4)


@singledispatch
def one_way(task: Task, length: int) -> Need | None:
    """What a recurrent machine needs for inputs of length N; None where no closed form is known."""
    return None


# -- tasks that ask for what was said ------------------------------------------------------------------------------


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
    """What is drawn may take less than what may be asked."""
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


# -- tasks that follow a state -------------------------------------------------------------------------------------


@one_way.register
def _(task: EqualCounts | Dyck1 | Shuffle | ResetDyck1, length: int) -> Need:
    return _following(task, length)


@one_way.register
def _(task: RegularTask | WordProblem | BoundedDyck | FlipFlop, length: int) -> Need:
    states, since = automaton(task).minimal
    return _following(task, length)._replace(invariant=bits_for(states) if length >= since else 0)


@one_way.register
def _(task: ModularArithmetic, length: int) -> Need | None:
    """A digit and an operator more tell all sums of finished terms, and all current terms, apart."""
    return Need(bits_for(task.n**2), 3, length, "digits and operators in turn", "Theorem 2") if length >= 5 else None


def _following(task: Task, length: int) -> Need:
    states, cut = max(((told_apart(task, t, length - t), -t) for t in _cuts(length)), default=(1, 0))
    return Need(bits_for(states), -cut, length, ANY_STRING, "Theorem 2")


def _cuts(length: int) -> list[int]:
    """All of them; of a long input some: a bound at any cut is a bound."""
    spread = (length * i // SOME_CUTS for i in range(SOME_CUTS))
    return sorted({*range(1, length)[:SOME_CUTS], *range(1, length)[-SOME_CUTS:], *spread} - {0})


# -- two-way communication -----------------------------------------------------------------------------------------


class Split(NamedTuple):
    """The bits that two must exchange who hold the tokens of a partition: what one layer of attention must pass on."""

    bits: int
    tokens: int
    parts: str  # whose tokens are whose
    source: str


@singledispatch
def two_way(task: Task, length: int) -> Split | None:
    """What two parties must exchange on inputs of length N; None where no large bound is known."""
    return None


@two_way.register
def _(task: Equality | Disjointness, length: int) -> Split:
    n = length // 2
    source = f"Theorem 12{_as_drawn(task)}"
    return Split(bits_of_power(task.alphabet, n), 2 * n + 1, "first and second half", source)


@two_way.register
def _(task: BoundedDyck, length: int) -> Split | None:
    """At depth 2 every word counts. Deeper, those of depth 1 do: an opening bracket and its own closing one in turn."""
    k, pairs = task.k, length // 2
    words = k * (2 * k) ** (pairs - 1) if task.depth == 2 else k**pairs
    odd = length % 2 == 1  # then there is no word
    return None if odd or words == 1 else Split(bits_for(words), length, "odd and even positions", "Theorem 5")


class OneLayer(NamedTuple):
    """The least size of one layer of attention that passes some bits on."""

    paper: int  # m H with 3 m (p + log2 N) H bits, as Theorem 4 states it
    lean: int  # the width d = m H with d p + H (2 m p + 4 p + 2 log2 N) bits, which a protocol has that adds up


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
    """Fano: the bits that index lookup needs where a share of the answers may be wrong, over uniform inputs.

    N (log2 |S| - h2(error) - error log2(|S| - 1)): what is known of each symbol adds up to what is carried.
    """
    if error <= 0:
        return length * math.log2(alphabet)
    doubt = -error * math.log2(error) - (1 - error) * math.log2(1 - error)
    return length * (math.log2(alphabet) - doubt - error * math.log2(alphabet - 1))


def best_accuracy(length: int, alphabet: int, bits: float) -> float:
    """The share of right answers in uniform index lookup that no memory of so many bits surpasses.

    >>> [round(best_accuracy(400, 64, bits), 3) for bits in (100, 500, 1000, 2000, 2400)]
    [0.132, 0.364, 0.579, 0.907, 1.0]
    """
    low, high = 0.0, 1 - 1 / alphabet  # the bits fall with the error, to none at mere guessing
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if bits_at_error(length, alphabet, middle) <= bits else (middle, high)
    return 1 - low
