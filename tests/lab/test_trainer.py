"""Queues, slots that are filled again, checkpoints, memory that runs out, and errors that are one member's alone."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.lab import plan, trainer
from assay.lab.checkpoint import Checkpoints
from assay.lab.compilers import Compilers, compilers
from assay.lab.evaluate import evaluate
from assay.lab.execute import execute, execute_group
from assay.lab.member import Member, RoundReport
from assay.lab.member_state import MemberState
from assay.lab.memory import Forecast, _free_host_memory, slots_that_fit, step_bytes
from assay.lab.plan import Group, Plan, sized
from assay.lab.population import Population, build_population
from assay.lab.precompile import compile_kernels
from assay.lab.program import program_of
from assay.lab.shrinking import rebuild_seconds, shrinking_pays
from assay.lab.stacking import build_module
from assay.lab.status import EvaluationStatus, Status
from assay.lab.tracing import PARAMETER_COPIES, PeakMemory, trace_step
from assay.models.skeleton import Foreign
from assay.ops.cpu import srwm
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.store import Store

CPU = torch.device("cpu")


def run(seed: int = 0, model: Any = "gru", task: str = "reset-dyck-1", **changes: Any) -> RunSpec:
    training = {"lengths": [2, 8], "batch": 8, "validation_rows": 16, "validate_every": 10, "steps": 40} | changes
    options = {"width": 16} if isinstance(model, str) else None
    return run_spec(task, model, seed=seed, model_options=options, training=training, testing={"rows": 16})


def facts(record: Record) -> dict[str, object]:
    return record.model_dump(exclude={"seconds", "started", "ended", "population"})


def by_seed(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.seed)


def by_digest(records: list[Record]) -> dict[str, object]:
    return {record.digest: facts(record) for record in records}


def test_more_runs_than_slots():
    """Of different lengths and tasks: each ends as it does with other neighbours, and is recorded at once."""
    lengths, tasks = (40, 15, 20, 30, 10), ("reset-dyck-1", "cyclic")
    specs = [run(seed, task=tasks[seed % 2], steps=steps) for seed, steps in enumerate(lengths)]
    told: list[tuple[str, int]] = []
    statuses: list[Status | EvaluationStatus] = []
    records = execute_group(
        specs, CPU, on_record=lambda r: told.append((r.digest, r.steps)), on_status=statuses.append, slots=2
    )
    assert [r.steps for r in records] == [steps for _, steps in told] == [15, 40, 20, 10, 30]
    assert {r.digest for r in records} == {spec.digest for spec in specs}
    assert all(r.population == {"slots": 2, "mapped": True} for r in records)
    training = [s for s in statuses if isinstance(s, Status)]
    assert [s.alive + s.waiting + s.ended for s in training] == [5] * len(training)
    assert training[-1].ended == 5
    testing = [s for s in statuses if isinstance(s, EvaluationStatus)]
    assert {s.seed for s in testing if s.rows == s.total} == set(range(5)), "each test is reported to its end"
    for record in records:
        again = execute_group([RunSpec(**record.spec)], CPU, slots=2)[0]
        assert again.verdict == record.verdict
        assert [p.step for p in again.curve] == [p.step for p in record.curve]
        assert [p.loss for p in again.curve] == pytest.approx([p.loss for p in record.curve], rel=1e-4)


def test_what_can_share_a_program():
    same = [run(0), run(1), run(0, lr=1e-2), run(0, steps=7), run(0, task="cyclic"), run(0, clip=1.0, warmup=3)]
    assert len({program_of(spec) for spec in same}) == 1
    other = [run(0, batch=4), run(0, lengths=[2, 9]), run(0, model="lstm"), run(0, task="flip-flop")]
    other += [run(0, validate_every=20), run(0, precision="tf32")]
    assert len({program_of(spec) for spec in other} | {program_of(same[0])}) == 7
    groups = Plan([*same, *other], [], CPU, jobs=1, slots=9).groups()
    assert [len(group.specs) for group in groups] == [6, 1, 1, 1, 1, 1, 1]


def report(step: int, right: float, diverged: bool = False) -> RoundReport:
    return RoundReport(step, diverged, 5.0, {"Val0": 1.0, "Val1": right}, {"Val0": 1.0, "Val1": right})


def nothing() -> Any:
    raise AssertionError("what it has learned is not needed")


def test_a_member_ends_by_the_rule_of_its_spec():
    member = Member(run(patience=2, steps=1000))
    assert [member.receive(report(10 * i, right), nothing) for i, right in enumerate([1.0, 0.9, 1.0, 1.0], 1)] == [
        None, None, None, "solved",
    ]  # fmt: skip
    assert member.solved_at == 30
    assert [point.loss for point in member.curve] == [0.5] * 4
    never = Member(run(patience=1, stop="never", steps=30))
    assert [never.receive(report(10 * i, 1.0), nothing) for i in (1, 2, 3)] == [None, None, "steps"]
    assert never.solved_at == 10
    assert Member(run()).receive(report(4, 0.0, diverged=True), nothing) == "diverged"


def state_numbered(number: int) -> tuple[Tensor, dict[str, Tensor]]:
    return torch.tensor([float(number)]), {}


def test_a_member_keeps_the_best_check_and_of_equals_the_latest():
    member, kept = Member(run(keep="best", steps=1000)), []
    for i, right in enumerate([0.1, 0.7, 0.5, 0.7, 0.6], 1):
        member.receive(report(10 * i, right), partial(state_numbered, i))
        kept.append((member.saved["best"].step, member.saved["best"].theta.item()))
    assert kept == [(10, 1), (20, 2), (20, 2), (40, 4), (40, 4)]
    assert member.saved["best"].score == pytest.approx(0.85)
    before, progress = member.saved["best"], member.progress
    assert member.receive(report(60, 1.0, diverged=True), nothing) == "diverged"
    assert member.saved["best"] is before
    member.receive(report(70, 1.0), partial(state_numbered, 7))
    assert member.saved["best"].step == 70
    member.rewind(progress, MemberState(torch.zeros(1), torch.zeros(1), torch.zeros(1), {}))
    assert member.state
    assert member.saved["best"] is member.state.saved["best"] is before, "also for a checkpoint of a member that waits"


class Failing(nn.Module):
    """Gives constant logits once a buffer that it writes to in training has reached 35."""

    seen: Tensor

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, answers)
        self.register_buffer("seen", torch.zeros(answers))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.training:
            self.seen.add_(1)
        return torch.where(self.seen < 35, self.table(tokens), torch.zeros_like(self.seen))


class Replacing(Failing):
    """Puts another buffer in its place, also when it is validated."""

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen = self.seen + 1
        return torch.where(self.seen < 35, self.table(tokens), torch.zeros_like(self.seen))


def named(model: Any) -> str:
    return str(getattr(model, "name", model)).rpartition(":")[2]


def noisy(model: Any = "gru") -> list[RunSpec]:
    """Runs that are better at some check than at the end."""
    options: dict[str, Any] = {"task": "dyck-1", "steps": 60, "stop": "never", "keep": "best"}
    options["lr"] = 0.03 if model == "gru" else 0.1
    return [run(seed, model=model, **options) for seed in range(3)]


@pytest.mark.parametrize(
    ("model", "slots"), [("gru", 1), ("gru", 3), (Foreign.of(Failing), 3), (Foreign.of(Replacing), 1)], ids=named
)
def test_the_best_state_is_the_one_that_is_tested(model: Any, slots: int):
    """As if the run had ended there."""
    specs = noisy(model)
    earlier = 0
    for spec, record in zip(specs, by_seed(execute_group(specs, CPU, slots=slots)), strict=True):
        share = [sum(point.sequences.values()) for point in record.curve]
        best = max(point.step for point, right in zip(record.curve, share, strict=True) if right == max(share))
        assert record.tested_at == best
        assert record.tested
        assert record.tested.step == best
        earlier += best < 60
        short = [spec.model_copy(update={"training": spec.training.model_copy(update={"steps": best, "keep": "last"})})]
        others = [other for other in specs if other.seed != spec.seed]
        whole = sorted([*short, *others], key=lambda one: one.seed)  # so that everybody has the slot that it had
        alone = by_seed(execute_group(whole, CPU, slots=slots))[spec.seed]
        assert (alone.steps, alone.tested_at) == (best, None)
        assert alone.scores == record.scores
        assert alone.verdict == record.verdict
    assert earlier, "some run was better before its end"


def test_the_last_state_is_what_older_specs_ask_for():
    assert "keep" not in run().plain()["training"]
    assert run().digest == run(keep="last").digest != run(keep="best").digest


class Interrupt:
    """Raises KeyboardInterrupt after some steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("model", ["gru", Foreign.of(Failing)], ids=named)
