"""The tasks under test, each with its naive oracle, and what the tests share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import torch
from hypothesis import settings
from torch import Tensor

from assay.rng import Rng
from assay.tasks import TASKS, example_task, named_task
from assay.tasks.task import IGNORE, Task

from . import naive

torch.set_num_threads(1)
few_examples = settings(max_examples=12, deadline=None, derandomize=True)

Oracle = Callable[[naive.Word], naive.Answers]


@dataclass(frozen=True)
class Case:
    """A task, its naive oracle, and the answers with which a drawn string may end (None: any but dead)."""

    task: Task
    oracle: Oracle
    ends: frozenset[str] | None = None


def only_the_last(oracle: Oracle) -> Oracle:
    """The oracle of the same task with `questions` at the end."""
    return lambda word: [None] * (len(word) - 1) + oracle(word)[-1:]


def case(name: str, oracle: Oracle, ends: set[str] | None = None, **options: Any) -> Case:
    return Case(named_task(name, **options), oracle, frozenset(ends) if ends else None)


NO_BB = (
    "then",
    ("star", ("or", ("letter", "a"), ("then", ("letter", "b"), ("letter", "a")))),
    ("maybe", ("letter", "b")),
)
# Three states, one of them a trap: an odd number of x, and never a y behind an even number of them.
ODD_X: dict[str, Any] = {"alphabet": "xy", "table": ((1, 2), (0, 1), (2, 2)), "accept": (1,)}
QUATERNIONS = tuple(  # ±1, ±i, ±j, ±k as 2 * axis + (1 where negative)
    tuple(
        2 * (a // 2 ^ b // 2)
        + ((a % 2 + b % 2 + ((a // 2, b // 2) in {(1, 1), (2, 2), (3, 3), (2, 1), (3, 2), (1, 3)})) % 2)
        for b in range(8)
    )
    for a in range(8)
)

AT_THE_END: dict[str, Oracle] = {
    "parity": naive.parity,
    "s3": naive.permutations,
    "modular-arithmetic": partial(naive.modular_arithmetic, n=5),
    "cycle-navigation": naive.cycle_navigation,
}
# A task that is in none of these lines is compared with the naive oracle of its name, with its default options.
CASES: dict[str, Case] = {
    "parity": case("parity", naive.parity, {"1"}),
    "even-a": case("even-a", naive.even_a, {"1"}),
    "abab": case("abab", naive.abab, {"1"}),
    "an-bn": case("an-bn", partial(naive.equal_counts, letters="ab"), {"T"}),
    "an-bn-cn": case("an-bn-cn", partial(naive.equal_counts, letters="abc"), {"T"}),
    "an-bn-cn-dn": case("an-bn-cn-dn", partial(naive.equal_counts, letters="abcd"), {"T"}),
    "shuffle": case("shuffle", partial(naive.shuffle, k=2), {"00"}),
    "shuffle k=1": case("shuffle", partial(naive.shuffle, k=1), {"0"}, k=1),
    "shuffle k=4": case("shuffle", partial(naive.shuffle, k=4), {"0000"}, k=4),
    "dyck-1": case("dyck-1", naive.dyck_1, {"0"}),
    "reset-dyck-1": case("reset-dyck-1", naive.reset_dyck_1, {"0"}),
    "reset-dyck-1 growing": case("reset-dyck-1", naive.reset_dyck_1, {"0"}, excursions="growing"),
    "bounded-dyck": case("bounded-dyck", partial(naive.bounded_dyck, depth=2)),
    "bounded-dyck count-balanced": case(
        "bounded-dyck", partial(naive.bounded_dyck, depth=2), negatives="count-balanced"
    ),
    "bounded-dyck k=1 depth=3": case("bounded-dyck", partial(naive.bounded_dyck, depth=3), k=1, depth=3),
    "bounded-dyck k=3 depth=1": case("bounded-dyck", partial(naive.bounded_dyck, depth=1), k=3, depth=1),
    "index-lookup": case("index-lookup", naive.index_lookup, alphabet=3, positions=12),
    "equality-random": case("equality-random", naive.equality),
    "equality-one": case("equality-one", naive.equality, alphabet=4),
    "equality-ncp": case("equality-ncp", naive.equality_ncp, alphabet=3),
    "recall": case("recall", naive.bindings, vocabulary=52),
    "multi-query-recall": case("multi-query-recall", naive.bindings, vocabulary=12, pairs_bound=3),
    "phone-book": case("phone-book", partial(naive.phone_book, digits=1), names=2, digits=1),
    "phone-book digits=2": case("phone-book", partial(naive.phone_book, digits=2), names=3, digits=2),
    "cyclic": case("cyclic", partial(naive.cyclic, n=3)),
    "cyclic n=11": case("cyclic", partial(naive.cyclic, n=11), n=11),
    "s3": case("s3", naive.permutations),
    "s5": case("s5", naive.permutations),
    "a5": case("a5", naive.permutations),
    "group": case("group", partial(naive.group, table=QUATERNIONS), table=QUATERNIONS),
    "modular-arithmetic": case("modular-arithmetic", partial(naive.modular_arithmetic, n=5)),
    "modular-arithmetic n=2": case("modular-arithmetic", partial(naive.modular_arithmetic, n=2), n=2),
    "modular-arithmetic n=10": case("modular-arithmetic", partial(naive.modular_arithmetic, n=10), n=10),
    "modular-arithmetic-brackets multiply": case(
        "modular-arithmetic-brackets",
        partial(naive.modular_arithmetic_brackets, n=3, operators="+*-"),
        n=3,
        multiply=True,
    ),
    "copy alphabet=3": case("copy", naive.copy, alphabet=3),
    "unique-copy": case("unique-copy", naive.unique_copy, alphabet=12),
    "missing-duplicate alphabet=3": case("missing-duplicate", naive.missing_duplicate, alphabet=3),
    "reverse alphabet=3": case("reverse", naive.reverse, alphabet=3),
    "selective-copying": case("selective-copying", naive.selective_copying, alphabet=4, tokens=3),
    "forgetting-recall": case("forgetting-recall", naive.forgetting_recall, vocabulary=8, pairs_bound=3, updates=2),
    "compositional-recall": case("compositional-recall", naive.compositional_recall, vocabulary=9, pairs_bound=1),
    "compositional-recall of 4": case(
        "compositional-recall", naive.compositional_recall, vocabulary=9, pairs_bound=4, power=1
    ),
    "noisy-recall": case("noisy-recall", naive.noisy_recall, vocabulary=52, noise_symbols=3, share=0.4),
    "fuzzy-recall": case("fuzzy-recall", naive.fuzzy_recall, vocabulary=4),
    "fuzzy-recall of 2 and 1": case(
        "fuzzy-recall", partial(naive.fuzzy_recall, longest_key=2), vocabulary=4, key_tokens=2, value_tokens=1
    ),
    "k-hop": case("k-hop", naive.k_hop),
    "k-hop k=3": case("k-hop", partial(naive.k_hop, k=3), k=3, alphabet=3),
    "dihedral n=6": case("dihedral", partial(naive.dihedral, n=6), n=6),
    "cycle-navigation n=2": case("cycle-navigation", partial(naive.cycle_navigation, n=2), n=2),
    **{f"tomita {i}": case("tomita", partial(naive.tomita, grammar=i), grammar=i) for i in range(1, 8)},
    "dfa": case("dfa", partial(naive.dfa, **ODD_X), {"1"}, **ODD_X),
    "regex": case("regex", partial(naive.regex, tree=NO_BB), {"1"}, pattern=naive.pattern(NO_BB)),
}
CASES |= {
    f"{name} at the end": case(name, only_the_last(oracle), questions="at the end")
    for name, oracle in AT_THE_END.items()
}
REAL_VALUED = {name for name in TASKS.entries if example_task(name).features}
CASES |= {
    name: Case(example_task(name), getattr(naive, name.replace("-", "_")))
    for name in TASKS.entries
    if name not in REAL_VALUED and name not in {case.task.kind for case in CASES.values()}
}


def names(task: Task, row: Tensor) -> naive.Word:
    """The symbols of a row of tokens, up to its first padding."""
    tokens, symbols = row.tolist(), task.symbols
    return [symbols[token - 1] for token in tokens[: (*tokens, 0).index(0)]]


def naive_targets(case: Case, inputs: Tensor) -> list[list[int]]:
    """The targets that `solve` should give."""
    number: dict[str | None, int] = {None: IGNORE, **{name: i for i, name in enumerate(case.task.answers)}}
    rows = [[number[answer] for answer in case.oracle(names(case.task, row))] for row in inputs]
    return [row + [IGNORE] * (inputs.shape[1] - len(row)) for row in rows]


def drawn(task: Task, length: int, count: int, seed: int = 0) -> Tensor:
    """Inputs of one length."""
    return task.inputs(torch.full((count,), length), Rng.seeded(seed, "test").rows(count))


def texts(task: Task, inputs: Tensor) -> list[str]:
    """One text per row."""
    return ["".join(names(task, row)) for row in inputs]


def of_every_length(task: Task, high: int) -> Tensor:
    return torch.tensor(task.lengths(1, high))


def assert_distribution(observed: Counter[Any], chances: Mapping[Any, float]) -> None:
    """Chi-square, with cells of fewer than five expected draws pooled, at four standard deviations.

    No observed value may have probability 0. Seeds are fixed, so the result is always the same.
    """
    impossible = set(observed) - {value for value, chance in chances.items() if chance > 0}
    assert not impossible, f"drawn against the stated distribution: {sorted(impossible)[:5]}"
    assert abs(sum(chances.values()) - 1) < 1e-9
    total = sum(observed.values())
    expected = {value: total * float(chance) for value, chance in chances.items()}
    often = [value for value in expected if expected[value] >= 5]
    cells = [(observed[value], expected[value]) for value in often]
    rest = total - sum(e for _, e in cells)
    if rest > 1:
        cells.append((total - sum(o for o, _ in cells), rest))
    statistic = sum((o - e) ** 2 / e for o, e in cells)
    freedom = len(cells) - 1
    # The Wilson-Hilferty approximation of the chi-square quantile.
    limit = freedom * (1 - 2 / (9 * freedom) + 4 * sqrt(2 / (9 * freedom))) ** 3
    assert statistic < limit, f"chi-square {statistic:.1f} of {freedom} degrees of freedom, at most {limit:.1f}"


def assert_uniform(observed: Counter[Any], values: Any) -> None:
    values = list(values)
    assert_distribution(observed, {value: 1 / len(values) for value in values})


def assert_rate(flags: Tensor, rate: float) -> None:
    """The share of true flags, to four standard deviations."""
    share = flags.double().mean().item()
    assert abs(share - rate) < 4 * sqrt(rate * (1 - rate) / flags.numel()), f"{share:.4f} instead of {rate:.4f}"
