"""Several groups at a time in one process: each ends as it does alone, whatever happens to the others."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.lab.engines.engine import Event
from assay.lab.engines.shared_device import Admission, SharedDevice
from assay.lab.engines.this_process import ThisProcess
from assay.lab.numerics import numerics, strict_numerics
from assay.lab.plan import Group
from assay.lab.population import Population
from assay.lab.status import Status
from assay.models.skeleton import Foreign
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.store import Store

CPU = torch.device("cpu")
TIMEOUT = 60.0


def run(model: Any, seed: int, width: int = 8, **changes: Any) -> RunSpec:
    training = {"lengths": [2, 8], "batch": 8, "validation_rows": 16, "validate_every": 10, "steps": 40} | changes
    options = {"width": width} if isinstance(model, str) else None
    return run_spec("reset-dyck-1", model, seed=seed, model_options=options, training=training, testing={"rows": 16})


def group(model: Any, memory: float = 1.0, slots: int = 2, **changes: Any) -> Group:
    return Group(tuple(run(model, seed, **changes) for seed in range(3)), slots, memory=memory)


def facts(records: Sequence[Record]) -> dict[str, object]:
    return {r.digest: r.model_dump(exclude={"seconds", "started", "ended", "population"}) for r in records}


def alone(groups: Sequence[Group], store: Path) -> dict[str, object]:
    """The records of groups that are carried out one after the other."""
    events: list[Event] = []
    ThisProcess(CPU, Store.create(store).path).run(groups, events.append)
    return facts([event.record for event in events if event.record])


def together(
    groups: Sequence[Group], store: Path, on_event: Callable[[Event], None] = lambda _: None, memory: float = 10.0
) -> list[Record]:
    """The records of groups that share a device."""
    records: list[Record] = []

    def receive(event: Event) -> None:
        on_event(event)
        if event.record:
            records.append(event.record)

    SharedDevice(CPU, 3, memory, Store.create(store).path, 0.0).run(groups, receive)
    return records


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> threading.Barrier:
    """The first rounds of two populations wait for each other, so that both are alive at once."""
    barrier, real, seen = threading.Barrier(2), Population.round, set[int]()

    def waiting(self: Population, *args: Any) -> Any:
        if id(self) not in seen and len(seen) < 2:
            seen.add(id(self))
            barrier.wait(TIMEOUT)
        return real(self, *args)

    monkeypatch.setattr(Population, "round", waiting)
    return barrier


def test_groups_that_share_a_device_end_as_they_do_alone(tmp_path: Path, side_by_side: threading.Barrier):
    groups = [group("gru"), group("srwm"), group(Foreign.of(Dropping), slots=1), group("gru", precision="tf32")]
    workers: list[int] = []
    records = together(groups, tmp_path / "s", lambda event: workers.append(event.worker))
    assert facts(records) == alone(groups, tmp_path / "alone")
    assert set(workers) == {0, 1, 2}
    assert not list((tmp_path / "s" / "checkpoints").glob("*.safetensors"))


class Dropping(nn.Module):
    """Draws from PyTorch's own generator, both when it is built and in training."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(vocab, 8), nn.Dropout(0.5), nn.Linear(8, answers))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens)


def test_an_interrupt_saves_every_group(tmp_path: Path, side_by_side: threading.Barrier):
    groups, interrupted = [group("gru"), group("srwm")], set[int]()

    def on_event(event: Event) -> None:
        interrupted.add(event.worker)
        if isinstance(event.status, Status) and len(interrupted) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # for the main thread to see it

    with pytest.raises(KeyboardInterrupt):
        together(groups, tmp_path / "s", on_event)
    assert len(list((tmp_path / "s" / "checkpoints").glob("*.safetensors"))) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("group")]
    records = together(groups, tmp_path / "s")
    assert facts(records) == alone(groups, tmp_path / "alone")
    assert {r.model for r in records if r.population.get("resumed")} == {"gru", "srwm"}


def test_an_error_of_the_store_stops_every_group_and_is_raised(tmp_path: Path, side_by_side: threading.Barrier):
    def on_event(event: Event) -> None:
        if event.record:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        together([group("gru"), group("srwm", steps=4000)], tmp_path / "s", on_event)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("group")]
    assert list((tmp_path / "s" / "checkpoints").glob("*.safetensors")), "the other group is saved"