def test_a_best_state_outlives_an_interrupt(tmp_path: Path, model: Any):
    whole = min(execute_group(noisy(model), CPU), key=lambda record: record.tested_at or 0)
    assert whole.tested_at
    assert whole.tested_at <= 40
    spec, checkpoints = noisy(model)[whole.seed], Checkpoints(Store.create(tmp_path / "s").path)
    with pytest.raises(KeyboardInterrupt):
        execute_group([spec], CPU, poll=Interrupt(whole.tested_at + 15), checkpoints=checkpoints)
    (resumed,) = execute_group([spec], CPU, checkpoints=Checkpoints(tmp_path / "s"))
    assert resumed.population["resumed"] == whole.tested_at + 10
    assert facts(resumed) == facts(whole)


@pytest.mark.parametrize("slots", [1, 3])
def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path, slots: int):
    specs = [run(seed, steps=30) for seed in range(4)]
    whole = execute_group(specs, CPU, slots=slots)
    store, records = Store.create(tmp_path / "s"), list[Record]()
    for after in (25, 13, 38, 7):
        done = {record.digest for record in records}
        rest = [spec for spec in specs if spec.digest not in done]
        try:
            execute_group(
                rest, CPU, records.append, poll=Interrupt(after), slots=slots, checkpoints=Checkpoints(store.path)
            )
        except KeyboardInterrupt:
            assert list((store.path / "checkpoints").glob("*.safetensors"))
    done = {record.digest for record in records}
    rest = [spec for spec in specs if spec.digest not in done]
    execute_group(rest, CPU, records.append, slots=slots, checkpoints=Checkpoints(store.path))
    assert by_digest(records) == by_digest(whole)
    assert any(record.population.get("resumed") for record in records)
    Checkpoints(store.path).prune([record.digest for record in records])
    assert not list((store.path / "checkpoints").iterdir())


