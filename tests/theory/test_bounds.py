"""Bounds: closed forms equal whole tables, witnesses are what they claim, and what is wrong with them is seen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar, Literal

import pytest
import torch

from assay.errors import BadInput
from assay.models.causal import Causal
from assay.models.registry import MODELS
from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.equality import Disjointness, EqualityOne, EqualityRandom
from assay.tasks.index_lookup import IndexLookup
from assay.tasks.task import IGNORE, Task
from assay.theory.bounds import claims, memories, protocol, witnesses
from assay.theory.bounds.information import (
    best_accuracy,
    bits_at_error,
    bits_for,
    bits_of_power,
    one_layer,
    one_way,
    two_way,
)
from assay.theory.bounds.residuals import Unrolled, automaton, told_apart
from assay.theory.bounds.sizes import Recipe
from assay.theory.bounds.tables import Form, different, every_other, inferred, prefixes_told_apart, rank, ranks

FOLLOWING: list[tuple[str, dict[str, Any]]] = [
    ("parity", {}),
    ("even-a", {}),
    ("abab", {}),
    ("flip-flop", {}),
    ("cyclic", {"n": 5}),
    ("s3", {}),
    ("bounded-dyck", {}),
    ("bounded-dyck", {"k": 1, "depth": 3}),
    ("dyck-1", {}),
    ("reset-dyck-1", {}),
    ("shuffle", {"k": 2}),
    ("shuffle", {"k": 3}),
    ("an-bn", {}),
    ("an-bn-cn", {}),
    ("an-bn-cn-dn", {}),
    ("regex", {"pattern": "(a|b)*abb"}),
    ("regex", {"pattern": "(aab)*"}),
    ("regex", {"pattern": "(a|b)*b"}),
]
CLAIMS = [
    claims.LookupBits,
    claims.RecallBits,
    claims.MqarBits,
    claims.NeighbourBits,
    claims.EqualityBits,
    claims.EqualityLayer,
    claims.DisjointnessLayer,
    claims.DyckLayer,
    memories.AutomatonBits,
    memories.DyckBits,
    memories.LookupAccuracy,
]


# -- closed forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), FOLLOWING)
def test_what_must_be_told_apart_is_what_the_whole_table_shows(name: str, options: dict[str, Any]):
    task = named_task(name, **options)
    for length in range(2, 12):
        if len(task.symbols) ** length <= 1 << 12:
            counted = prefixes_told_apart(task, Form.any_string(task, length))
            assert max(told_apart(task, t, length - t) for t in range(1, length)) == counted.states
            need = one_way(task, length)
            assert need is not None
            assert need.bits == counted.bits


@pytest.mark.parametrize(
    ("name", "states"), [("parity", 2), ("even-a", 2), ("abab", 5), ("s3", 6), ("bounded-dyck", 8)]
)
def test_the_minimal_automaton_is_the_one_that_the_oracle_teaches(name: str, states: int):
    task = named_task(name)
    assert automaton(task).minimal[0] == states
    assert len(inferred(task, suffixes=4 if len(task.symbols) < 3 else 2).words) == states
    need = one_way(task, 100)
    assert need is not None
    assert need.invariant == bits_for(states)


def test_no_state_is_needed_for_what_the_last_symbol_says():
    ends_in_b = named_task("regex", pattern="(a|b)*b")
    assert automaton(ends_in_b).minimal[0] == 1


def test_states_count_only_once_an_input_is_long_enough_to_tell_them_apart():
    needs = [one_way(named_task("bounded-dyck"), length) for length in (2, 4, 6)]
    assert [need.invariant for need in needs if need] == [0, 3, 3]


def test_modular_arithmetic_carries_two_numbers():
    task = named_task("modular-arithmetic", n=3)
    digits, operators = torch.arange(1, 4), torch.arange(4, 7)
    form = Form(tuple(operators if i % 2 else digits for i in range(5)))
    need = one_way(task, 5)
    assert need is not None
    assert prefixes_told_apart(task, form).states == 9
    assert (need.bits, need.cut) == (4, 3)


@pytest.mark.parametrize(("name", "length", "bits"), [("dyck-1", 10**6, 18), ("shuffle", 10**6, 37), ("s5", 10**6, 7)])
def test_long_inputs_take_no_time(name: str, length: int, bits: int):
    need = one_way(named_task(name), length)
    assert need is not None
    assert need.bits == bits


def test_bits_are_whole_and_exact():
    assert [bits_for(n) for n in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]
    assert bits_of_power(3, 1000) == math.ceil(1000 * math.log2(3))
    assert bits_of_power(2**20, 10**9) == 20 * 10**9


def test_a_sequence_that_returns_to_itself_is_followed_for_ever():
    counting = Unrolled(torch.tensor(5), lambda x: torch.where(x == 9, 7, x + 1))
    assert [int(counting(n)) for n in range(12)] == [5, 6, 7, 8, 9, 7, 8, 9, 7, 8, 9, 7]


def test_claims_and_closed_forms_ask_for_the_same_bits():
    for kind in (claims.LookupBits, claims.RecallBits, claims.NeighbourBits, claims.EqualityBits):
        need = one_way(kind().task(40), 40)
        assert need is not None
        assert bits_for(kind().states(40)) == need.bits
    for layer in (claims.EqualityLayer, claims.DisjointnessLayer, claims.DyckLayer):
        split = two_way(layer().task(40), 40)
        assert split is not None
        assert bits_for(layer().states(40)) == split.bits
    mqar = one_way(claims.MqarBits().task(40), 80)
    assert mqar is not None
    assert mqar.bits == bits_for(claims.MqarBits().states(40))


def test_one_changed_symbol_takes_a_checksum_only():
    need = one_way(EqualityOne(), 100)
    assert need is not None
    assert need.bits == 500
    assert "checksum of 10 bits" in need.source


def test_bad_lengths_are_refused_in_one_line():
    with pytest.raises(BadInput, match="a vocabulary of 10"):
        one_way(named_task("recall", vocabulary=8), 4)
    with pytest.raises(BadInput, match="at least 32"):
        one_way(named_task("multi-query-recall"), 16)
    with pytest.raises(BadInput, match="even, and at least 2"):
        claims.DyckLayer().check(5)


@pytest.mark.parametrize(("length", "least"), [(400, 6), (10_000, 114), (1_000_000, 9277)])
def test_one_layer_for_dyck_with_the_papers_constant(length: int, least: int):
    split = two_way(BoundedDyck(), length)
    assert split is not None
    assert split.bits == length - 1
    assert one_layer(split.bits, split.tokens, precision=16).paper == least


def test_the_lean_protocol_is_solved_for_the_width():
    bits, tokens, p, heads = 10_000, 500, 16, 4
    lean = one_layer(bits, tokens, p, heads).lean
    sent = [d * p + heads * (2 * d / heads * p + 4 * p + 2 * math.log2(tokens)) for d in (lean - 1, lean)]
    assert sent[0] < bits <= sent[1]


# -- Fano ----------------------------------------------------------------------------------------------------------


def test_the_best_accuracy_of_too_small_a_memory():
    found = [round(best_accuracy(400, 64, bits), 3) for bits in (100, 500, 1000, 2000)]
    assert found == [0.132, 0.364, 0.579, 0.907]
    assert best_accuracy(400, 64, 2400) == pytest.approx(1.0)
    assert best_accuracy(400, 64, 0) == pytest.approx(1 / 64, abs=1e-6)
    assert bits_at_error(400, 64, 1 - best_accuracy(400, 64, 700)) == pytest.approx(700)


class TooLow(memories.LookupAccuracy):
    def ceiling(self, length: int, bits: float) -> float:
        return 0.9 * super().ceiling(length, bits)


def test_a_ceiling_a_tenth_too_low_is_broken_by_some_memory():
    result = TooLow().check(20, inputs=200)
    assert not result.holds
    assert "a memory of 1 bits answers 0.750" in result.note


# -- tables --------------------------------------------------------------------------------------------------------


def test_rows_are_counted_as_anyone_would():
    task, length = IndexLookup(alphabet=2, positions=3), 3
    tokens = range(1, len(task.symbols) + 1)
    rows = []
    for cut in (1, 2):
        table = {
            x: [task.solve(torch.tensor([[*x, *y]]))[0, -1].item() for y in product(tokens, repeat=length - cut)]
            for x in product(tokens, repeat=cut)
        }
        rows.append(len({tuple(row) for row in table.values()}))
    assert prefixes_told_apart(task, Form.any_string(task, length)).states == max(rows)


def test_where_nothing_is_asked_no_row_differs():
    rows = torch.tensor([[0, IGNORE], [IGNORE, 0], [1, 1], [0, 0]])
    assert different(rows) == 2
    assert different(rows[2:]) == 2


def test_the_rank_of_dyck_doubles_with_every_symbol():
    task = BoundedDyck(k=2, depth=2)
    for length in (2, 4, 6, 8):
        found = ranks(task, Form.any_string(task, length), every_other(length))
        assert found["1"] == 2 ** (length - 1)
    assert ranks(task, Form.any_string(task, 6), every_other(6), modulo=2)["1"] == 32


def test_first_and_second_half_tell_less_of_dyck():
    task = BoundedDyck(k=2, depth=2)
    assert ranks(task, Form.any_string(task, 8), torch.arange(8) < 4)["1"] == 5


def test_rank_is_that_of_linear_algebra():
    for seed in range(20):
        numbers = Rng.seeded(seed, "rank").integers(8 * 3, 5).view(8, 3) - 2
        matrix = numbers @ (Rng.seeded(seed, "other").integers(3 * 9, 5).view(3, 9) - 2)
        assert rank(matrix) == int(torch.linalg.matrix_rank(matrix.double()))
        assert rank(matrix, modulo=2) <= rank(matrix)
    assert rank(torch.zeros(3, 4, dtype=torch.int64)) == 0


def test_too_large_a_table_says_what_would_do():
    with pytest.raises(BadInput, match="up to 10 would do"):
        Form.any_string(BoundedDyck(), 11)
    with pytest.raises(BadInput, match="at most 2\\^20"):
        prefixes_told_apart(BoundedDyck(), Form((torch.arange(1, 5),) * 11))
    with pytest.raises(BadInput, match="say which vectors"):
        Form.any_string(named_task("nearest-neighbour"), 3)
    recall = named_task("recall", vocabulary=4)
    with pytest.raises(BadInput, match="does not ask at the end"):
        ranks(recall, Form.any_string(recall, 3), every_other(3))
    with pytest.raises(BadInput, match="does not ask at every end"):
        inferred(recall, suffixes=2)
    with pytest.raises(BadInput, match="states, too many for this bound"):
        inferred(named_task("dyck-1"), suffixes=10, most=8)


# -- claims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLAIMS)
def test_every_bound_holds(kind: type[claims.LowerBound]):
    result = kind().check(14, inputs=400)
    assert result.holds, result.note
    assert result.inputs >= 200
    assert result.bits == bits_for(kind().states(14))


@pytest.mark.parametrize("kind", [kind for kind in CLAIMS if kind is not memories.LookupAccuracy])
@pytest.mark.parametrize("change", [lambda n: 2 * n, lambda n: n // 2])
def test_a_bit_more_or_less_is_refuted_by_the_whole_table(kind: type[claims.LowerBound], change: Callable[[int], int]):
    class Off(kind):  # type: ignore[valid-type, misc]
        def states(self, length: int) -> int:
            return change(super().states(length))

    result = Off().check(min(kind.small), inputs=8)
    assert not result.holds
    assert f"at length {min(kind.small)} there are" in result.note


def test_the_protocol_of_every_recurrent_model_is_its_state():
    result = memories.RecurrentProtocol().check(6, inputs=4)
    assert result.holds, result.note
    recurrent = [name for name in MODELS.entries if not Recipe(name).grows]
    assert result.inputs == len(recurrent) * 4


def test_with_nothing_sent_no_model_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memories, "received", lambda blank, message, cut: blank)
    result = memories.RecurrentProtocol().check(6, inputs=4)
    assert not result.holds
    assert "lstm" in result.note


def test_a_message_that_is_wrong_at_one_cut_is_seen(monkeypatch: pytest.MonkeyPatch):
    right = memories.received
    monkeypatch.setattr(
        memories, "received", lambda blank, message, cut: blank if cut == 5 else right(blank, message, cut)
    )
    result = memories.RecurrentProtocol().check(6, inputs=4)
    assert "lstm at 1 of 5 cuts" in result.note


class Secretive(Causal):
    """Parity, kept in an attribute beside a state of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.ones = torch.zeros(1)

    def initial_state(self, batch: int) -> torch.Tensor:
        return torch.zeros(batch, 1, dtype=torch.float64)

    def step(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.ones = (self.ones + x - 1) % 2
        return self.ones, state


def test_a_model_that_keeps_something_beside_its_state_is_seen():
    tokens = torch.tensor([[2, 1, 2, 2]])
    one, other = Secretive(), Secretive()
    assert memories.RecurrentProtocol().wrong_cuts(one, other, tokens)  # type: ignore[arg-type]


def test_an_automaton_inferred_from_too_short_suffixes_is_caught():
    class Hasty(memories.DyckBits):
        suffixes = 1

    result = Hasty().check(20, inputs=200)
    assert "states, not 8" in result.note
    assert "random ones fail" in result.note


# -- the protocol for one layer ------------------------------------------------------------------------------------


class Coarse(claims.DisjointnessLayer):
    """Means of values with 3 bits fewer than the error allows for."""

    def run_protocol(self, layer: claims.Layer, tokens: torch.Tensor, scales: protocol.Scales) -> protocol.Outcome:
        fewer = scales.value._replace(fraction=scales.value.fraction - 3)
        return super().run_protocol(layer, tokens, replace(scales, value=fewer))


class Talkative(claims.DyckLayer):
    """Numbers of one bit more."""

    def run_protocol(self, layer: claims.Layer, tokens: torch.Tensor, scales: protocol.Scales) -> protocol.Outcome:
        symbols = len(self.task(layer.length).symbols)
        more = protocol.agree_on_scales(layer.model, tokens.shape[1], symbols, layer.precision + 1)
        return super().run_protocol(layer, tokens, more)


class Unfit(claims.EqualityLayer):
    """The explicit layer with too few bits for its numbers."""

    def layers(self, length: int, rng: Rng) -> list[claims.Layer]:
        return [layer._replace(precision=20) for layer in super().layers(length, rng)[-1:]]


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (Coarse, r"the protocol is off by \S+, more than"),
        (Talkative, r"the protocol sends \d+ bits, more than \d+"),
        (Unfit, "the protocol's answers are not the task's"),
    ],
)
def test_a_protocol_with_too_few_or_too_many_bits_is_seen(kind: type[claims.OneLayerBound], failure: str):
    result = kind().check(40, inputs=8)
    assert not result.holds
    assert re.search(failure, result.note), result.note


