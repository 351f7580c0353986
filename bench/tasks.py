"""Tokens per second of every task's sampler and oracle, on one CPU core at batch 1024 (or on a GPU).

python bench/tasks.py [--device cuda] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from assay.lab.provenance import provenance
from assay.rng import Rng
from assay.tasks import TASKS, example_task
from assay.tasks.task import Task

BATCH, LEAST = 1024, 2e6


def seconds(call: Callable[[], object], device: str, repeats: int = 5) -> float:
    """The median time of one call after a warm-up; on a CPU the time of this process alone."""
    now = time.perf_counter if device == "cuda" else time.process_time
    times = []
    for _ in range(repeats + 1):
        start = now()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(now() - start)
    return sorted(times[1:])[repeats // 2]


def measure(task: Task, device: str) -> dict[str, float]:
    low, high = task.train_lengths
    fitting = torch.tensor(task.lengths(low, high), device=device)
    rng = Rng.seeded(0, "bench", device=device).rows(BATCH)
    lengths = fitting[rng.child("lengths").integers(1, len(fitting))[:, 0]]
    tokens = int(lengths.sum())
    inputs = task.inputs(lengths, rng, high)
    drawing = seconds(lambda: task.inputs(lengths, rng, high), device)
    solving = seconds(lambda: task.solve(inputs), device)
    return {"draw": tokens / drawing, "solve": tokens / solving, "both": tokens / (drawing + solving)}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--json", metavar="FILE")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rates = {name: measure(example_task(name), chosen.device) for name in TASKS.entries}
    table = Table("task", "draw", "solve", "both", title=f"million tokens per second, batch {BATCH}, {chosen.device}")
    for name, rate in rates.items():
        table.add_row(name, *(f"{rate[column] / 1e6:.1f}" for column in ("draw", "solve", "both")))
    Console().print(table)
    if chosen.json:
        with open(chosen.json, "w") as file:
            machine = provenance(torch.device(chosen.device))
            json.dump({**machine, "batch": BATCH, "tokens_per_second": rates}, file, indent=1)
    slow = [name for name, rate in rates.items() if rate["both"] < LEAST]
    if slow:
        print(f"slower than {LEAST / 1e6:.0f} million tokens per second: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
