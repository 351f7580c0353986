"""Further states of a run: best by validation, watched by the first two test bins, averaged. None changes the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import BadInput
from assay.lab.checkpoint import Checkpoints
from assay.lab.evaluate import evaluate
from assay.lab.execute import execute_group
from assay.lab.population import AVERAGED_STEPS, Population, build_population
from assay.lab.program import program_of
from assay.record import OtherState, Record
from assay.spec import RunSpec, run_spec

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ALL = ("best", "watched", "averaged")


def run(seed: int = 0, states: tuple[str, ...] = ALL, task: str = "parity", **changes: Any) -> RunSpec:
    training: dict[str, Any] = {
        "lengths": [2, 8],
        "batch": 16,
        "validation_rows": 32,
        "validate_every": 20,
        "steps": 240,
    }
    training["lr"] = 1e-2 if seed < 2 else 1e-3  # some learn the task, others do not
    testing: dict[str, Any] = {"rows": 48, "states": states} | ({"watch_every": 10} if "watched" in states else {})
    options = {"width": 16, "layers": 1}
    return run_spec(task, "gru", seed=seed, model_options=options, training=training | changes, testing=testing)


def facts(record: Record) -> dict[str, object]:
    """What a record says of the run itself."""
    times = {"seconds", "started", "ended", "probing", "population"}
    return record.model_dump(exclude={"digest", "spec", "states", *times})


def state(record: Record, name: str) -> OtherState:
    other = record.state(name)
    assert other
    return other


@pytest.fixture(scope="module")
def records() -> dict[tuple[int, bool], Record]:
    watched = execute_group([run(seed) for seed in range(4)], DEVICE, slots=2)
    alone = execute_group([run(seed, states=()) for seed in range(4)], DEVICE, slots=2)
    return {(r.seed, bool(r.states)): r for r in (*watched, *alone)}


def test_further_states_do_not_change_a_run(records: dict[tuple[int, bool], Record]):
    assert {records[seed, True].stopped for seed in range(4)} == {"solved", "steps"}, "both kinds of end"
    for seed in range(4):
        assert facts(records[seed, True]) == facts(records[seed, False])


def best_by_looking(spec: RunSpec) -> tuple[int, float, int | None]:
    """The rule of the published code in plain words: step and score of the best state, and the first perfect step."""
    population = Population(spec, [spec.task], 1, DEVICE)
    population.admit(0, spec)
    best, score = 0, -1.0
    for step in range(1, spec.training.steps + 1):
        if (step - 1) % population.batches.ahead == 0:
            population.draws[0]()
        population.step()
        if step % spec.testing.watch_every == 0:
            shares = [part.sequences for part in evaluate(population.module(0), spec, DEVICE)[0][:2]]
            if sum(shares) / 2 > score:
                best, score = step, sum(shares) / 2
            if score == 1:
                return best, score, step
    return best, score, None


def test_the_watched_state_is_the_best_of_all_looks_and_the_first_perfect_one(records: dict[tuple[int, bool], Record]):
    seen = set()
    for seed in range(4):
        step, score, first_perfect = best_by_looking(run(seed))
        watched = state(records[seed, True], "watched")
        assert (watched.step, watched.first_perfect) == (step, first_perfect)
        assert sum(part.sequences for part in watched.scores[:2]) / 2 == pytest.approx(score)
        seen.add(first_perfect is None)
    assert seen == {True, False}, "both kinds"


def run_that_stops_early() -> RunSpec:
    """Validation has only lengths of training, and is soon right; Bin1 takes longer."""
    return run(task="dyck-1", validation=[{"name": "Val0", "low": 2, "high": 8}], patience=1, batch=8)


def test_a_run_that_has_stopped_goes_on_for_its_watched_state_alone():
    spec = run_that_stops_early()
    (record,) = execute_group([spec], DEVICE)
    assert record.stopped == "solved"
    watched = state(record, "watched")
    assert watched.step > record.steps == record.curve[-1].step
    assert state(record, "averaged").step == record.steps
    assert state(record, "best").step == record.steps


def test_a_run_continues_from_a_checkpoint_with_all_its_states(tmp_path: Path):
    spec = run_that_stops_early()
    (whole,) = execute_group([spec], DEVICE)
    rounds = 0

    def stop_after(limit: int) -> Callable[[object], None]:
        def count(_: object) -> None:
            nonlocal rounds
            rounds += 1
            if rounds == limit:
                raise KeyboardInterrupt

        return count

    limit = whole.steps // spec.training.validate_every + 2  # the run itself has stopped; the last round is lost
    with pytest.raises(KeyboardInterrupt):
        execute_group([spec], DEVICE, on_status=stop_after(limit), checkpoints=Checkpoints(tmp_path))
    (resumed,) = execute_group([spec], DEVICE, checkpoints=Checkpoints(tmp_path))
    assert resumed.population["resumed"] == (limit - 1) * spec.training.validate_every > resumed.steps
    assert facts(resumed) == facts(whole)
    for name in ALL:
        parts = (state(record, name).model_dump(exclude={"probing": {"seconds"}}) for record in (resumed, whole))
        assert next(parts) == next(parts)


def test_the_average_is_a_moving_average_of_the_parameters():
    spec = run(0, states=("averaged",), steps=30)
    population = build_population(spec, [spec.task], 2, DEVICE)
    population.admit(0, spec)
    average = population.theta[0].double()
    for step in range(1, 31):
        if (step - 1) % population.batches.ahead == 0:
            population.draws[0]()
        population.step()
        weight = max(10 / (10 + step), 1 / AVERAGED_STEPS)
        average = average + weight * (population.theta[0].double() - average)
    torch.testing.assert_close(
        population.saved_states(0)["averaged"].theta, average.float().cpu(), rtol=1e-5, atol=1e-6
    )
    population.step()
    after = population.saved_states(0)["averaged"].theta
    torch.testing.assert_close(after, average.float().cpu(), rtol=1e-5, atol=1e-6)


def test_runs_with_other_states_are_other_programs():
    assert program_of(run()) == program_of(run(1))
    assert len({program_of(run(states=states)) for states in ((), ("watched",), ("averaged",), ALL)}) == 4


def test_bad_states_are_refused():
    with pytest.raises(BadInput, match=r"validate_every = 25 is not a multiple of testing\.watch_every = 10"):
        run(validate_every=25)
    with pytest.raises(BadInput, match="names a state twice: best, best"):
        run(states=("best", "best"))