def test_a_checkpoint_that_is_damaged_or_of_another_shape_is_no_checkpoint(tmp_path: Path):
    spec = run(steps=30)
    kept = Checkpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        execute_group([spec], CPU, poll=Interrupt(15), checkpoints=kept)
    checkpoint = Checkpoints(tmp_path).load(spec.digest)
    assert checkpoint is not None
    assert checkpoint.progress["step"] == 10
    assert Checkpoints(tmp_path).load("another") is None
    (tmp_path / "checkpoints" / "0-noise.safetensors").write_bytes(b"noise")
    facts_, saved = checkpoint
    Checkpoints(tmp_path).write([(facts_ | {"trained": 20}, saved._replace(theta=saved.theta[:-1]))])
    (record,) = execute_group([spec], CPU, checkpoints=Checkpoints(tmp_path), weights="all")
    assert "resumed" not in record.population
    assert facts(record) == facts(execute(spec, CPU))


def test_files_that_nobody_would_resume_from_are_deleted(tmp_path: Path):
    saved = Population(run(), [run().task], 1, CPU)
    saved.take_snapshot()
    one, two = saved.state(0), saved.state(0)
    two = two._replace(**{name: getattr(two, name).clone() for name in ("theta", "m", "v")})
    old, new, done = (Checkpoints(tmp_path) for _ in range(3))
    blank = {"curve": [], "perfect": 0, "solved_at": None, "seconds": 0.0, "points": 0}
    old.write([({"digest": "a", "trained": 10, **blank}, one), ({"digest": "b", "trained": 10, **blank}, two)])
    new.write([({"digest": "a", "trained": 20, **blank}, one)])
    done.write([({"digest": "c", "trained": 90, **blank}, one)])
    Checkpoints(tmp_path).prune(["c"])
    assert set((tmp_path / "checkpoints").iterdir()) == {old.path, new.path}, "b is only in the old one"
    Checkpoints(tmp_path).prune(["c", "b"])
    assert set((tmp_path / "checkpoints").iterdir()) == {new.path}


