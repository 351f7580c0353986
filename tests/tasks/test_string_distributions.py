"""The stated distributions of the samplers of copying, transductions and the variants of recall."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations, product
from typing import Any

import pytest
import torch

from assay.tasks import named_task
from assay.tasks.recall_variants import CompositionalRecall, ForgettingRecall

from .cases import assert_distribution, assert_uniform, drawn, names, texts


def test_unique_copies_are_uniform_orders():
    task = named_task("unique-copy", alphabet=4)
    inputs = drawn(task, 7, 6000)
    assert torch.equal(inputs[:, :3], inputs[:, 4:])
    assert_uniform(Counter(map(tuple, inputs[:, :3].tolist())), permutations(range(1, 5), 3))


def test_a_missing_symbol_is_anywhere():
    strings = [x + x for x in map("".join, product("01", repeat=3))]
    words = [f"{xx[:i]}_{xx[i + 1 :]}" for xx in strings for i in range(6)]
    task = named_task("missing-duplicate")
    assert_uniform(Counter(texts(task, drawn(task, 6, 8000))), words)


@pytest.mark.parametrize("name", ["reverse", "odds-first"])
def test_strings_are_uniform(name: str):
    task = named_task(name)
    words = ["".join(x) + "____" for x in product("01", repeat=4)]
    assert_uniform(Counter(texts(task, drawn(task, 8, 4000))), words)


def test_stacks_are_as_published():
    """A uniform number of bits, at least one, then uniform actions, at least one."""
    chances = {}
    for bits in (1, 2):
        for word in product(*["01"] * bits, *["ab-"] * (3 - bits)):
            chances["".join(word) + "____"] = 1 / 2 / 2**bits / 3 ** (3 - bits)
    task = named_task("stack-manipulation")
    assert_distribution(Counter(texts(task, drawn(task, 7, 8000))), chances)
    assert set(texts(task, drawn(task, 3, 50))) == {"0__", "1__"}


def test_sums_are_as_stated():
    chances = {}
    for place in (1, 2):
        for bits in product("01", repeat=3):
            chances[f"{''.join(bits[:place])}+{''.join(bits[place:])}_____"] = 1 / 16
    task = named_task("binary-addition")
    assert_distribution(Counter(texts(task, drawn(task, 9, 6000))), chances)


def test_copied_symbols_stand_anywhere_among_dots():
    task = named_task("selective-copying", alphabet=2, tokens=2)
    words = []
    for places in combinations(range(5), 2):
        for pair in product(("s0", "s1"), repeat=2):
            symbols = dict(zip(places, pair, strict=True))
            words.append((*(symbols.get(i, ".") for i in range(5)), "_", "_"))
    assert_uniform(Counter(tuple(names(task, row)) for row in drawn(task, 7, 8000)), words)


# -- recall --------------------------------------------------------------------------------------------------------


def test_some_keys_get_another_value():
    task = ForgettingRecall(vocabulary=12, pairs_bound=3, updates=2)
    inputs = drawn(task, 16, 4000)
    keys, values, updated, new = inputs[:, :6:2], inputs[:, 1:6:2], inputs[:, 6:10:2], inputs[:, 7:10:2]
    position = (keys[:, None] == updated[:, :, None]).long()
    assert (position.sum(2) == 1).all()
    chosen = position.argmax(2)
    assert_uniform(Counter(map(tuple, chosen.tolist())), permutations(range(3), 2))
    changes = (new - values.gather(1, chosen)) % 6
    assert_uniform(Counter(changes.flatten().tolist()), range(1, 6))
    # Every key is asked for, and its last value is the answer; a key may come by chance, too.
    last = values.scatter(1, chosen, new)
    rest, targets = inputs[:, 10::2], task.solve(inputs)[:, 10::2]
    asked = rest[:, :, None] == keys[:, None]
    assert asked.any(1).all()
    right = asked & (targets[:, :, None] == last[:, None] - 7)
    assert right.any(1).double().mean() > 0.9, "but for those that noise binds anew"


def test_compound_keys_are_a_grid_in_random_order():
    task = CompositionalRecall(vocabulary=9, pairs_bound=4)
    inputs = drawn(task, 24, 4000)
    triples = inputs[:, :12].unflatten(1, (4, 3))
    first, second, values = triples.unbind(2)
    for part, low in ((first, 1), (second, 4)):
        assert (part.sort(1).values[:, [0, 2]] == part.sort(1).values[:, [1, 3]]).all(), "two symbols, twice each"
        assert_uniform(Counter(part[:, 0].tolist()), range(low, low + 3))
    codes = first * 10 + second
    assert (codes.sort(1).values.diff(dim=1) > 0).all(), "all combinations"
    assert_uniform(Counter(values.flatten().tolist()), range(7, 10))
    targets = task.solve(inputs)[:, 12:]
    assert (targets[:, 1::3] >= 0).all(), "every slot has a query here"


def test_noise_replaces_a_share_of_the_pairs():
    task = named_task("noisy-recall", vocabulary=64, noise_symbols=3, share=0.25)
    inputs = drawn(task, 21, 2000)
    noise = inputs[:, :-1] > 64
    assert torch.equal(noise[:, ::2], noise[:, 1::2])
    assert abs(noise.double().mean() - 0.25 * 9 / 10) < 0.01, "but never the pair that is asked for"
    assert_uniform(Counter(inputs[:, :-1][noise].tolist()), range(65, 68))
    assert (task.solve(inputs)[:, -1] >= 0).all()


@pytest.mark.parametrize("options", [{}, {"key_tokens": 2, "value_tokens": 1}, {"key_tokens": 1, "value_tokens": 3}])
def test_fuzzy_recall_asks_for_a_bound_key(options: dict[str, Any]):
    """Dots, then runs of keys and values of uniform sizes, then the asked key and its value but for one token."""
    task = named_task("fuzzy-recall", vocabulary=64, **options)
    inputs = drawn(task, 40, 250)
    assert (task.solve(inputs)[:, -1] >= 0).all()
    sizes: dict[str, Counter[int]] = {"k": Counter(), "v": Counter()}
    for row in inputs:
        text = "".join(name[0] for name in names(task, row)).lstrip(".")
        assert "." not in text
        for kind in "kv":
            found = [len(run) for run in text.replace("kv", "k v").replace("vk", "v k").split() if run[0] == kind]
            sizes[kind].update(found[1:3])  # long before the end, where only what fits is taken
    for kind, most in (("k", task.plain().get("key_tokens", 3)), ("v", task.plain().get("value_tokens", 3))):
        shares = [sizes[kind][size] / sizes[kind].total() for size in range(1, most + 1)]
        assert sum(shares) == pytest.approx(1)
        assert min(shares) > 0.7 / most
