"""Workers that lease runs for themselves: they share a plan, replace each other, and end with the same records."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadInput
from assay.lab.carry_out import carry_out, local_engine
from assay.lab.engines import choice
from assay.lab.engines.choice import RunOptions, shared_plan, store_plan_and_engine, worker_command
from assay.lab.engines.engine import Event
from assay.lab.engines.local_devices import LocalDevices
from assay.lab.engines.store_workers import StoreWorkers
from assay.lab.leases import Leases, reports
from assay.lab.plan import LARGEST_ON_CPU, SMALLEST_ON_GPU, Plan
from assay.lab.plan_file import SavedPlan, read_plan, require_same_code, saved_plan
from assay.lab.status import Status, plain_status
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.store import Store

CPU = torch.device("cpu")


def specs(count: int, steps: int = 30) -> list[RunSpec]:
    training = {"steps": steps, "lengths": [2, 8], "validate_every": 10, "stop": "never"}
    options: dict[str, Any] = {"model_options": {"width": 8}, "training": training, "testing": {"rows": 16}}
    return [run_spec("parity", model, seed=seed, **options) for seed in range(count // 2) for model in ("gru", "lstm")]


def engine(plan: Plan, saved: SavedPlan, store: Store, workers: int) -> StoreWorkers:
    """Workers on the CPU of this machine, as they would be on its GPUs."""
    command = worker_command(store.path, saved.save(store.path), "cpu", jobs=1)
    launcher = LocalDevices(command, store.path / "logs", cpu_workers=workers)
    return StoreWorkers(plan, store.path, launcher, workers, saved.earlier)


def test_workers_of_which_one_is_killed_make_the_records_of_one_process(tmp_path: Path):
    runs, here, there = specs(8, 500), Store.create(tmp_path / "here"), Store.create(tmp_path / "there")
    alone = Plan(runs, [], CPU, jobs=1)
    expected = carry_out(alone, here, local_engine(alone, here))
    plan, saved = shared_plan(runs, there.index(), RunOptions(device="cpu", checkpoint=0.0), workers=2)
    killed = list[int]()

    def on_event(event: Event) -> None:
        busy = [report["pid"] for report in reports(there.path) if report["under_way"]]
        if len(busy) == 2 and not killed:
            killed.extend(busy[:1])
            os.kill(busy[0], signal.SIGKILL)

    records = carry_out(plan, there, engine(plan, saved, there, 2), on_event)
    assert killed
    assert {record.digest: record.result for record in records} == {r.digest: r.result for r in expected}
    assert len(list(there.history())) == len(runs), "each run is recorded once"
    assert not list((there.path / "leases").iterdir())
    assert not list((there.path / "checkpoints").glob("*.safetensors"))


def test_a_run_that_failed_is_tried_once_by_all_workers_together(tmp_path: Path):
    """The worker that takes over its plan later knows that it has been tried."""
    store, (good, bad) = Store.create(tmp_path / "s"), specs(2)
    error = Record(digest=bad.digest, spec=bad.plain(), verdict="failed", stopped="error", error="lost")
    store.add(error)
    _, saved = shared_plan([good, bad], store.index(), RunOptions(device="cpu"), workers=2)
    assert set(saved.plan(store.index(), CPU, None).pending) == {good.digest, bad.digest}, "failed before the command"
    store.add(error)
    assert set(saved.plan(store.index(), CPU, None).pending) == {good.digest}, "failed since"


def test_a_run_that_has_failed_twice_is_tried_again(tmp_path: Path):
    """None of its records from before the command ends it."""
    store, (bad,) = Store.create(tmp_path / "s"), specs(2)[:1]
    error = Record(digest=bad.digest, spec=bad.plain(), verdict="failed", stopped="error", error="lost")
    store.add(error)
    store.add(error)
    plan, saved = shared_plan([bad], store.index(), RunOptions(device="cpu"), workers=1)
    events = list[Event]()
    carry_out(plan, store, engine(plan, saved, store, 1), events.append)
    assert [event.record.verdict != "failed" for event in events if event.record] == [True]


def test_workers_are_not_started_again_and_again_for_runs_that_others_carry_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Their own workers end at once; this process waits."""
    store, (spec,) = Store.create(tmp_path / "s"), specs(2)[:1]
    plan, saved = shared_plan([spec], store.index(), RunOptions(device="cpu"), workers=1)
    workers, starts, waits = engine(plan, saved, store, 1), list[int](), list[str]()
    monkeypatch.setattr(workers.launcher, "start", starts.append)
    monkeypatch.setattr(workers.launcher, "alive", lambda: 0)

    with Leases(store.path, heartbeat=0.1) as other:
        assert other.lease([spec.digest])[0]

        def on_event(event: Event) -> None:
            if event.message:
                waits.append(event.message)
            if len(waits) == 3:
                Store.open(store.path).add(
                    Record(digest=spec.digest, spec=spec.plain(), verdict="solved", stopped="solved")
                )

        carry_out(plan, store, workers, on_event)
    assert starts == [1]
    assert len(waits) == 3