@pytest.mark.parametrize("where", ["round", "__init__", "admit"])
def test_without_memory_there_are_fewer_slots_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, where: str):
    specs = [run(seed) for seed in range(6)]
    whole = execute_group(specs, CPU, slots=1)
    real, calls = getattr(Population, where), []

    def short(self: Population, *args: Any, **named: Any) -> Any:
        slots = args[2] if where == "__init__" else self.count
        calls.append(slots)
        if slots > 1 and len([c for c in calls if c == slots]) > (0 if where == "__init__" else 2):
            raise torch.OutOfMemoryError("not enough")
        return real(self, *args, **named)

    monkeypatch.setattr(Population, where, short)
    records = execute_group(specs, CPU, slots=4)
    assert len(records) == 6
    assert {r.population["slots"] for r in records} <= {1, 2}
    assert records[-1].population["slots_before_memory_ran_out"] == (4, 2)
    assert all(r.population["slots_before_memory_ran_out"][0] == 4 for r in records)
    assert {r.digest: r.verdict for r in records} == {r.digest: r.verdict for r in whole}
    assert all(record.steps == 40 and len(record.curve) == 4 for record in records)


def test_without_memory_for_one_slot_a_run_has_failed(monkeypatch: pytest.MonkeyPatch):
    def short(*_: Any) -> None:
        raise torch.OutOfMemoryError("not enough")

    monkeypatch.setattr(Population, "round", short)
    records = execute_group([run(0), run(1)], CPU, slots=2)
    assert [(r.verdict, r.error) for r in records] == [("failed", "OutOfMemoryError: not enough")] * 2


