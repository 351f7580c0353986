"""Milliseconds per training step of every named model: batch 32, width 64, 4 heads, 2 layers, T = 50, one CPU core.

python bench/models.py [--device cuda] [--time 100] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from rich.console import Console
from rich.table import Table

from assay.lab.provenance import provenance
from assay.lab.stacking import member_losses
from assay.models import MODELS, named_model
from assay.rng import Rng
from assay.tasks import named_task

BATCH, REPEATS = 32, 5


def seconds_per_step(name: str, length: int, device: str) -> tuple[int, float]:
    """A model's parameters and the median time of forward, backward and update."""
    task = named_task("parity")
    model = named_model(name).build(*task.shape, Rng.seeded(0)).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    lengths = torch.full((BATCH,), length, device=device)
    batch = task.batch(lengths, Rng.seeded(0, "bench", device=device).rows(BATCH))
    now = time.perf_counter if device == "cuda" else time.process_time  # on a CPU, the time of this process alone
    times = []
    for _ in range(REPEATS + 1):
        start = now()
        loss = member_losses(model(batch.inputs)[0][None], batch.targets[None]).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(now() - start)
    return sum(p.numel() for p in model.parameters()), sorted(times[1:])[REPEATS // 2]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--time", type=int, default=50)
    options.add_argument("--json", metavar="FILE")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    title = f"training step, batch {BATCH}, T = {chosen.time}, {chosen.device}"
    table = Table("model", "parameters", "ms / step", title=title)
    results = {}
    for name in MODELS.entries:
        parameters, seconds = seconds_per_step(name, chosen.time, chosen.device)
        results[name] = seconds
        table.add_row(name, f"{parameters:,}", f"{1000 * seconds:.1f}")
    Console().print(table)
    if chosen.json:
        with open(chosen.json, "w") as file:
            machine = provenance(torch.device(chosen.device))
            json.dump({**machine, "batch": BATCH, "time": chosen.time, "seconds_per_step": results}, file, indent=1)


if __name__ == "__main__":
    main()
