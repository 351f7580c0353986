"""One run, from its spec to its record; whatever goes wrong becomes a record too."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay import ops
from assay.description import BadInput, suggestion
from assay.lab.evaluate import examine, verdict
from assay.lab.train import Progress, train
from assay.models.causal import Causal, state_bits
from assay.models.mixer import MixerLayer
from assay.record import Record
from assay.rng import Rng
from assay.spec import RunSpec


def device_named(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f"unknown device '{name}'{suggestion(name, ('auto', 'cpu', 'cuda'))}")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def execute(spec: RunSpec, device: torch.device, progress: Progress = lambda *_: None) -> Record:
    """Train, validate, stop, test. An error ends as a record with the verdict `failed`."""
    started, begin = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    known = {"digest": spec.digest, "spec": spec.plain(), "started": started, **circumstances(device)}
    try:
        with one_thread(), torch.random.fork_rng():
            torch.manual_seed(int(Rng.seeded(spec.seed, "torch").words(1)[0]))  # for a foreign module's dropout
            return Record(**known, **_run(spec, device, progress))
    except ConnectionError:  # whoever watched has gone
        raise
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        spent = {"total": time.perf_counter() - begin}
        return Record(**known, verdict="failed", stopped="error", error=said, seconds=spent)


def _run(spec: RunSpec, device: torch.device, progress: Progress) -> dict[str, Any]:
    model = spec.model.build(*spec.task.shape, Rng.seeded(spec.seed, "initial")).to(device)
    trained = train(model, spec, device, progress)
    begin = time.perf_counter()
    facts: dict[str, Any] = {
        "stopped": trained.stopped,
        "steps": trained.steps,
        "solved_at": trained.solved_at,
        "curve": trained.curve,
        "parameters": sum(p.numel() for p in model.parameters()),
        "backend": backends(model),
    }
    longest = max(b.high for b in spec.testing.bins)
    if isinstance(model, Causal):
        facts |= {"state_floats": model.state_floats(longest), "state_bits": state_bits(model, longest)}
    if trained.stopped == "diverged":
        return {**facts, "verdict": "diverged", "seconds": {"train": trained.seconds}}
    scores, collapsed = examine(model, spec, device)
    judged, first_failing = verdict(scores, collapsed)
    seconds = {"train": trained.seconds, "test": time.perf_counter() - begin}
    return {
        **facts,
        "verdict": judged,
        "first_failing_length": first_failing,
        "scores": scores,
        "seconds": seconds,
    }


def backends(model: nn.Module) -> dict[str, str]:
    """Which implementation each recurrence in a model runs with."""
    layers = [m for m in model.modules() if isinstance(m, MixerLayer) and m.op]
    device = next(model.parameters()).device
    return {layer.op: ops.chosen(layer.op, "auto", device, layer.dim) for layer in layers} or {"model": "torch"}


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
    """The commit of this code, with + where files differ from it; empty outside of a checkout."""
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