def test_a_protocol_without_the_sums_of_exponentials_is_seen(monkeypatch: pytest.MonkeyPatch):
    right = protocol.combined
    monkeypatch.setattr(
        protocol, "combined", lambda *both: right(*(one._replace(total=torch.ones_like(one.total)) for one in both))
    )
    assert "off by" in claims.DyckLayer().check(10, inputs=8).note


def test_a_bound_above_what_the_protocol_sends_is_seen():
    class TooMuch(claims.EqualityLayer):
        def states(self, length: int) -> int:
            return 1 << 2000

    assert "bits solve the task: the bound is wrong" in TooMuch().check(10, inputs=8).note


@pytest.mark.parametrize("tokens", [2, 3, 31, 32, 33])
def test_the_protocol_is_the_layer_up_to_rounding_for_any_partition(tokens: int):
    model = claims.DyckLayer().random_layer(2 * tokens, 2, 8, "pre", Rng.seeded(tokens))
    scales = protocol.agree_on_scales(model, tokens, 4, precision=24)
    inputs = Rng.seeded(1).rows(8).integers(tokens, 4) + 1
    heads, logits = protocol.direct(model, inputs)
    torch.testing.assert_close(logits, model(inputs)[0][:, -1])
    for seed in range(4):
        first = Rng.seeded(seed, "parts").integers(tokens, 2) == 1
        first[0], first[1] = seed % 2 == 0, seed % 2 == 1
        outcome = protocol.run_protocol(model, inputs, first, scales)
        assert not outcome.overflow
        assert float((outcome.heads - heads).abs().max()) <= scales.rounding < 1e-6
        torch.testing.assert_close(outcome.logits, logits, atol=1e-5, rtol=0)
        assert outcome.bits == 8 * 24 + 2 * (2 * 4 * 24 + 4 * 24 + 2 * int(math.log2(tokens)))


