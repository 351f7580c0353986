"""The samplers: exact lengths, strings of the language, and the stated distributions."""

from __future__ import annotations

from itertools import pairwise
from math import inf, log2

import pytest
import torch

from assay.errors import BadInput
from assay.lab.data import held_out
from assay.lab.splits import FEWEST_BITS
from assay.rng import Rng
from assay.tasks import example_task, named_task
from assay.tasks.automaton import RegularTask
from assay.tasks.bins import LONGEST, Bin
from assay.tasks.recall import Recall
from assay.tasks.task import Task, unpadded

from .cases import (
    CASES,
    REAL_VALUED,
    Case,
    drawn,
    of_every_length,
)

ALL = {**{name: case.task for name, case in CASES.items()}, **{name: example_task(name) for name in REAL_VALUED}}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_task = pytest.mark.parametrize("task", ALL.values(), ids=ALL.keys())


def one_word_per_length(task: Task) -> bool:
    return all(task.log2_inputs(length) < 1e-9 for length in task.lengths(1, 25))


# -- every sampler ---------------------------------------------------------------------------------------------


@every_task
def test_lengths_are_exact(task: Task):
    lengths = of_every_length(task, 25).repeat(4)
    inputs = task.inputs(lengths, Rng.seeded(1).rows(len(lengths)), width=25)
    filled = inputs != 0 if inputs.ndim == 2 else (inputs != 0).any(-1)
    assert torch.equal(filled, torch.arange(25) < lengths[:, None])
    assert torch.equal(filled, unpadded(inputs))


@every_task
def test_padding_to_the_longest_row_unless_told(task: Task):
    lengths = of_every_length(task, 25)
    assert task.inputs(lengths, Rng.seeded(1).rows(len(lengths))).shape[1] == lengths.max()


@every_task
def test_padding_may_be_wider_than_any_input(task: Task):
    lengths = of_every_length(task, 25)
    assert task.inputs(lengths, Rng.seeded(1).rows(len(lengths)), width=99).shape[1] == 99


@every_case
def test_tokens_are_symbols_and_answers_have_numbers(case: Case):
    lengths = of_every_length(case.task, 25)
    batch = case.task.batch(lengths, Rng.seeded(1).rows(len(lengths)))
    assert batch.inputs.max() < case.task.shape.vocab == len(case.task.symbols) + 1
    assert batch.targets.max() < case.task.shape.answers == len(case.task.answers)
    assert len(set(case.task.symbols)) == len(case.task.symbols)
    assert len(set(case.task.answers)) == len(case.task.answers)


@every_case
def test_drawn_strings_are_in_the_language(case: Case):
    lengths = of_every_length(case.task, 24).repeat(8)
    batch = case.task.batch(lengths, Rng.seeded(2).rows(len(lengths)))
    last = batch.targets.gather(1, lengths[:, None] - 1)[:, 0].tolist()
    answers = {case.task.answers[answer] for answer in set(batch.targets.flatten().tolist()) if answer >= 0}
    assert "dead" not in answers
    if case.ends:
        assert {case.task.answers[answer] for answer in last} == case.ends


@every_task
def test_a_row_is_the_same_in_any_batch(task: Task):
    lengths = of_every_length(task, 25).repeat(100)[:100]
    rng = Rng.seeded(3, "batch")
    many = task.inputs(lengths, rng.rows(100), width=25)
    assert torch.equal(task.inputs(lengths[:8], rng.rows(8), width=25), many[:8])
    assert torch.equal(task.inputs(lengths[40:60], rng.rows(20, first=40), width=25), many[40:60])


@pytest.mark.parametrize("task", [*ALL.values(), Recall(vocabulary=512)], ids=[*ALL, "recall-512"])
def test_a_row_is_the_same_at_any_width(task: Task):
    lengths = of_every_length(task, 25).repeat(4)
    rng = Rng.seeded(3, "width").rows(len(lengths))
    wide = task.inputs(lengths, rng, width=131)
    for width in (25, 26, 40):
        assert torch.equal(task.inputs(lengths, rng, width), wide[:, :width])
    for length in lengths.unique().tolist():
        alike = lengths == length
        assert torch.equal(task.inputs(lengths[alike], Rng(rng.keys[alike])), wide[alike, :length])


@every_task
def test_the_same_seed_gives_the_same_bytes(task: Task):
    lengths = of_every_length(task, 25)
    first, second = (task.inputs(lengths, Rng.seeded(4, "s").rows(len(lengths))) for _ in range(2))
    assert first.numpy().tobytes() == second.numpy().tobytes()