def test_a_run_that_fails_is_one_record_among_others(tmp_path: Path):
    records = together([group(Foreign.of(Broken)), group("gru")], tmp_path / "s")
    assert {(r.model.rpartition(":")[2], r.finished) for r in records} == {("Broken", False), ("gru", True)}
    assert {r.error for r in records} == {"RuntimeError: no", None}


class Broken(Dropping):
    def forward(self, tokens: Tensor) -> Tensor:
        raise RuntimeError("no")


def test_without_memory_a_group_first_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side_by_side: threading.Barrier
):
    """Then it continues with the slots that it had, and with fewer only if that is not enough."""
    groups = [group("gru"), group("srwm")]
    real, counts, done = Population.round, list[int](), set[str]()

    def short_of_memory(self: Population, *args: Any) -> Any:
        if self.layout.size == gru_size and len(counts) < 2:
            if not counts:
                real(self, *args)  # so that both are inside
            counts.append(self.count)
            shared = "srwm" not in done
            assert shared is (len(counts) == 1), "it is tried again when the other group has ended"
            raise torch.OutOfMemoryError("not enough")
        return real(self, *args)

    def on_event(event: Event) -> None:
        if event.record and event.record.model == "srwm" and not event.record.error:
            srwm.append(event.record)
            done.update(["srwm"] if len(srwm) == 3 else [])

    srwm: list[Record] = []
    gru_size = Population(groups[0].specs[0], [groups[0].specs[0].task], 2, CPU).layout.size
    monkeypatch.setattr(Population, "round", short_of_memory)
    records = together(groups, tmp_path / "s", on_event)
    assert counts == [2, 2]
    notes = {r.model: r.population.get("slots_before_memory_ran_out") for r in records}
    assert notes == {"srwm": None, "gru": (2,)}
    assert all(r.finished and r.steps == 40 for r in records)


def test_admission_by_memory_and_in_order():
    admission, order = Admission(10.0, lambda: None), list[int]()

    def enter(number: int, memory: float) -> threading.Thread:
        def work() -> None:
            admission.enter(number, memory)
            order.append(number)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while number not in admission.requests and number not in admission.inside:
            time.sleep(0.001)
        return thread

    enter(0, 6.0).join(TIMEOUT)
    enter(1, 4.0).join(TIMEOUT)
    waiting = [enter(2, 20.0), enter(3, 1.0)]
    time.sleep(0.05)
    assert order == [0, 1], "both fill the device"
    admission.leave(0)
    time.sleep(0.05)
    assert order == [0, 1], "a group that is too large waits until it is alone, and others wait behind it"
    admission.leave(1)
    waiting[0].join(TIMEOUT)
    assert order == [0, 1, 2]
    admission.leave(2)
    waiting[1].join(TIMEOUT)
    assert order == [0, 1, 2, 3]
    assert admission.get_device_alone(3)
    assert admission.inside == {3: math.inf}
    assert not admission.get_device_alone(3), "there was nobody to wait for"


def test_a_stop_ends_the_waiting():
    def poll() -> None:
        raise KeyboardInterrupt

    admission = Admission(1.0, poll)
    admission.inside[0] = 1.0
    with pytest.raises(KeyboardInterrupt):
        admission.enter(1, 1.0)
    assert not admission.requests


def test_threads_share_equal_settings_and_wait_for_others():
    tf32 = run("gru", 0, precision="tf32").training
    seen: dict[str, str] = {}
    inside, leave = threading.Event(), threading.Event()

    def train() -> None:
        with numerics(tf32, CPU):
            inside.set()
            leave.wait(TIMEOUT)
            seen["train"] = torch.get_float32_matmul_precision()

    def test() -> None:
        with strict_numerics(CPU):
            seen["test"] = torch.get_float32_matmul_precision()

    threads = [threading.Thread(target=work, daemon=True) for work in (train, test)]
    threads[0].start()
    assert inside.wait(TIMEOUT)
    threads[1].start()
    with numerics(tf32, CPU):
        assert torch.get_float32_matmul_precision() == "high", "equal settings are shared"
    time.sleep(0.05)
    assert not seen
    leave.set()
    for thread in threads:
        thread.join(TIMEOUT)
    assert seen == {"train": "high", "test": "highest"}
    assert torch.get_float32_matmul_precision() == "highest"
    with suppress(RuntimeError), strict_numerics(CPU):
        raise RuntimeError
    with numerics(tf32, CPU):
        assert torch.get_float32_matmul_precision() == "high", "an error leaves nothing behind"
