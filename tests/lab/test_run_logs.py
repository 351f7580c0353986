"""Runs in TensorBoard and in Weights & Biases, both without a network."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record as WandbRecord

from assay.errors import BadInput
from assay.lab import run_logs
from assay.lab.engines.engine import Event
from assay.lab.run_logs import check_targets, curve, logged
from assay.record import Point, Record
from tests.report.test_cells import record


def ended_run() -> Record:
    shares = ({"Val0": 0.25, "Val1": 0.0}, {"Val0": 1.0, "Val1": 0.5})
    points = (Point(step=10 * i, loss=1 / (i + 1), sequences=share, answers=share) for i, share in enumerate(shares))
    return record(0).model_copy(update={"curve": tuple(points)})


def test_tensorboard_has_the_curve_and_the_scores(tmp_path: Path):
    ended, failed, heard = ended_run(), record(1, "failed"), list[Event]()
    with logged([f"tensorboard:{tmp_path}"], heard.append) as receive:
        for event in (Event(), Event(record=ended), Event(record=failed)):
            receive(event)
    assert len(heard) == 3
    (folder,) = (path.parent for path in tmp_path.rglob("events.*"))
    events = EventAccumulator(str(folder))
    events.Reload()
    for name in ("loss", "validation/Val0", "validation/Val1"):
        points = {point.step: round(point.value, 6) for point in events.Scalars(name)}
        assert points == {step: values[name] for step, values in curve(ended)}
    (score,) = (score for score in ended.scores if score.bin == "Bin0")
    assert events.Scalars("test/Bin0")[0].value == pytest.approx(score.sequences)


BLOCK, HEADER = (
    1 << 15,
    7,
)  # bytes of a block of LevelDB's log, and of what stands before the file and each of its parts


def wandb_records(file: Path) -> Iterator[WandbRecord]:
    """The records of a run that was logged offline: a LevelDB log, in which a record may have several parts."""
    data, at, parts = file.read_bytes(), HEADER, b""
    while at + HEADER < len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
        _, size, kind = struct.unpack("<IHB", data[at : at + HEADER])
        parts += data[at + HEADER : at + HEADER + size]
        at += HEADER + size
        if kind in (1, 4):  # whole, or the last part
            yield WandbRecord.FromString(parts)
            parts = b""


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "CONSOLE": "off"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    ended = ended_run()
    with logged(["wandb:mine"], lambda event: None) as receive:
        receive(Event(record=ended))
    (file,) = tmp_path.rglob("*.wandb")
    rows, summary = dict[int, dict[str, float]](), dict[str, str]()
    for line in wandb_records(file):
        if line.HasField("history"):
            rows[line.history.step.num] = {
                (item.key or item.nested_key[0]): json.loads(item.value_json) for item in line.history.item
            }
        summary |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in line.summary.update}
    assert [*rows] == [0, 10]
    for step, values in curve(ended):
        assert values.items() <= rows[step].items()
    assert summary["verdict"] == ended.verdict


def test_targets_that_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (file := tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="unknown target 'tensorbord'; did you mean 'tensorboard'"):
        check_targets(["tensorbord:x"])
    with pytest.raises(BadInput, match="--log wandb is not valid: write wandb:PROJECT"):
        check_targets(["wandb"])
    with pytest.raises(BadInput, match=r"cannot write .*file/x: .*file is not a folder"):
        check_targets([f"tensorboard:{file}/x"])
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr("wandb.login", failing(RuntimeError("no key\nat all")))
    with pytest.raises(BadInput, match="--log wandb:x cannot be used: RuntimeError: no key; WANDB_MODE=offline writes"):
        check_targets(["wandb:x"])
    monkeypatch.setattr(run_logs, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"needs tensorboard, which is not installed: pip install 'assay\[logs\]'"):
        check_targets(["tensorboard:x"])


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_a_target_that_breaks_is_left_out_and_the_runs_go_on(monkeypatch: pytest.MonkeyPatch):
    kind = ("wandb", "wandb:PROJECT", lambda place: nullcontext(failing(OSError("the network is gone"))))
    monkeypatch.setitem(run_logs.TARGETS, "wandb", kind)
    events = list[Event]()
    with logged(["wandb:x"], events.append) as receive:
        for _ in range(2):
            receive(Event(record=ended_run()))
    messages = [event.message for event in events if event.message]
    assert messages == ["--log wandb:x has ended: OSError: the network is gone"]
    assert sum(event.record is not None for event in events) == 2