@every_task
def test_another_seed_gives_other_bytes(task: Task):
    lengths = of_every_length(task, 25)
    first, second = (task.inputs(lengths, Rng.seeded(seed).rows(len(lengths))) for seed in (4, 5))
    assert torch.equal(first, second) == one_word_per_length(task)


@every_task
def test_rows_of_a_batch_differ(task: Task):
    longest = int(of_every_length(task, 24).max())
    rows = drawn(task, longest, 6).flatten(1)
    assert (len(rows.unique(dim=0)) == 1) == one_word_per_length(task)


# -- which lengths there are -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.ends or "dyck" in name or "n=2" in name])
def test_a_length_fits_when_some_string_is_in_the_language(name: str):
    """All strings of each short length, solved: does one of them end as words of the language do?"""
    case = CASES[name]
    tokens = torch.arange(1, len(case.task.symbols) + 1)
    for length in range(1, 6 if len(tokens) > 4 else 9 if len(tokens) > 2 else 13):
        if len(tokens) ** length > 70000:
            break
        strings = torch.cartesian_prod(*[tokens] * length).view(-1, length)
        targets = case.task.solve(strings)[:, -1].unique().tolist()
        last = {case.task.answers[answer] for answer in targets if answer >= 0}
        ends = case.ends or (set("1") if case.task.answer_positions == "at the end" else set("01"))
        assert case.task.fits(length) == bool(last & ends), f"length {length}"


