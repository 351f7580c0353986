"""The runs of the second paper's study and of its laptop variant: pieces, lengths, sizes, rates, budget, claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from assay.analysis.growth import RESAMPLES, Growth, compared
from assay.analysis.lengths import judge_lengths, needed_share, place_of
from assay.analysis.settings import LEARNED
from assay.analysis.summary import lengths_of, summarize
from assay.lab.data import held_out
from assay.rng import Rng
from assay.studies import Study, study_named
from assay.studies.separations2024 import (
    BEYOND,
    DISJOINT,
    DYCK,
    EQUAL,
    LOOKUP,
    MANY,
    NEAREST,
    NUMBERS,
    ONE_OFF,
    PARTS,
    RECURRENT,
    SHORTEST,
    TRANSFORMER,
)
from assay.studies.separations2024_laptop import OTHERS as LAPTOP_RATES
from assay.studies.separations2024_runs import BATCH, Block, training_lengths
from assay.tasks import named_task
from assay.tasks.bins import Bin
from assay.tasks.task import IGNORE

NAMES = ("separations2024", "separations2024-laptop")
PAPER = Path(__file__).parents[1] / "docs" / "papers" / "separations2024.md"
CHOSEN, PIECE = 90, 9  # minutes on an H200 by forecast


@pytest.fixture(scope="module", params=NAMES)
def study(request: pytest.FixtureRequest) -> Study:
    return study_named(request.param)


def test_no_run_is_in_two_pieces(study: Study):
    assert len({run.digest for run in study.runs}) == len(study.runs)
    assert sum(map(len, study.variants.values())) == len(study.runs)


def test_every_piece_has_a_question_and_every_variant_one_depth(study: Study):
    assert study.separations
    assert study.separations.questions.keys() == study.pieces.keys()
    for variant, runs in study.variants.items():
        layers = {len(run.model.plain()["mixers"]) for run in runs}
        assert len(layers) == 1
        (depth,) = layers
        assert variant.endswith(f", {depth} layer{'s' * (depth > 1)}")


def test_every_run_is_tested_at_its_length_and_steered_by_validation(study: Study):
    for run in study.runs:
        longest = run.training.lengths[1]
        assert (run.testing.bins[-1].low, run.testing.bins[-1].high) == (longest, longest)
        assert (run.training.validation[-1].low, run.training.validation[-1].high) == (longest, longest)
        assert (run.training.keep, run.training.batch, run.training.stop) == ("best", 64, "solved")


def test_every_expectation_is_about_runs_of_the_study(study: Study):
    judgements = judge_lengths(study.findings, lengths_of(summarize(study), []))
    assert all(one.cells for one in judgements)
    assert study.separations
    assert study.separations.main in {finding.name for finding in study.findings}
    named = {*study.separations.recurrent, study.separations.attention, *(v for v, _ in study.separations.growing)}
    named |= {variant for comparison in study.comparisons for variant in comparison.variants}
    assert named <= set(study.variants)


def test_quotations_stand_in_what_we_have_of_the_paper(study: Study):
    text = " ".join(PAPER.read_text().split())
    quoted = [finding for finding in study.findings if finding.quote]
    assert quoted
    assert all(finding.quote in text for finding in quoted)
    for finding in study.findings:
        if not finding.quote:
            assert finding.source.startswith("asked here" if finding.asked_here else "expected from theory")


def test_only_what_is_asked_here_says_that_a_model_fails(study: Study):
    """The bounds allow every width that was tried, at 32 bits a number: theory and the paper expect no failure."""
    for finding in study.findings:
        if any(expected.outcome == "fails" for expected in finding.expects):
            assert finding.asked_here, finding.name


def blocks() -> list[tuple[str, Block]]:
    return [(name, block) for name, part in PARTS.items() for block in part.blocks]


def test_the_length_of_a_block_is_the_length_of_its_place():
    """The analysis reads N from a run; recall counts pairs, and what is looked up or compared has no mark in N."""
    for _, block in blocks():
        for length in block.lengths:
            small = Block(block.task, (length,), "lstm", 1, (8,), (1e-3,), 1, 1, task_options=block.task_options)
            (run,) = small.runs()
            assert place_of(run.plain()).length == length, block.task
    assert {block.task for _, block in blocks()} >= {MANY, NEAREST}


def test_training_asks_for_nearly_every_position_of_a_lookup_often_enough():
    """With symbols from 10 on, the last positions are in few inputs: a run that never saw them shows nothing."""
    for name, block in blocks():
        for high in block.lengths if block.task == LOOKUP else ():
            low, late = min(block.shortest, high), int(0.95 * high)
            share = sum(1 / k for k in range(max(low, late), high + 1)) / (high - low + 1)
            assert block.steps * BATCH * share > 100, (name, high)


@pytest.mark.parametrize(("task", "length"), [("bounded-dyck", 50), ("bounded-dyck", 100), ("equality-random", 81)])
def test_counting_symbols_alone_does_not_solve_a_task(task: str, length: int):
    """It would with the share that is enough elsewhere."""
    built = named_task(task)
    inputs = built.inputs(torch.full((8000,), length), Rng.seeded(0).rows(8000))
    if task == "bounded-dyck":  # as many closing as opening brackets of each type
        counts = [(inputs == token).sum(1) for token in range(1, 5)]
        guess = (counts[0] == counts[1]) & (counts[2] == counts[3])
    else:  # as many 1s in both halves
        guess = (inputs[:, : length // 2] == 2).sum(1) == (inputs[:, length // 2 + 1 :] == 2).sum(1)
    right = (guess.long() == built.solve(inputs)[:, -1]).double().mean()
    assert LEARNED < right < needed_share({"task": built.plain()})


def test_states_are_tried_at_the_rate_that_trials_chose():
    """The laptop's trials chose 1e-2 for LSTM, Mamba and DeltaNet; of lookup it should not lie beyond the rates."""
    for name, block in blocks():
        if name.startswith("lookup: recurrence to") or name == "lookup: recurrence at 200":
            assert max(block.rates) == max(LAPTOP_RATES), block.model


