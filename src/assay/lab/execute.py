"""Runs, from their specs to their records; whatever goes wrong becomes a record too."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay import ops
from assay.description import BadInput, in_one_line, suggestion
from assay.lab.checkpoint import Checkpoints
from assay.lab.evaluate import examine, verdict
from assay.lab.member import Member, Stopped
from assay.lab.train import Group, Host, Status
from assay.models.causal import Causal, state_bits
from assay.record import Record
from assay.spec import RunSpec

Watch = Callable[[Status], None]


def device_named(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f"unknown device '{name}'{suggestion(name, ('auto', 'cpu', 'cuda'))}")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def execute(spec: RunSpec, device: torch.device, watch: Watch = lambda _: None) -> Record:
    """One run here and now: train, validate, stop, test. An error ends as a record with the verdict `failed`."""
    (record,) = execute_all([spec], device, watch=watch)
    return record


def execute_all(
    specs: Sequence[RunSpec],
    device: torch.device,
    add: Callable[[Record], None] = lambda _: None,
    watch: Watch = lambda _: None,
    poll: Callable[[], None] = lambda: None,
    slots: int | None = None,
    checkpoints: Checkpoints | None = None,
) -> list[Record]:
    """Runs that share a program; `add` is given each record the moment its run has ended."""
    made: list[Record] = []
    known = circumstances(device)

    def end(record: Record) -> None:
        made.append(record)
        add(record)

    def leave(member: Member, stopped: Stopped, module: nn.Module) -> None:
        try:
            facts = judged(member, stopped, module, device)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            fail(member, error)
            return
        end(Record(**_named(member), **known, **facts))

    def fail(member: Member, error: BaseException) -> None:
        said, spent = in_one_line(error), {"train": member.seconds}
        end(Record(**_named(member), **known, verdict="failed", stopped="error", error=said, seconds=spent))

    with one_thread():
        try:
            group = Group(specs, device, Host(leave, fail, watch, poll), slots, checkpoints)
        except Exception as error:  # a module that cannot even be built
            for spec in specs:
                fail(Member(spec), error)
            return made
        group.run()
    return made


def _named(member: Member) -> dict[str, Any]:
    spec = member.spec
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    known = {"population": member.notes, "started": member.started, "ended": ended}
    return {"digest": spec.digest, "spec": spec.plain(), **known}


def judged(member: Member, stopped: Stopped, model: nn.Module, device: torch.device) -> dict[str, Any]:
    """What there is to say of a run that has ended: its course, and how the model does on the test bins."""
    begin, spec = time.perf_counter(), member.spec
    facts: dict[str, Any] = {
        "stopped": stopped,
        "steps": member.step,
        "solved_at": member.solved_at,
        "curve": tuple(member.curve),
        "parameters": sum(p.numel() for p in model.parameters()),
        "backend": backends(model),
    }
    longest = max(b.high for b in spec.testing.bins)
    if isinstance(model, Causal):
        facts |= {"state_floats": model.state_floats(longest), "state_bits": state_bits(model, longest)}
    if stopped == "diverged":
        return {**facts, "verdict": "diverged", "seconds": {"train": member.seconds}}
    scores, collapsed = examine(model, spec, device)
    verdict_, first_failing = verdict(scores, collapsed)
    seconds = {"train": member.seconds, "test": time.perf_counter() - begin}
    return {
        **facts,
        "verdict": verdict_,
        "tested_at": member.best.step if member.best else None,
        "first_failing_length": first_failing,
        "scores": scores,
        "seconds": seconds,
    }


def backends(model: nn.Module) -> dict[str, str]:
    """Which implementation each op in a model runs with."""
    layers = [m for m in model.modules() if getattr(m, "op", "")]
    device = next(model.parameters()).device
    sizes = {str(layer.op): int(getattr(layer, "dim", 1)) for layer in layers}
    return {op: ops.backend_for(op, "auto", device, size) for op, size in sizes.items()} or {"model": "torch"}


@contextmanager
def one_thread() -> Iterator[None]:
    """One CPU thread: the models are small, runs go side by side, and sums have one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def circumstances(device: torch.device) -> dict[str, Any]:
    """Where and with what a run is made."""
    versions = {name: _version(name) for name in ("assay", "torch", "numpy")} | {"python": platform.python_version()}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"
    return {"commit": _commit(), "versions": versions, "device": name}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from its source folder
        return "source"


def _commit() -> str:
    """What ASSAY_COMMIT says, for copies of a checkout; else the commit of this code, with + where files differ from
    it, and nothing where it is in no checkout."""
    if said := os.environ.get("ASSAY_COMMIT"):
        return said
    here = Path(__file__).parent
    git = ["git", "-C", str(here)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=False)
        if tracked.returncode:
            return ""
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