def test_heartbeats_say_what_workers_do_and_damaged_ones_are_passed_over(tmp_path: Path):
    """A worker of another version, or a disk that was full, must not end the command."""
    store = Store.create(tmp_path / "s")
    plan, saved = shared_plan(specs(2), store.index(), RunOptions(device="cpu"), workers=1)
    (store.path / "workers").mkdir()
    status = Status("gru", ("parity",), 1, 1, 0, 0, 0, 0, 0.5, 0.5, 10, 30, 0.7, 100.0, 2.0)
    damaged: list[Any] = [[], {"x": ["Status"]}, {"0": 5}, {"0": ["Status", 1]}, {"0": []}]
    for number, statuses in enumerate([*damaged, {"0": plain_status(status)}, {"0": plain_status(status)}]):
        heartbeat = {"name": str(number), "statuses": statuses}
        (store.path / "workers" / f"{number}.json").write_text(json.dumps(heartbeat))
    events = list[Event]()
    engine(plan, saved, store, 1)._report_statuses(events.append)
    assert events == [Event(0, status=status), Event(1, status=status)]


def test_a_plan_comes_back_as_it_was(tmp_path: Path):
    store, runs = Store.create(tmp_path / "s"), specs(6)
    store.add(Record(digest=runs[0].digest, spec=runs[0].plain(), verdict="solved", stopped="solved"))
    for again, pending in ((False, 5), (True, 6)):
        plan = Plan(runs, store.index().values(), CPU, slots=2, weights="all", again=again, workers=3)
        saved = saved_plan(plan, store.index(), 7.5, 3)
        read = read_plan(store.path, saved.save(store.path))
        assert read.plain == saved.plain
        assert [spec.digest for spec in read.specs] == [runs[i].digest for i in (0, 2, 4, 1, 3, 5)], "by setting"
        assert len(read.plan(store.index(), CPU, None).pending) == pending
        assert len(list((store.path / "plans").glob(f"{saved.name}.json"))) == 1