@pytest.mark.parametrize(
    ("task", "fitting"),
    [
        (named_task("index-lookup", alphabet=3, positions=6), [2, 3, 4, 5, 6, 7]),
        (named_task("equality-random"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (named_task("equality-ncp"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (named_task("disjointness"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (named_task("nearest-neighbour"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (named_task("recall", vocabulary=12), [3, 5, 7, 9, 11]),
        (named_task("multi-query-recall", pairs_bound=3), [12, 14, 16, 18, 20]),
        (named_task("flip-flop-language"), [4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (named_task("modular-arithmetic-brackets"), list(range(1, 21))),
        (named_task("unique-copy", alphabet=5), [3, 5, 7, 9, 11]),
        (named_task("missing-duplicate"), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (named_task("reverse"), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (named_task("stack-manipulation"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (named_task("binary-addition"), [7, 9, 11, 13, 15, 17, 19]),
        (named_task("selective-copying", tokens=8), [16, 17, 18, 19, 20]),
        (named_task("forgetting-recall", pairs_bound=3, updates=1), [14, 16, 18, 20]),
        (named_task("compositional-recall", pairs_bound=1), [6, 9, 12, 15, 18]),
        (named_task("fuzzy-recall", key_tokens=2, value_tokens=2), [*range(7, 21)]),
        (named_task("phone-book", names=2, digits=1), [7, 11, 15, 19]),
        (named_task("s3"), list(range(1, 21))),
        (named_task("flip-flop"), list(range(1, 21))),
        (named_task("modular-arithmetic"), [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]),
    ],
    ids=lambda value: value.kind if isinstance(value, Task) else "",
)
def test_fitting_lengths(task: Task, fitting: list[int]):
    assert task.lengths(1, 20) == fitting


@every_task
def test_no_input_is_empty(task: Task):
    assert not task.fits(0)
    assert not task.fits(-1)


@pytest.mark.parametrize("name", ["parity", "even-a", "abab", "an-bn", "an-bn-cn", "dyck-1", "dfa", "regex"])
def test_the_number_of_inputs(name: str):
    """Counted one by one."""
    case = CASES[name]
    tokens = torch.arange(1, len(case.task.symbols) + 1)
    for length in case.task.lengths(1, 10):
        strings = torch.cartesian_prod(*[tokens] * length).view(-1, length)
        ends = [case.task.answers.index(end) for end in case.ends or ()]
        words = torch.isin(case.task.solve(strings)[:, -1], torch.tensor(ends)).sum().item()
        assert 2 ** case.task.log2_inputs(length) == pytest.approx(words)


@every_task
def test_there_is_always_an_input_and_never_more_than_there_are_strings(task: Task):
    for length in task.lengths(1, 40):
        most = inf if task.features else length * log2(len(task.symbols))
        assert 0 <= task.log2_inputs(length) <= most + 1e-9


def test_where_no_length_fits():
    with pytest.raises(BadInput, match=r"abab has no input of length 5 to 7; the nearest are 4 and 8$"):
        named_task("abab").lengths(5, 7)
    with pytest.raises(BadInput, match=r"recall has no input of length 9 to 20; the nearest is 7$"):
        named_task("recall", vocabulary=8).lengths(9, 20)
    with pytest.raises(BadInput, match=r"flip-flop-language has no input of length 51; the nearest are 50 and 52$"):
        named_task("flip-flop-language").lengths(51, 51)
    never = named_task("dfa", alphabet="x", table=((0,), (1,)), accept=(1,))  # the accepting state cannot be reached
    with pytest.raises(BadInput, match=r"dfa has no input of length 1 to 10$"):
        never.lengths(1, 10)


@every_task
def test_every_bin_has_inputs(task: Task):
    low, high = task.train_lengths
    bins = task.bins(low, high)
    assert (bins[0].low, bins[0].high) == (low, high)
    for shorter, longer in pairwise(bins):
        assert shorter.high <= longer.high
        assert task.lengths(longer.low, longer.high)


def spans(task: Task, low: int, high: int) -> list[tuple[str, int, int]]:
    return [(bin_.name, bin_.low, bin_.high) for bin_ in task.bins(low, high)]


def test_bins_of_one_length_are_at_lengths_with_inputs():
    """Where the longest training length has no input, or its double; else such a bin would be left out silently."""
    flip_flop = named_task("flip-flop-language")
    assert spans(flip_flop, 10, 51) == [("Bin0", 10, 51), ("Sparse", 50, 50), ("Dense", 50, 50), ("Bin1", 52, 102)]
    compound = named_task("compositional-recall")
    assert spans(compound, 50, 100) == [("Bin0", 50, 100), ("Bin1", 198, 198), ("Bin2", 399, 399), ("Bin3", 798, 798)]
    assert spans(compound, 66, 66)[1:] == [("Bin1", 132, 132), ("Bin2", 264, 264), ("Bin3", 528, 528)]


@pytest.mark.parametrize(
    "task",
    [
        named_task("parity"),
        named_task("flip-flop-language"),
        named_task("selective-copying"),
        named_task("multi-query-recall"),
    ],
    ids=lambda task: task.kind,
)
def test_no_bin_is_longer_than_an_input_may_be(task: Task):
    for high in (20_000, 60_000, LONGEST):
        bins = task.bins(high, high)
        assert bins[-1].high <= LONGEST
        assert bins[0].high == high
        assert len(bins) == 1 or bins[-1].high > high or bins[-1].name == "Dense"


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("parity", 2, 50),
        ("dyck-1", 2, 50),
        ("reset-dyck-1", 2, 50),
        ("shuffle", 2, 50),
        ("even-a", 2, 500),
        ("abab", 4, 500),
        ("an-bn", 2, 2 * 50),
        ("an-bn-cn", 3, 3 * 50),
        ("index-lookup", 11, 101),
    ],
)
def test_published_training_lengths(name: str, low: int, high: int):
    assert named_task(name).train_lengths == (low, high)


@every_task
def test_the_number_of_inputs_is_never_overestimated(task: Task):
    """Lengths are split between training and testing only where there are enough inputs for it."""
    short = [length for length in range(1, 14) if task.fits(length) and task.log2_inputs(length) < 8][:4]
    for length in short:
        counts = (len(drawn(task, length, rows).unique(dim=0)) for rows in (1 << 14, 1 << 17))  # more for rare inputs
        assert any(count >= 2 ** task.log2_inputs(length) - 0.5 for count in counts)


def test_a_language_with_one_word_of_each_length_is_not_split_by_its_answers():
    """Else nearly all test strings of 1* would be outside of it: its words would be one row, or in another part."""
    assert named_task("tomita", grammar=1, questions="at the end").log2_inputs(30) == 0
    assert named_task("tomita", grammar=1).log2_inputs(30) > FEWEST_BITS, "every prefix has an answer"
    assert named_task("tomita", grammar=5, questions="at the end").log2_inputs(31) > 30, "no odd length has a word"
    for grammar in range(1, 8):
        task = named_task("tomita", grammar=grammar, questions="at the end")
        held = held_out(task, Bin(name="Bin1", low=41, high=80), (2, 40), 240, "test", torch.device("cpu"))
        last = held.batch.targets.amax(1).double()
        assert 0.15 < last.mean() < 0.85


def test_many_expressions_are_not_counted_one_length_after_the_other():
    task = named_task("modular-arithmetic-brackets")
    assert task.log2_inputs(100_000) == task.log2_inputs(200)
    assert task.log2_inputs(199) < task.log2_inputs(203) == task.log2_inputs(99_999)


def test_tables_that_a_cuda_graph_may_read_are_kept():
    """A longer draw needs a longer table; the shorter one stays, with the same numbers."""
    task, device = named_task("even-a"), torch.device("cpu")
    assert isinstance(task, RegularTask)
    walks = task.words
    short = walks.choices(8, device)
    long = walks.choices(20, device)
    assert walks.choices(8, device) is short
    assert torch.equal(long[:8], short)