def test_half_of_the_held_out_strings_of_a_decision_have_either_answer():
    """Of strings of few bits, too few are equal for a split to hold out."""
    decisions = [block for _, block in blocks() if block.task in (EQUAL, ONE_OFF, DISJOINT, DYCK, NEAREST)]
    tasks = {(block.task, n, tuple(sorted(block.task_options.items()))) for block in decisions for n in block.lengths}
    for task, n, options in sorted(tasks):
        (run,) = Block(task, (n,), "lstm", 1, (8,), (1e-3,), 1, 1, task_options=dict(options)).runs()
        low, high = training_lengths(run.task, n, SHORTEST.get(task, 10))
        bin_ = Bin(name="Bin1" if low < high else "Bin0", low=high, high=high)
        targets = held_out(run.task, bin_, (low, high), 512, "test", torch.device("cpu")).batch.targets
        assert 0.4 < targets[targets != IGNORE].double().mean() < 0.6, (task, n)


@pytest.mark.parametrize(("form", "smallest"), [("N", 0.1), ("log N", 3.0)])
def test_the_planned_widths_can_tell_how_the_smallest_one_grows(form: str, smallest: float):
    """Where the smallest width lies between two tried ones is unknown: too few of them decide nothing."""
    tried: dict[int, set[int]] = {}
    for name, block in blocks():
        if name.startswith(("lookup: attention", "lookup: one head")):
            for length in block.lengths:
                tried.setdefault(length, set()).update(block.widths)
    lengths, position = np.array(sorted(tried), dtype=float), np.random.default_rng(0).random((RESAMPLES, len(tried)))
    needed = smallest * (lengths if form == "N" else np.log2(lengths))
    draws = np.empty_like(position)
    for i, (n, least) in enumerate(zip(sorted(tried), needed, strict=True)):
        above = min(width for width in tried[n] if width >= least)
        below = max((width for width in tried[n] if width < least), default=1)
        draws[:, i] = above * (below / above) ** position[:, i]
    nearer, exponent = compared(lengths, draws, np.array([max(tried[n]) for n in sorted(tried)], dtype=float))
    assert Growth("", "", "reachable", (), nearer, exponent).decision == form


def test_attention_and_recurrence_have_equal_steps_at_every_length_of_lookup():
    steps: dict[int, dict[str, set[int]]] = {}
    for name, block in blocks():
        if block.task == LOOKUP and name.startswith("lookup: ") and not block.change:
            for length in block.lengths:
                kind = TRANSFORMER if block.model == TRANSFORMER else "state"
                steps.setdefault(length, {}).setdefault(kind, set()).add(block.steps)
    assert {400, 800} < steps.keys()
    for kinds in steps.values():
        assert len(set.union(*kinds.values())) == 1


def test_five_seeds_but_where_rates_are_looked_for():
    assert {block.seeds for name, block in blocks() if name != "rates"} == {5}
    for model in RECURRENT:
        (block,) = (block for name, block in blocks() if name == "rates" and block.model == model)
        assert (max(block.rates), min(block.rates)) == (1e-2, 1e-6)


def test_rounded_states_lie_below_and_above_the_bits_that_lookup_needs():
    (block,) = (block for name, block in blocks() if name == "state bits" and block.numbers == NUMBERS)
    bits = sorted(2 * width * number for width in block.widths for number in (2, 3, 5, 8))
    needed = 20 * 6  # of 64 symbols
    assert bits[0] < needed / 2
    assert bits[-1] > 4 * needed


def test_positions_reach_the_longest_input():
    (piece,) = (runs for name, runs in study_named("separations2024").pieces.items() if "1,600" in name)
    assert max(run.longest for run in piece) == 1601
    assert all(run.model.plain()["longest"] == run.longest for run in piece)


def test_the_pieces_fit_the_budget(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    import forecast

    rows = forecast.table(study_named("separations2024"), forecast.measured(forecast.RECORD))
    assert all(row.minutes <= PIECE for row in rows)
    assert all(row.question == PARTS[row.piece].question for row in rows)
    chosen = [row for row in rows if not row.piece.startswith(BEYOND)]
    assert rows[: len(chosen)] == chosen, "what is beyond the budget comes last"
    assert sum(row.minutes for row in chosen) < CHOSEN
    (block,) = (block for name, block in blocks() if name == "state bits" and block.numbers == NUMBERS)
    rounded = block.runs()[0]
    plain = rounded.model_copy(update={"model": rounded.model.model_copy(update={"state": None})})
    speeds = {"lstm": 1.0}
    assert forecast.seconds(rounded, speeds) == pytest.approx(forecast.STEPWISE * forecast.seconds(plain, speeds))