def test_other_versions_are_refused_by_name(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    plan, saved = shared_plan(specs(2), store.index(), RunOptions(device="cpu"), workers=1)
    other = replace(saved, origin={**saved.origin, "versions": {**saved.origin["versions"], "torch": "1.0"}})
    with pytest.raises(
        BadInput, match=r"^torch differs: .* has .*, and the plan was made with 1\.0; install the same one$"
    ):
        require_same_code(other.origin)
    with pytest.raises(BadInput, match=r"^no worker is left: torch differs: .*, and the plan was made with 1\.0"):
        carry_out(plan, store, engine(plan, other, store, 1))
    assert len(plan.pending) == 2


def test_bad_plans_are_one_line(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    for name, content, message in (
        ("missing", None, "has no plan 'missing'"),
        ("a/b", None, "is not the name of a plan"),
        ("torn", b"{", "is not a plan"),
        ("other", b"{}", "is not a plan"),
        ("list", b"[]", "is not a plan"),
    ):
        if content is not None:
            (store.path / "plans").mkdir(exist_ok=True)
            (store.path / "plans" / f"{name}.json").write_bytes(content)
        result = CliRunner().invoke(app, ["work", str(store.path), "--plan", name, "--device", "cpu"])
        assert message in str(result.exception)
        assert isinstance(result.exception, BadInput)


def test_a_worker_makes_no_store_where_its_folder_is_missing(tmp_path: Path):
    """The file system may not be mounted on its machine."""
    result = CliRunner().invoke(app, ["work", str(tmp_path / "s"), "--plan", "a", "--device", "cpu"])
    assert "there is no store at" in str(result.exception)
    assert not (tmp_path / "s").exists()


def test_the_groups_of_a_cluster(monkeypatch: pytest.MonkeyPatch):
    """Several for each worker, the same ones whichever runs are finished, and every run in one of them."""
    runs, cuda = specs(1200), torch.device("cuda")
    for device, workers, most in ((CPU, 2, LARGEST_ON_CPU), (CPU, 100, 2), (cuda, 2, 75), (cuda, 100, SMALLEST_ON_GPU)):
        plan = Plan(runs, [], device, workers=workers, remote=True)
        groups = list(plan.groups())
        assert max(len(group.specs) for group in groups) == most
        assert sorted(spec.digest for group in groups for spec in group.specs) == sorted(plan.specs)
        assert {group.slots for group in groups} == {int(device.type == "cpu")}
        for spec in runs[::3]:
            plan.add(Record(digest=spec.digest, spec={}, verdict="solved", stopped="solved"))
        wholes = [{spec.digest for spec in group.specs} for group in groups]
        for group in plan.groups():
            assert any({spec.digest for spec in group.specs} <= whole for whole in wholes)
            assert group.size == next(len(whole) for whole in wholes if group.specs[0].digest in whole)


def test_a_machine_with_several_gpus_uses_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choice, "parse_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(choice, "visible_gpus", lambda: ["0", "3"])
    store = Store.create(tmp_path / "s")
    with store_plan_and_engine(specs(4), store.path, RunOptions(device="cuda", jobs=3)) as (_, plan, workers):
        assert isinstance(workers, StoreWorkers)
        assert isinstance(workers.launcher, LocalDevices)
        assert (workers.launcher.places, workers.count, plan.workers) == (["0", "3"], 2, 2)
        assert workers.launcher.command[-4:] == ["--device", "cuda", "--jobs", "3"]
        name = workers.launcher.command[workers.launcher.command.index("--plan") + 1]
        assert read_plan(store.path, name).workers == 2
        for digest in list(plan.pending):
            plan.add(Record(digest=digest, spec={}, verdict="solved", stopped="solved"))
    assert not list((store.path / "plans").iterdir()), "all of its runs have ended"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "slurmy"], "unknown engine 'slurmy'; did you mean 'slurm'?"),
        (["--address", "head:6379"], "--address is for --engine ray, not for local"),
        (["--engine", "ray", "--sbatch", "time=1"], "--sbatch is for --engine slurm, not for ray"),
        (["--dry-run"], "--dry-run is for --engine slurm, not for local"),
        (["--engine", "slurm", "--sbatch", "cpus-per-task=two"], "cpus-per-task=two is not valid"),
        (["--engine", "slurm", "--sbatch", "partitoin=gpu"], "did you mean 'partition'?"),
    ],
)
def test_options_that_do_not_fit_are_one_line(tmp_path: Path, options: list[str], message: str):
    arguments = ["run", "parity", "--model", "gru", "--store", str(tmp_path / "s"), "--device", "cpu", *options]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "s").exists(), "nothing is left behind"