def test_a_number_that_does_not_fit_is_seen():
    channel = protocol.Channel()
    channel.send(torch.tensor([[3.7]]), protocol.Scale(4, 1))
    assert not channel.overflow
    channel.send(torch.tensor([[-0.25]]), protocol.Scale(4, 1, unsigned=True))
    assert not channel.overflow, "rounded to 0"
    channel.send(torch.tensor([[4.0]]), protocol.Scale(4, 1))
    assert channel.overflow
    assert channel.bits == 12


# -- witnesses -----------------------------------------------------------------------------------------------------

LOOKUP, DYCK = IndexLookup(alphabet=4, positions=20), BoundedDyck(k=2, depth=2)


@pytest.mark.parametrize(("k", "depth"), [(1, 2), (2, 2), (3, 2), (3, 1), (2, 3)])
def test_words_fool_whoever_holds_every_other_position(k: int, depth: int):
    task = BoundedDyck(k=k, depth=depth)
    fooling = (witnesses.nested if depth == 2 else witnesses.in_turn)(task, 6)
    split = two_way(task, 6)
    assert split is not None
    assert bits_for(fooling.size) == split.bits
    assert fooling.check_all().wrong == 0


def test_an_index_beside_the_difference_tells_nothing():
    good = witnesses.strings_looked_up(LOOKUP, 20)
    beside = replace(good, suffix=lambda i, j: good.suffix(i, (i + (i != j).roll(1, 1)) % 4))
    assert good.check(Rng.seeded(0), 400).wrong == 0
    assert beside.check(Rng.seeded(0), 400).wrong > 50


