"""Fixed training sets, published strings, tests with both strings, and tests at every length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import BadInput
from assay.lab.data import Split, TrainingData, held_out, held_out_shape
from assay.lab.execute import execute
from assay.lab.memory import Forecast
from assay.lab.other_strings import other_scores
from assay.lab.population import Population
from assay.lab.program import program_of
from assay.lab.splits import VALIDATE, content_hash, has_few_inputs, part_of
from assay.lab.training_sets import PUBLISHED_ROWS, published_set, training_set
from assay.lab.weights import load_model
from assay.ops.dispatch import is_installed
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.tasks.bins import Bin
from assay.tasks.task import IGNORE

from .alone import DEVICE, batch, trained
from .test_evaluate import Oracle

CPU = torch.device("cpu")
BENCH = Path(__file__).parents[2] / "bench"
PUBLISHED = ("dyck-1", "shuffle", "reset-dyck-1")


def run(task: str, strings: str = "published", seed: int = 0, **changes: Any) -> RunSpec:
    """A small run on a fixed training set."""
    training = {"lengths": [2, 20], "batch": 16, "fixed": 200, "validation_rows": 16, "validate_every": 5, "steps": 10}
    return run_spec(
        task,
        changes.pop("model", "gru"),
        seed=seed,
        model_options={"width": 8} | changes.pop("model_options", {}),
        task_options={"strings": strings} | changes.pop("task_options", {}),
        training=training | changes.pop("training", {}),
        testing={"rows": 16} | changes.pop("testing", {}),
    )


def set_of(spec: RunSpec) -> torch.Tensor:
    assert spec.training.fixed is not None
    return training_set(spec.task, spec.training.lengths, spec.training.fixed, CPU).inputs


# -- fixed training sets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["parity", "an-bn", "s3", "nearest-neighbour", "reset-dyck-1"])
def test_a_fixed_set_is_drawn_from_the_training_split(task: str):
    training = {"lengths": [3, 20], "fixed": 600, "batch": 16}
    spec = run_spec(task, "gru", training=training)
    inputs = set_of(spec)
    filled = inputs != 0 if inputs.ndim == 2 else (inputs != 0).any(-1)
    lengths = filled.sum(1)
    few = torch.tensor([has_few_inputs(spec.task, length) for length in lengths.tolist()])
    assert ((part_of(inputs) > VALIDATE) | few).all()
    usable = spec.task.lengths(3, 20)
    counts = lengths.bincount(minlength=21)[usable].double()
    expected = 600 / len(usable)
    assert counts.sum() == 600
    assert ((counts - expected).abs() < 5 * expected**0.5).all(), "lengths are uniform"
    assert torch.equal(set_of(run_spec(task, "gru", training=training | {"fixed": 50})), inputs[:50])


@pytest.mark.parametrize("strings", ["uniform", "published"])
def test_batches_are_rows_of_the_fixed_set(strings: str):
    spec, other = run("dyck-1", strings, seed=3), run("dyck-1", strings, seed=4)
    inputs = set_of(spec)
    assert torch.equal(inputs, set_of(other)), "the set does not depend on the seed"
    drawn = [batch(spec, step, CPU) for step in range(1, 41)]
    for one in drawn:
        assert torch.isin(content_hash(one.inputs), content_hash(inputs)).all()
        assert torch.equal(one.targets, spec.task.solve(one.inputs))
        assert (one.targets != IGNORE).any(1).all()
    known = content_hash(torch.cat([one.inputs for one in drawn])).unique()
    assert len(known) > 0.9 * len(content_hash(inputs).unique()), "and nearly all rows of it are drawn"
    assert not torch.equal(drawn[0].inputs, drawn[1].inputs)
    assert not torch.equal(drawn[0].inputs, batch(other, 1, CPU).inputs), "the seed decides which rows"


def test_a_batch_of_a_fixed_set_is_the_same_beside_whatever_it_is_drawn():
    spec = run("reset-dyck-1", seed=3)
    seeds, first = torch.tensor([[9, 3, 2**62], [1, 6, 40]])
    drawn = TrainingData(spec.task, spec.training, CPU).draw(seeds, first, 4)
    assert drawn.inputs.shape == (3, 4, 16, 41)
    for count in range(4):
        assert torch.equal(drawn.inputs[1, count], batch(spec, 6 + count, CPU).inputs)
        assert torch.equal(drawn.targets[1, count], batch(spec, 6 + count, CPU).targets)


def test_runs_of_one_population_share_the_size_of_their_sets_and_their_widths():
    base = run("reset-dyck-1", "uniform")
    assert program_of(base) == program_of(run("reset-dyck-1", "uniform", seed=1))
    assert program_of(base) != program_of(run("reset-dyck-1", "uniform", training={"fixed": 100}))
    assert program_of(base) != program_of(run("reset-dyck-1", "uniform", training={"fixed": None}))
    assert program_of(base) != program_of(run("reset-dyck-1", "published")), "whose inputs are longer"
    assert program_of(run("dyck-1", "uniform")) == program_of(run("dyck-1", "published"))


@pytest.mark.parametrize(
    "specs",
    [
        [run("dyck-1", "uniform", seed=0), run("dyck-1", "published", seed=1), run("dyck-1", "published", seed=2)],
        [run("reset-dyck-1", seed=0), run("reset-dyck-1", seed=1)],
    ],
    ids=["both strings of dyck-1", "reset-dyck-1"],
)
def test_members_with_fixed_sets_take_the_paths_that_they_take_alone(specs: list[RunSpec]):
    tasks = list(dict.fromkeys(spec.task for spec in specs))
    population = Population(specs[0], tasks, len(specs), DEVICE, torch.float64)
    assert population.batches.inputs.shape[-1] == specs[0].width
    for slot, spec in enumerate(specs):
        population.admit(slot, spec)
    reports = population.round()
    for slot, spec in enumerate(specs):
        alone, losses = trained(spec, 5)
        assert reports[slot].loss == pytest.approx(sum(losses), rel=1e-8)
        for ours, theirs in zip(population.module(slot).parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)
    assert reports[0].sequences.keys() == {"Val0", "Val1"}


@pytest.mark.skipif(not is_installed("triton"), reason="triton is not installed")
def test_a_draw_from_a_fixed_set_can_be_captured(monkeypatch: pytest.MonkeyPatch):
    """With tensors without contents: nothing waits for the device, and no shape depends on values."""
    monkeypatch.syspath_prepend(BENCH)
    import launches

    spec = run("reset-dyck-1", model="lstm", model_options={"width": 64}, training={"fixed": 1000})
    step, draw = launches.launches(spec, members=8)
    assert step.total() <= 100
    assert draw.total() <= 40
    assert not {"_local_scalar_dense", "nonzero"} & {*step, *draw}


def test_the_forecast_of_memory_counts_the_set():
    small, large = (
        Forecast(spec, [spec.task], CPU)(2) for spec in (run("reset-dyck-1", training={"fixed": n}) for n in (10, 1010))
    )
    assert large - small >= 1000 * 41 * 16


# -- published strings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", PUBLISHED)
def test_a_published_training_set_has_no_string_twice(task: str):
    spec = run_spec(task, "gru", task_options={"strings": "published"}, training={"fixed": PUBLISHED_ROWS})
    inputs = set_of(spec)
    assert inputs.shape == (PUBLISHED_ROWS, spec.width)
    assert len(inputs.unique(dim=0)) == PUBLISHED_ROWS
    drawn = spec.task.published(2, 50, Rng.seeded(0, "published", "train").rows(4 * PUBLISHED_ROWS))
    first = dict.fromkeys(content_hash(drawn).tolist())
    assert list(first)[:5000] == content_hash(inputs).tolist()[:5000], "the first occurrences, in their order"
    mean = {"dyck-1": 31.6, "shuffle": 25.7, "reset-dyck-1": 29.1}[task]  # simulated with the published rules
    assert abs((inputs > 0).sum(1).double().mean() - mean) < 0.5


@pytest.mark.parametrize("task", PUBLISHED)
def test_published_held_out_sets_count_what_training_shows(task: str):
    spec = run_spec(task, "gru", task_options={"strings": "published"}, training={"fixed": PUBLISHED_ROWS})
    known = {tuple(row) for row in set_of(spec).tolist()}
    hashes = dict[str, torch.Tensor]()
    sets: list[tuple[Bin, Split]] = [(spec.testing.bins[0], "test"), (spec.training.validation[0], "validate")]
    for bin_, split in sets:
        held = held_out(spec.task, bin_, (2, 50), 200, split, CPU)
        rows = held.batch.inputs
        assert rows.shape == (200, spec.width) == held_out_shape(spec.task, bin_, (2, 50), 200, split)
        assert len(rows.unique(dim=0)) == 200
        assert held.shared == sum(tuple(row) in known for row in rows.tolist())
        assert 10 < held.shared < 190
        assert torch.equal(held.lengths, (rows > 0).sum(1))
        assert torch.equal(held.batch.targets, spec.task.solve(rows))
        hashes[split] = content_hash(rows)
    assert not torch.equal(hashes["test"], hashes["validate"])
    assert held_out(spec.task, spec.testing.bins[1], (2, 50), 64, "test", CPU).shared == 0


def test_too_few_published_strings_are_a_mistake_in_one_line():
    spec = run("dyck-1", training={"lengths": [2, 4]})  # (), (()), ()()
    with pytest.raises(BadInput, match=r"^dyck-1 has too few .* training.fixed = 200: 3 were found$"):
        set_of(spec)
    assert execute(spec, CPU).error == "dyck-1 has too few published strings of length 2 to 4 for training.fixed = " + (
        "200: 3 were found"
    )
    assert len(published_set(spec.task, 2, 4, 10, "test", "Bin0")) == 3, "a held-out set has as many as there are"


def test_published_strings_need_a_fixed_set():
    with pytest.raises(BadInput, match=r"^dyck-1: published strings need a fixed training set; set training.fixed"):
        run("dyck-1", training={"fixed": None})


def test_a_model_must_read_the_longest_published_string():
    reset = run("reset-dyck-1", testing={"bins": [{"name": "Bin0", "low": 2, "high": 20}]})
    assert (reset.width, reset.longest) == (41, 61)  # Val1 ends at 30
    bins = [{"name": "Bin0", "low": 2, "high": 20}, {"name": "Bin1", "low": 21, "high": 40}]
    uniform = run("reset-dyck-1", "uniform", testing={"both_strings": True, "bins": bins})
    assert (uniform.width, uniform.longest) == (20, 81)
    with pytest.raises(BadInput, match="inputs of 2049 tokens"):
        run("reset-dyck-1", model="transformer", model_options={"positions": "learned", "longest": 60})


# -- both strings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strings", ["uniform", "published"])
def test_a_run_is_tested_on_both_strings(strings: str):
    spec = run("reset-dyck-1", strings, testing={"both_strings": True, "rows": 64})
    model = Oracle(spec.task, until=25)
    scores = other_scores(model, spec, CPU)
    assert [score.bin for score in scores] == ["Bin0", "Bin1"]
    longest = {"uniform": 41, "published": 20}[strings]
    assert scores[0].lengths[-1].length <= longest
    for score in scores:
        wrong = [row for row in score.lengths if row.sequences < 1]
        assert min((row.length for row in wrong), default=26) >= 26
    plain = run("reset-dyck-1", strings)
    assert other_scores(model, plain, CPU) == ()
    assert spec.digest != plain.digest
    assert "both_strings" not in plain.testing.plain()


def test_other_scores_say_what_the_own_training_may_have_shown():
    window = Bin(name="Bin0", low=2, high=20)
    published, uniform = (
        run("dyck-1", strings, testing={"both_strings": True, "rows": 100}) for strings in ("published", "uniform")
    )
    model = Oracle(published.task, until=1000)
    rows = held_out(uniform.task, window, (2, 20), 100, "test", CPU).batch.inputs
    known = content_hash(published_set(published.task, 2, 20, PUBLISHED_ROWS, "train"))
    assert other_scores(model, published, CPU)[0].shared == int(torch.isin(content_hash(rows), known).sum()) > 0
    rows = held_out(published.task, window, (2, 20), 100, "test", CPU).batch.inputs
    in_training = (part_of(rows) > VALIDATE) | ((rows > 0).sum(1) <= 10)  # there are few words of up to 10 tokens
    shared = [score.shared for score in other_scores(model, uniform, CPU)]
    assert shared == [int(in_training.sum()), 0]


def test_other_scores_do_not_change_the_verdict():
    base, both = (run("dyck-1", testing={"both_strings": both}) for both in (False, True))
    first, second = (execute(spec, CPU) for spec in (base, both))
    assert first.other_scores == ()
    assert "other_scores" not in first.plain()
    assert [score.bin for score in second.other_scores] == ["Bin0", "Bin1"]
    assert (first.scores, first.verdict, first.first_failing_length) == (
        second.scores,
        second.verdict,
        second.first_failing_length,
    )


def test_further_states_are_tested_on_both_strings_too():
    states = ("best", "watched", "averaged")
    spec = run(
        "dyck-1",
        training={"steps": 40, "lr": 1e-2},
        testing={"both_strings": True, "states": states, "watch_every": 5},
    )
    record = execute(spec, CPU)
    for name in states:
        state = record.state(name)
        assert state
        expected = other_scores(load_model(record, state=name), spec, CPU)
        assert [score.lengths for score in state.other_scores] == [(), ()]
        assert [(s.bin, s.sequences, s.answers, s.shared) for s in state.other_scores] == [
            (s.bin, s.sequences, s.answers, s.shared) for s in expected
        ]
    assert {score.answers for state in record.states for score in state.other_scores} != {1.0}


@pytest.mark.parametrize("options", [{"task": "parity"}, {"task": "shuffle", "task_options": {"k": 3}}])
def test_tasks_without_published_strings_have_no_other_strings(options: dict[str, Any]):
    with pytest.raises(BadInput, match="no published strings") as caught:
        run_spec(**options, model="gru", testing={"both_strings": True})
    assert "\n" not in str(caught.value)


# -- every length ------------------------------------------------------------------------------------------------------

VAL0 = [{"name": "Val0", "low": 4, "high": 40}]


@pytest.mark.parametrize("task", ["an-bn", "even-a", "an-bn-cn"])
def test_every_length_of_a_language_with_one_word_per_length_is_tested(task: str):
    spec = run_spec(
        task, "gru", training={"lengths": [4, 40], "validation": VAL0}, testing={"every_length": True, "rows": 8}
    )
    for bin_ in spec.testing.bins:
        held = held_out(spec.task, bin_, (4, 40), 8, "test", CPU, True)
        assert held.lengths.tolist() == spec.task.lengths(bin_.low, bin_.high), "one row each, though rows = 8"
        assert held.shared == (len(held.lengths) if bin_.name == "Bin0" else 0)
        assert held_out_shape(spec.task, bin_, (4, 40), 8, "test", True) == tuple(held.batch.targets.shape)
    assert len(held_out(spec.task, spec.testing.bins[1], (4, 40), 8, "test", CPU).lengths) <= 8, "by default fewer"


def test_every_length_of_a_larger_language_is_tested():
    spec = run_spec("parity", "gru", training={"validation": [{"name": "Val0", "low": 2, "high": 50}]})
    held = held_out(spec.task, spec.testing.bins[1], (2, 50), 120, "test", CPU, True)
    assert held.lengths.bincount()[51:].tolist() == [3] * 20 + [2] * 30
    assert held.shared == 0


def test_a_run_that_tests_every_length_records_them():
    training = {"lengths": [2, 10], "steps": 1, "validation": [{"name": "Val0", "low": 2, "high": 10}]}
    record = execute(
        run_spec("an-bn", "gru", training=training, testing={"every_length": True, "rows": 3}), torch.device("cpu")
    )
    assert [row.length for row in record.scores[1].lengths] == [12, 14, 16, 18, 20]


def test_every_length_leaves_none_for_validation():
    with pytest.raises(BadInput, match=r"^testing.every_length needs validation bins that end with training.lengths$"):
        run_spec("an-bn", "gru", testing={"every_length": True})
    with pytest.raises(BadInput, match=r"^dyck-1: testing.every_length is not for published strings"):
        run("dyck-1", testing={"every_length": True}, training={"validation": [{"name": "V", "low": 2, "high": 20}]})