def shrink_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Populations cost nothing from now on; the slots of those that are built are noted."""
    real, built = build_population, list[int]()

    def noted(*args: Any) -> Population:
        built.append(args[2])
        return real(*args)

    monkeypatch.setattr(trainer, "rebuild_seconds", lambda *_: 0.0)
    monkeypatch.setattr(trainer, "build_population", noted)
    return built


def test_when_shrinking_pays():
    """A step is 0.2 whatever the slots, and 0.8 in proportion to them; twice the cost has to be saved."""
    assert shrinking_pays(slots=4, alive=2, seconds_left=16.0, cost=3.0)
    assert not shrinking_pays(slots=4, alive=2, seconds_left=14.0, cost=3.0)
    assert not shrinking_pays(slots=4, alive=3, seconds_left=1e9, cost=3.0), "most are at work"
    assert not shrinking_pays(slots=1, alive=1, seconds_left=1e9, cost=0.0)
    assert not shrinking_pays(slots=4, alive=1, seconds_left=0.0, cost=0.0), "no round has been timed"
    how, gpu = run().training, torch.device("cuda")
    assert not shrinking_pays(slots=256, alive=1, seconds_left=1e9, cost=rebuild_seconds(how, CPU))
    assert not shrinking_pays(
        slots=256, alive=1, seconds_left=1e9, cost=rebuild_seconds(run(compile=True).training, gpu)
    )
    assert shrinking_pays(slots=256, alive=1, seconds_left=60.0, cost=rebuild_seconds(how, gpu))


def test_a_population_that_shrinks_trains_as_one_that_does_not(monkeypatch: pytest.MonkeyPatch):
    tasks = ("reset-dyck-1", "cyclic")
    specs = [run(seed, task=tasks[seed % 2], steps=steps) for seed, steps in enumerate((10, 40, 10, 30, 20, 10))]
    whole = {record.digest: record for record in execute_group(specs, CPU, slots=5)}
    built = shrink_at_once(monkeypatch)
    monkeypatch.setattr(trainer, "datetime", Ticking())
    statuses: list[Status | EvaluationStatus] = []
    records = execute_group(specs, CPU, on_status=statuses.append, slots=5)
    assert built == [5, 2, 1], "not while one waits; then when two are left, and when one is"
    training = [s for s in statuses if isinstance(s, Status)]
    assert [(s.slots, s.alive, s.ended) for s in training] == [(5, 3, 2), (5, 2, 4), (2, 1, 5), (1, 0, 6)]
    assert [record.steps for record in records] == [10, 10, 20, 10, 30, 40]
    assert [record.started for record in records] == ["1", "3", "5", "6", "4", "2"], "each has begun once"
    assert [record.population["slots"] for record in records] == [5, 5, 5, 5, 2, 1]
    assert [record.population.get("slots_before_shrinking") for record in records] == [None] * 4 + [(5,), (5, 2)]
    for record in records:
        same = whole[record.digest]
        assert (record.verdict, record.steps) == (same.verdict, same.steps)
        assert [point.step for point in record.curve] == [point.step for point in same.curve]
        assert [p.loss for p in record.curve] == pytest.approx([p.loss for p in same.curve], rel=1e-4)


class Ticking:
    """A clock that is read as 1, 2, 3, ..."""

    def __init__(self) -> None:
        self.reads = 0

    def now(self, _: Any) -> Ticking:
        self.reads += 1
        return self

    def isoformat(self, timespec: str) -> str:
        return str(self.reads)


@pytest.mark.parametrize("cost", [None, 1e9])
def test_a_population_stays_where_shrinking_does_not_pay(monkeypatch: pytest.MonkeyPatch, cost: float | None):
    built = shrink_at_once(monkeypatch)
    monkeypatch.setattr(trainer, "rebuild_seconds", rebuild_seconds if cost is None else lambda *_: cost)
    records = execute_group([run(seed, steps=steps) for seed, steps in enumerate((10, 10, 10, 40))], CPU, slots=4)
    assert built == [4]
    assert all(record.population == {"slots": 4, "mapped": True} for record in records)


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError])
@pytest.mark.parametrize("where", ["__init__", "admit", "take_snapshot"])
def test_what_happens_while_a_population_shrinks_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str, error: type[BaseException]
):
    """Neither an end that is asked for nor a lack of memory, before the smaller population has made a step."""
    specs = [run(seed, steps=steps, keep="best") for seed, steps in enumerate((10, 40, 10, 30, 10, 10))]
    whole = {record.digest: record for record in execute_group(specs, CPU, slots=6)}
    shrink_at_once(monkeypatch)
    real, calls = getattr(Population, where), []

    def breaking(self: Population, *args: Any, **named: Any) -> Any:
        slots = args[2] if where == "__init__" else self.count
        calls.append(slots)
        if slots == 2 and calls.count(2) == (2 if where == "admit" else 1):
            raise error("now")
        return real(self, *args, **named)

    monkeypatch.setattr(Population, where, breaking)
    made: list[Record] = []
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            execute_group(specs, CPU, made.append, slots=6, checkpoints=Checkpoints(tmp_path))
    done = {record.digest for record in made}
    rest = [spec for spec in specs if spec.digest not in done]
    execute_group(rest, CPU, made.append, slots=6, checkpoints=Checkpoints(tmp_path))
    assert {record.digest for record in made} == set(whole)
    for record in made[-2:]:
        note = {"resumed": 10} if error is KeyboardInterrupt else {"slots_before_memory_ran_out": (2,)}
        assert record.population | note == record.population
        assert len(record.curve) == record.steps / 10
        assert [p.loss for p in record.curve] == pytest.approx([p.loss for p in whole[record.digest].curve], rel=1e-4)


class Picky(nn.Module):
    """Refuses to be trained alone where it happens to begin with a large weight."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, answers)

    def forward(self, tokens: Tensor) -> Tensor:
        alone = not torch._C._functorch.is_batchedtensor(tokens)
        if alone and self.training and (self.table.weight[0] > 0.5).any():
            raise RuntimeError("I will not")
        return self.table(tokens)