def test_a_witness_with_two_members_alike_fails():
    good = witnesses.strings_looked_up(LOOKUP, 3)
    alike = replace(good, prefix=lambda i: good.prefix(torch.where((i == 3).all(1, keepdim=True), 2, i)))
    assert good.check_all().wrong == 0
    assert alike.check_all().wrong >= 1


@pytest.mark.parametrize(
    "good",
    [
        witnesses.equal_halves(EqualityRandom(), 8),
        witnesses.complements(Disjointness(), 8),
        witnesses.nested(DYCK, 6),
    ],
    ids=["equality", "disjointness", "dyck"],
)
def test_a_fooling_set_with_one_crossing_that_agrees_fails(good: witnesses.Fooling):
    first = good.member(torch.zeros(1, len(good.bases), dtype=torch.int64))
    last = torch.tensor([[base - 1 for base in good.bases]])

    def spoilt(i: torch.Tensor) -> torch.Tensor:
        """The last member is the first once more."""
        return torch.where((i == last).all(1, keepdim=True), first, good.member(i))

    assert good.check_all().wrong == 0
    assert replace(good, member=spoilt).check_all().wrong == 1
    assert replace(good, first=torch.ones_like(good.first)).check(Rng.seeded(0), 400).wrong == 100
    assert replace(good, answer=0).check(Rng.seeded(0), 400).wrong == 100


