"""Scores and verdicts, on models whose behaviour is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.lab.data import HeldOut, held_out
from assay.lab.evaluate import (
    CHUNK_PAIRS,
    CHUNK_TOKENS,
    Marks,
    answer_counts,
    answers_of,
    evaluate,
    favourite,
    first_failing_length,
    predict,
    predict_sets,
    random_verdict,
    rows_per_pass,
)
from assay.lab.execute import backends
from assay.lab.stacking import build_module
from assay.lab.stepping import answers_by_step, is_stepwise
from assay.models import named_model
from assay.rng import Rng
from assay.spec import run_spec
from assay.tasks import named_task
from assay.tasks.bins import Bin
from assay.tasks.task import IGNORE, Batch, Task

CPU = torch.device("cpu")


class Oracle(nn.Module):
    """Answers as the task does, up to some length, and wrongly beyond."""

    def __init__(self, task: Task, until: int) -> None:
        super().__init__()
        self.task, self.until = task, until

    def forward(self, inputs: Tensor) -> Tensor:
        right = self.task.solve(inputs).clamp(min=0)
        answers = self.task.shape.answers
        wrong = (right + 1) % answers
        late = torch.arange(inputs.shape[1]) >= self.until
        return nn.functional.one_hot(torch.where(late, wrong, right), answers).float()


class Constant(nn.Module):
    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, inputs: Tensor) -> Tensor:
        logits = torch.zeros(*inputs.shape[:2], self.answers)
        logits[..., 0] = 1
        return logits


SPEC = run_spec("parity", "lstm", testing={"rows": 96})


def judged(model: nn.Module) -> tuple[str, int | None]:
    scores, collapsed = evaluate(model, SPEC, CPU)
    return random_verdict(scores, collapsed), first_failing_length(scores, None)


def test_a_perfect_model_has_solved_the_task():
    assert judged(Oracle(SPEC.task, 10_000)) == ("solved", None)


def test_a_model_that_fails_beyond_a_length_has_partly_solved_it():
    scores, collapsed = evaluate(Oracle(SPEC.task, 60), SPEC, CPU)
    assert random_verdict(scores, collapsed) == "partly solved"
    failing = first_failing_length(scores, None)
    tested = sorted(row.length for score in scores for row in score.lengths)
    assert failing == min(length for length in tested if length > 60)
    by_bin = {score.bin: score for score in scores}
    assert by_bin["Bin0"].sequences == 1
    assert 0 < by_bin["Bin1"].sequences < 1
    assert by_bin["Bin2"].sequences == 0
    lengths = [row for row in by_bin["Bin1"].lengths if row.length == 75] or by_bin["Bin1"].lengths[-1:]
    assert lengths[0].answers == pytest.approx(60 / lengths[0].length)


def test_a_model_that_fails_where_it_was_trained_is_censored():
    assert judged(Oracle(SPEC.task, 20)) == ("censored", min(n for n in held_lengths() if n > 20))


def held_lengths() -> list[int]:
    return (
        held_out(SPEC.task, SPEC.testing.bins[0], SPEC.training.lengths, SPEC.testing.rows, "test", CPU)
        .lengths.unique()
        .tolist()
    )


def test_one_answer_to_everything_is_a_collapse():
    scores, collapsed = evaluate(Constant(2), SPEC, CPU)
    assert collapsed
    assert random_verdict(scores, collapsed) == "collapsed"
    assert scores[0].favourite == 1


def test_logits_that_are_not_numbers_are_never_right():
    class Broken(Oracle):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) * torch.nan

    assert (predict(Broken(SPEC.task, 10_000), torch.ones(3, 5, dtype=torch.int64)) == -1).all()
    assert evaluate(Broken(SPEC.task, 10_000), SPEC, CPU)[0][0].answers == 0


@pytest.mark.parametrize(
    ("model", "length", "rows"), [("transformer", 128, 512), ("transformer", 256, 128), ("lstm", 128, 256)]
)
def test_rows_of_a_chunk_follow_what_the_model_holds(model: str, length: int, rows: int):
    """A number for every pair of tokens, or a fixed number for every token."""
    chunks: list[int] = []
    with torch.no_grad():
        predict(
            named_model(model, width=8, layers=1).build(2, 0, 2, Rng.seeded(0)),
            torch.ones(rows + 1, length, dtype=torch.int64),
            chunks.append,
        )
    assert chunks == [rows, 1]


@pytest.mark.parametrize(
    ("model", "options", "pairs"),
    [
        ("transformer", {}, False),
        ("transformer", {"positions": "alibi"}, False),
        ("forgetting-transformer", {}, False),
        ("transformer", {"weighting": "hard"}, True),
        ("stick-breaking", {}, True),
        ("path", {}, True),
        ("hybrid", {"mixers": ("attention", "stick-breaking")}, True),
        ("hybrid", {"mixers": ("attention", "gru")}, False),
    ],
)
def test_attention_without_a_kernel_holds_a_number_for_every_pair(model: str, options: dict[str, Any], pairs: bool):
    """On inputs so long that softmax attention has a kernel, which holds none."""
    built = named_model(model, width=8, **options).build(2, 0, 2, Rng.seeded(0))
    assert rows_per_pass(built, 512, CPU) == (CHUNK_PAIRS["cpu"] // 512**2 if pairs else CHUNK_TOKENS["cpu"] // 512)
    if "hybrid" not in model:
        assert ("attention" in backends(built, 512)) != pairs, "a record names only operators that ran"


def test_rows_are_chunked_without_a_change():
    held = held_out(named_task("dyck-1"), Bin(name="B", low=900, high=1000), (2, 50), 40, "test", CPU)
    marks = Marks.of(held, predict(Oracle(named_task("dyck-1"), 950), held.batch.inputs), 3)
    assert marks.sequences() == float((held.lengths <= 950).double().mean())


def test_favourite():
    assert answer_counts(torch.tensor([[IGNORE, 0, -1], [2, 2, -1]]), 4).tolist() == [1, 0, 2, 0, 0]
    assert answer_counts(torch.tensor([0, 7, 9]), 2).tolist() == [1, 0, 2]
    assert favourite(answer_counts(torch.tensor([1, 1, 2, 1]), 3)) == 0.75
    assert math.isnan(favourite(answer_counts(torch.tensor([-1, -1]), 2)))
    assert math.isnan(favourite(answer_counts(torch.tensor([], dtype=torch.int64), 2)))


class Saying(nn.Module):
    """Answers what it was given to say."""

    def __init__(self, said: Tensor) -> None:
        super().__init__()
        self.said = said

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.one_hot(self.said, 3).float()


def test_scores_by_length():
    """Shares of sequences are doubles, shares of answers floats; a row that asks nothing is right."""
    targets = torch.tensor([[1, 2, 0], [0, IGNORE, IGNORE], [2, 2, 2], [IGNORE] * 3, [0, 1, 1]])
    said = torch.tensor([[1, 2, 1], [1, 0, 0], [2, 2, 2], [0, 1, 2], [2, 1, 1]])
    held = HeldOut(Batch(torch.ones_like(targets), targets), torch.tensor([3, 1, 3, 2, 3]), shared=4)
    score = Marks.of(held, predict(Saying(said), held.batch.inputs), 3).score("Bin0", held.shared)
    assert (score.bin, score.rows, score.shared) == ("Bin0", 5, 4)
    assert (score.sequences, score.answers) == (2 / 5, float(torch.tensor(7 / 10)))
    assert score.favourite == float(torch.tensor(5 / 10))
    rows = [(row.length, row.rows, row.sequences, row.answers) for row in score.lengths]
    assert rows == [(1, 1, 0.0, 0.0), (2, 1, 1.0, 0.0), (3, 3, 1 / 3, float(torch.tensor(7 / 9)))]


def test_sets_of_inputs_are_answered_as_each_alone():
    model = Oracle(SPEC.task, 10)
    sets = [torch.randint(1, 3, shape) for shape in ((3, 5), (2, 8), (4, 5), (1, 12))]
    for inputs, answers in zip(sets, predict_sets(model, sets), strict=True):
        assert torch.equal(answers, predict(model, inputs))


@pytest.mark.parametrize("name", ["lstm", "delta-net", "srwm", "dss"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_model_that_computes_step_by_step_gives_the_same_answers(name: str, length: int):
    """On a GPU the step is replayed as a CUDA graph; here it is called."""
    spec = run_spec("cyclic", name, task_options={"n": 5}, model_options={"state": {"numbers": "fixed:3.5"}})
    model, inputs = build_module(spec, CPU).eval(), torch.randint(1, 6, (7, length))
    assert is_stepwise(model)
    assert torch.equal(answers_by_step(model, inputs, answers_of), predict(model, inputs))
    assert not is_stepwise(build_module(run_spec("cyclic", name, task_options={"n": 5}), CPU))