def test_an_error_is_the_member_s_own(monkeypatch: pytest.MonkeyPatch):
    """A population in which something goes wrong is taken apart; each member goes on alone from where it was."""
    real, rounds = Population.round, []

    def breaking(self: Population, *args: Any) -> Any:
        rounds.append(self.count)
        if self.count > 1 and len(rounds) == 2:
            raise RuntimeError("somebody's fault")
        return real(self, *args)

    monkeypatch.setattr(Population, "round", breaking)
    specs = [run(seed, model=Foreign.of(Picky)) for seed in range(6)]
    records = execute_group(specs, CPU, slots=6)
    assert len(records) == 6
    verdicts = {record.verdict == "failed" for record in records}
    assert verdicts == {True, False}
    for record in records:
        if record.verdict == "failed":
            assert record.error == "RuntimeError: I will not"
        else:
            assert record.population["unmapped_because"] == "RuntimeError: somebody's fault"
            assert record.steps == 40


@pytest.mark.parametrize("model", ["lstm", "srwm", "transformer", "mamba"])
def test_the_memory_that_is_traced_is_the_memory_that_is_held(model: str):
    spec = run_spec("parity", model, training={"lengths": [2, 20]})
    population = Population(spec, [spec.task], 6, CPU)
    with PeakMemory() as memory:
        population._step()
    held = memory.peak + PARAMETER_COPIES * population.theta.nbytes
    predicted = step_bytes(spec, 6, CPU)
    assert predicted == pytest.approx(held, rel=0.1)
    two, four = step_bytes(spec, 2, CPU), step_bytes(spec, 4, CPU)
    assert two + 2 * (four - two) == pytest.approx(predicted, rel=0.01), "memory is a line"


def test_memory_of_attention_grows_with_the_length_and_not_with_its_square():
    short, long = (
        step_bytes(run_spec("parity", "transformer", training={"lengths": [2, high]}), 2, CPU) for high in (256, 1024)
    )
    assert long < 4.5 * short


def test_a_module_that_cannot_be_built_is_a_failure_of_each():
    records = execute_group([run(0, model=Foreign.of(Unbuildable)), run(1, model=Foreign.of(Unbuildable))], CPU)
    assert [r.error for r in records] == ["RuntimeError: no"] * 2