def test_points_too_near_each_other_have_no_labels_of_their_own():
    task = claims.NeighbourBits().task(8)
    good = witnesses.neighbours(task, 4)
    blurred = replace(good, suffix=lambda i, j: torch.ones_like(good.suffix(i, j)))
    assert good.check_all().wrong == 0
    assert blurred.check_all().wrong > 0


def test_every_second_pair_is_a_near_one():
    far = []

    class Spy(witnesses.Prefixes):
        def confused(self, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
            far.append((i != j).sum(1))
            return super().confused(i, j)

    good = witnesses.strings_looked_up(LOOKUP, 20)
    Spy(good.task, good.bases, good.prefix, good.suffix).check(Rng.seeded(0), 800)
    differ = torch.cat(far)
    assert (differ >= 1).all()
    assert 150 < int((differ == 1).sum()) < 250


def test_a_task_of_ones_own_has_a_table_too():
    class Doubled(Task):
        """Is the second half the first once more? Asked at the end."""

        kind: ClassVar[str] = "doubled"
        answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
        symbols: ClassVar[tuple[str, ...]] = ("a", "b")
        answers: ClassVar[tuple[str, ...]] = ("0", "1")

        def answer(self, inputs: torch.Tensor) -> torch.Tensor:
            half = inputs.shape[1] // 2
            same = (inputs[:, :half] == inputs[:, -half:]).all(1) if half else inputs[:, 0] > 0
            return same.long()[:, None].expand_as(inputs)

        def draw(self, lengths: torch.Tensor, rng: Rng, width: int) -> torch.Tensor:
            return rng.integers(width, 2) + 1

    counted = prefixes_told_apart(Doubled(), Form.any_string(Doubled(), 8))
    assert (counted.states, counted.cut) == (16, 4)
    assert ranks(Doubled(), Form.any_string(Doubled(), 8), torch.arange(8) < 4)["1"] == 16
