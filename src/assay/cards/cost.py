"""What a forward pass costs by length, measured on the machine that makes the card."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.lab.execute import one_thread
from assay.models.skeleton import Architecture
from assay.rng import Rng

LENGTHS = (16, 64, 256, 1024)
ROWS = 8
VOCAB, ANSWERS = 4, 2
REPETITIONS = 3
LONGEST_CALL = 1.0  # seconds; after a call that takes longer, no longer input is tried


@dataclass(frozen=True)
class Cost:
    """Microseconds for each token of a forward pass at one length, the best of several calls."""

    architecture: str
    length: int
    microseconds: float
    device: str  # cpu, or the name of a GPU

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def measure_costs(models: Mapping[str, Architecture], device: torch.device) -> tuple[Cost, ...]:
    """The costs of several architectures, on a CPU with one thread."""
    with one_thread(), torch.no_grad():
        return tuple(cost for name, model in models.items() for cost in _costs(name, model, device))


def _costs(name: str, model: Architecture, device: torch.device) -> Iterator[Cost]:
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    module = model.build(VOCAB, 0, ANSWERS, Rng.seeded(0, "cost")).to(device).eval()
    for length in LENGTHS:
        try:
            seconds = _seconds(module, torch.ones(ROWS, length, dtype=torch.int64, device=device))
        except Exception:  # it cannot read so long an input, which the examination has told
            return
        yield Cost(name, length, 1e6 * seconds / (ROWS * length), place)
        if seconds > LONGEST_CALL:
            return


def _seconds(module: nn.Module, tokens: Tensor) -> float:
    """The fastest of some calls, after one to warm up."""
    times = []
    for _ in range(1 + REPETITIONS):
        start = time.perf_counter()
        module(tokens)
        if tokens.is_cuda:
            torch.cuda.synchronize(tokens.device)
        times.append(time.perf_counter() - start)
    return min(times[1:])
