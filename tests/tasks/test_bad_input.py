"""A mistake in a task's options becomes one line that says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import BadInput
from assay.tasks import TASKS, named_task

LATIN = (
    (0, 1, 2, 3, 4),
    (1, 0, 3, 4, 2),
    (2, 4, 0, 1, 3),
    (3, 2, 4, 0, 1),
    (4, 3, 1, 2, 0),
)  # with identity, but no group
ONE_STATE: dict[str, Any] = {"alphabet": "ab", "table": ((0, 0),), "accept": (0,)}


BAD = [
    ("cyclic", {"n": 1}, "n = 1 "),
    ("cyclic", {"n": 1025}, "n = 1025 "),
    ("cyclic", {"n": "3"}, "n = '3' "),
    ("modular-arithmetic", {"n": 1}, "n = 1 "),
    ("modular-arithmetic", {"n": 11}, "n = 11 "),
    ("shuffle", {"k": 0}, "k = 0 "),
    ("shuffle", {"k": 5}, "k = 5 "),
    ("bounded-dyck", {"k": 0}, "k = 0 "),
    ("bounded-dyck", {"depth": 0}, "depth = 0 "),
    ("bounded-dyck", {"negatives": "random"}, "'corrupted' or 'count-balanced'"),
    ("index-lookup", {"alphabet": 1}, "alphabet = 1 "),
    ("index-lookup", {"positions": 1}, "positions = 1 "),
    ("equality-random", {"alphabet": 1}, "alphabet = 1 "),
    ("disjointness", {"alphabet": 3}, "alphabet = 3 "),
    ("nearest-neighbour", {"margin": 0.5}, "margin = 0.5 "),
    ("nearest-neighbour", {"margin": 0.0}, "margin = 0.0 "),
    ("nearest-neighbour", {"dimension": 1}, "dimension = 1 "),
    ("phone-book", {"digits": 0}, "digits = 0 "),
    ("phone-book", {"names": 33}, "names = 33 "),
    ("recall", {"vocabulary": 7}, "vocabulary = 7 "),
    ("recall", {"vocabulary": 2}, "vocabulary = 2 "),
    ("recall", {"vocabulary": 10**9}, "vocabulary = 1000000000 "),
    ("multi-query-recall", {"vocabulary": 2**20 + 2}, "vocabulary = 1048578 "),
    ("forgetting-recall", {"vocabulary": 10**9}, "vocabulary = 1000000000 "),
    ("compositional-recall", {"vocabulary": 2**20 + 2}, "vocabulary = 1048578 "),
    ("noisy-recall", {"vocabulary": 10**9}, "vocabulary = 1000000000 "),
    ("multi-query-recall", {"vocabulary": 8, "pairs_bound": 5}, "5 pairs"),
    ("multi-query-recall", {"pairs_bound": 0}, "pairs_bound = 0 "),
    ("multi-query-recall", {"vocabulary": 2**20, "pairs_bound": 25_001}, "pairs_bound = 25001 "),
    ("multi-query-recall", {"power": 0}, "power = 0 "),
    ("parity", {"questions": "sometimes"}, "'everywhere' or 'at the end'"),
    ("flip-flop-language", {"ignore": 1.5}, "ignore = 1.5 "),
    ("cycle-navigation", {"n": 1}, "n = 1 "),
    ("tomita", {"grammar": 8}, "grammar = 8 "),
    ("dihedral", {"n": 1}, "n = 1 "),
    ("modular-arithmetic-brackets", {"n": 11}, "n = 11 "),
    ("modular-arithmetic-brackets", {"multiply": 1}, "multiply = 1 "),
    ("unique-copy", {"alphabet": 1}, "alphabet = 1 "),
    ("bucket-sort", {"alphabet": 1}, "alphabet = 1 "),
    ("selective-copying", {"tokens": 0}, "tokens = 0 "),
    ("forgetting-recall", {"updates": 9}, "9 updates need as many pairs_bound, not 8"),
    ("forgetting-recall", {"vocabulary": 8, "pairs_bound": 5, "updates": 1}, "5 pairs"),
    ("compositional-recall", {"vocabulary": 8}, "vocabulary = 8 "),
    ("compositional-recall", {"pairs_bound": 5}, "pairs_bound = 5 is not a square number; 4 and 9 are"),
    ("compositional-recall", {"vocabulary": 6, "pairs_bound": 9}, "9 keys need 3 first tokens"),
    ("noisy-recall", {"share": 0.95}, "share = 0.95 "),
    ("fuzzy-recall", {"key_tokens": 4}, "key_tokens = 4 "),
    ("k-hop", {"k": 0}, "k = 0 "),
    ("k-hop", {"alphabet": 1}, "alphabet = 1 "),
    ("group", {}, "'table'"),
    ("group", {"table": ((0,),)}, "at least 2"),
    ("group", {"table": ((0, 1), (1,))}, "each of 0 to 1 once"),
    ("group", {"table": ((0, 1), (1, 1))}, "each of 0 to 1 once"),
    ("group", {"table": ((0, 1), (1, 2))}, "each of 0 to 1 once"),
    ("group", {"table": ((1, 0), (0, 1))}, "identity"),
    ("group", {"table": LATIN}, "associative"),
    ("dfa", {}, "'alphabet'"),
    ("dfa", {**ONE_STATE, "table": ((0, 1),)}, "no state 1"),
    ("dfa", {**ONE_STATE, "table": ((0, -1),)}, "no state -1"),
    ("dfa", {**ONE_STATE, "table": ((0,),)}, "1 moves for 2 symbols"),
    ("dfa", {**ONE_STATE, "accept": (1,)}, "no state 1"),
    ("dfa", {**ONE_STATE, "accept": ()}, "no state accepts"),
    ("dfa", {**ONE_STATE, "alphabet": "aa"}, "twice"),
    ("dfa", {**ONE_STATE, "alphabet": ""}, "alphabet = '' "),
    ("regex", {"pattern": ""}, "pattern = '' "),
    ("regex", {"pattern": "()"}, "has no words"),
    ("regex", {"pattern": "a b"}, "not a regular expression"),
    ("regex", {"pattern": "(ab"}, "not a regular expression"),
    ("regex", {"pattern": "ab)"}, "not a regular expression"),
    ("regex", {"pattern": "*a"}, "not a regular expression"),
    ("regex", {"pattern": "a|"}, "not a regular expression"),
    ("regex", {"pattern": "(\n"}, "not a regular expression"),
]


@pytest.mark.parametrize(("name", "options", "said"), BAD, ids=[f"{name} {options}" for name, options, _ in BAD])
def test_bad_options_are_one_line(name: str, options: dict[str, Any], said: str):
    with pytest.raises(BadInput) as caught:
        named_task(name, **options)
    text = str(caught.value)
    assert said in text
    assert text.startswith(name)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cyclic", {"n": 2}),
        ("cyclic", {"n": 1024}),
        ("modular-arithmetic", {"n": 10}),
        ("shuffle", {"k": 4}),
        ("bounded-dyck", {"k": 1, "depth": 8}),
        ("nearest-neighbour", {"margin": 0.3, "dimension": 2}),
        ("recall", {"vocabulary": 4}),
        ("multi-query-recall", {"vocabulary": 8, "pairs_bound": 4, "power": 1}),
        ("index-lookup", {"alphabet": 2, "positions": 2}),
        ("flip-flop-language", {"ignore": 0.0}),
        ("tomita", {"grammar": 7}),
        ("dihedral", {"n": 2}),
        ("modular-arithmetic-brackets", {"n": 10, "multiply": True}),
        ("selective-copying", {"tokens": 1, "alphabet": 2}),
        ("forgetting-recall", {"vocabulary": 8, "pairs_bound": 4, "updates": 4}),
        ("compositional-recall", {"vocabulary": 6, "pairs_bound": 4}),
        ("noisy-recall", {"vocabulary": 4, "noise_symbols": 1, "share": 0.9}),
        ("fuzzy-recall", {"vocabulary": 4, "key_tokens": 1, "value_tokens": 1}),
        ("k-hop", {"alphabet": 2, "k": 64}),
        ("dfa", ONE_STATE),
        ("regex", {"pattern": "a"}),
        ("regex", {"pattern": "a*", "alphabet": "b#"}),
    ],
)
def test_the_last_good_options_are_good(name: str, options: dict[str, Any]):
    assert named_task(name, **options).model_dump(exclude={"kind", "version"}).items() >= options.items()


@pytest.mark.parametrize("name", TASKS.entries)
def test_an_unknown_option_is_one_line(name: str):
    with pytest.raises(BadInput) as caught:
        named_task(name, colour="red")
    assert str(caught.value).startswith(f"{name} ")
    assert "\n" not in str(caught.value)