class Unbuildable(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        raise RuntimeError("no")


def test_the_kernels_of_a_run_are_known_before_it(monkeypatch: pytest.MonkeyPatch):
    """Each operator of ours that a run calls is called once beforehand, forward and backward, with the same shapes."""
    spec, calls = run(model="srwm", steps=10), list[tuple[str, list[Any]]]()
    for name in ("forward", "backward"):
        real = getattr(srwm, name)

        def noted(*args: Any, name: str = name, real: Any = real, **flags: Any) -> Any:
            calls.append((name, [x.shape for x in args if isinstance(x, Tensor)]))
            return real(*args, **flags)

        monkeypatch.setattr(srwm, name, noted)
    # Forward and backward of a step, a bin of longer validation sequences, and four test bins.
    assert compile_kernels(spec, 2, CPU) == 7
    known = sorted(calls, key=str)
    assert [name for name, _ in known] == ["backward"] + ["forward"] * 6
    compilers.stop()
    calls.clear()
    population = Population(spec, [spec.task], 2, CPU)
    population._step()
    population._validate()
    evaluate(build_module(spec, CPU), spec, CPU)
    assert {name for name, _ in calls} == {"forward", "backward"}
    assert all(call in known for call in calls), "training and testing need no other kernels"


def test_a_process_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """And notes it; what cannot be compiled is left to the step, which reports it."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # before the server of processes starts
    pool = Compilers()
    pool.prepared = True
    (call, *_) = trace_step(run(model="srwm"), 2, CPU).calls
    futures = [pool.compile(text, "highest", "cpu", 1e12) for text in (call, call, "nonsense")]
    assert futures[0] is futures[1], "each kernel is compiled once"
    assert [future.result(timeout=120) for future in futures if future] == [None] * 3
    assert isinstance(pool.pool, ProcessPoolExecutor)
    pool.stop()
    assert len(list((tmp_path / "assay").iterdir())) == 1
    assert pool.compile(call, "highest", "cpu", 1e12) is None, "it is not compiled again"
    assert pool.compile(call, "high", "cpu", 1e12), "but in another precision"
    pool.stop()
    assert pool.pool is None


def test_what_cannot_be_compiled_trains_as_it_is(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    compiled, plain = (execute(run(compile=choice), CPU) for choice in (True, False))
    assert compiled.population["compiled"] is False
    assert compiled.population["not_compiled_because"] == "RuntimeError: no compiler"
    assert compiled.curve == plain.curve


@pytest.mark.parametrize("model", ["transformer", "srwm"])
def test_a_compiled_population_computes_the_same(model: str, monkeypatch: pytest.MonkeyPatch):
    """Through the tracing of torch.compile; its last part, which writes C++, is left out for time."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **named: real(f, backend="aot_eager", **named))
    groups = ([run(seed, model=model, compile=choice) for seed in (0, 1)] for choice in (True, False))
    compiled, plain = (execute_group(group, CPU, slots=2) for group in groups)
    assert all(record.population["compiled"] for record in compiled)
    for one, other in zip(compiled, plain, strict=True):
        assert [p.loss for p in one.curve] == pytest.approx([p.loss for p in other.curve], rel=1e-3)


class Recurrent(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table, self.rnn, self.read = nn.Embedding(vocab, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, answers)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.rnn(self.table(tokens))[0])


def test_who_cannot_be_mapped_is_trained_alone_and_the_record_says_why():
    records = execute_group([run(seed, model=Foreign.of(Recurrent)) for seed in range(2)], CPU, slots=2)
    for record in records:
        assert record.population["slots"] == 1
        assert "gru" in record.population["unmapped_because"].lower()
        assert record.steps == 40


def test_a_checkpoint_with_other_buffers_is_no_checkpoint(tmp_path: Path):
    spec = run(steps=30)
    with pytest.raises(KeyboardInterrupt):
        execute_group([spec], CPU, poll=Interrupt(15), checkpoints=Checkpoints(tmp_path))
    checkpoint = Checkpoints(tmp_path).load(spec.digest)
    assert checkpoint
    known, saved = checkpoint
    assert [point["step"] for point in known["curve"]] == [10]
    Checkpoints(tmp_path).write([(known | {"trained": 20}, saved._replace(buffers={"new": torch.ones(2)}))])
    (record,) = execute_group([spec], CPU, checkpoints=Checkpoints(tmp_path))
    assert record.verdict != "failed"


def test_long_curves_do_not_burst_a_checkpoint(tmp_path: Path):
    population = Population(run(), [run().task], 1, CPU)
    population.take_snapshot()
    point = {"step": 1, "answers": {"Val0" * 10**5: 0.1}}  # few and long are as many bytes as many and short
    known = {
        "digest": "a",
        "step": 5,
        "points": 300,
        "perfect": 0,
        "solved_at": None,
        "seconds": 0.0,
        "first_perfect": None,
        "trained": 5,
    }
    Checkpoints(tmp_path).write([(known | {"curve": [point] * 300}, population.state(0))])
    checkpoint = Checkpoints(tmp_path).load("a")
    assert checkpoint
    assert checkpoint.progress["curve"] == [point] * 300


def test_as_many_slots_as_fit():
    """One trace where all fit; where they do not, a second one says how much each takes."""
    like = run()
    most = Forecast(like, [like.task], CPU)
    slots, memory = slots_that_fit(like, [like.task], 20, CPU, 1e12)
    assert slots == 20
    assert memory == pytest.approx(most(20), rel=0.01)
    slots, memory = slots_that_fit(like, [like.task], 250, CPU, 4 * most(20))
    assert memory == pytest.approx(most(slots), rel=0.01)
    assert memory <= 4 * most(20) < most(slots + 1) * 1.01
    assert slots_that_fit(like, [like.task], 250, CPU, 0.0)[0] == 1


def test_what_cannot_be_mapped_has_one_slot_on_a_gpu_too(monkeypatch: pytest.MonkeyPatch):
    """And is not traced, which would fail; it gets the device alone."""
    monkeypatch.setattr(plan, "why_unmappable", lambda *_: "why")
    monkeypatch.setattr(plan, "slots_that_fit", nothing)
    group = sized(Group((run(),) * 3, slots=0, size=3), torch.device("cuda"), 1e12)
    assert (group.slots, group.memory) == (1, math.inf)


def test_what_is_too_large_to_be_traced_has_one_slot(monkeypatch: pytest.MonkeyPatch):
    def too_large(*_: Any) -> None:
        raise torch.OutOfMemoryError("not enough")

    monkeypatch.setattr(plan, "slots_that_fit", too_large)
    group = sized(Group((run(),) * 3, slots=0, size=3), torch.device("cuda"), 1e12)
    assert (group.slots, group.memory) == (1, math.inf)


def test_training_does_not_import_the_compiler():
    """It takes seconds, before the first step of every command."""
    program = (
        "import sys, torch; from assay.lab.population import Population; from assay.spec import run_spec\n"
        "spec = run_spec('parity', 'srwm', model_options={'width': 16}, training={'lengths': [2, 4]})\n"
        "population = Population(spec, [spec.task], 2, torch.device('cpu'))\n"
        "population._draw(0), population._step(), population._validate()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_memory_forecast_leaves_no_tensors_without_contents_behind():
    """Tables that are computed once and kept must not be computed while a step is traced."""
    program = (
        "import torch; from assay.lab.memory import step_bytes; from assay.lab.stacking import build_module; "
        "from assay.spec import run_spec; spec, cpu = run_spec('parity', 'transformer'), torch.device('cpu')\n"
        "step_bytes(spec, 1, cpu)\n"
        "assert all(type(x) is torch.nn.Parameter for x in build_module(spec, cpu).parameters())"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_free_memory_of_a_container(tmp_path: Path):
    """The limit less what is in use, but for files that are only cached."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    assert _free_host_memory(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("9000\n")
    (tmp_path / "memory.stat").write_text("anon 1000\ninactive_file 8000\n")
    assert _free_host_memory(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("10000\n")
    assert _free_host_memory(meminfo, tmp_path) == 9000


def test_an_error_of_the_display_is_not_a_failed_run():
    def on_status(status: Status | EvaluationStatus) -> None:
        if isinstance(status, EvaluationStatus):
            raise UnicodeEncodeError("ascii", "…", 0, 1, "no")

    with pytest.raises(UnicodeEncodeError):
        execute(run(steps=10), CPU, on_status)


def test_a_user_s_own_module_is_traced_without_being_built_from_fake_tensors():
    assert step_bytes(run(model=Foreign.of(Failing)), 2, CPU) > 0
