"""Milliseconds of both methods at the measured sizes of every crossover (src/assay/ops/gpu/crossovers.py), on a GPU.

python bench/crossovers.py [--json FILE]

Each is replayed from a CUDA graph, in strict float32.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from assay.lab.provenance import provenance
from assay.ops import OPERATORS
from assay.ops.gpu import affine
from assay.ops.gpu.crossovers import CROSSOVERS, Crossover, Sizes
from ops import command, replayed

DEVICE = torch.device("cuda")
NEVER = 2**62
NETWORKS = {1: "elman", 3: "gru", 4: "lstm"}  # by the number of gates


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def product(sizes: Sizes) -> Callable[[], Any]:
    x = random(sizes["groups"], 1, sizes["rows"], sizes["depth"])
    W, b = random(sizes["groups"], 1, sizes["out"], sizes["depth"]), random(sizes["groups"], 1, sizes["out"])
    outputs = affine.outputs(x, W, b, relu=False)
    return lambda: affine.forward(outputs, x, W, b, relu=False)


def weight_gradient(sizes: Sizes) -> Callable[[], Any]:
    x, dy = (random(sizes["groups"], 1, sizes["rows"], sizes[name]) for name in ("small", "large"))
    W = random(sizes["groups"], 1, sizes["large"], sizes["small"])
    return lambda: affine.weight_gradients(x, dy, W)


def recurrence(sizes: Sizes) -> Callable[[], Any]:
    name = NETWORKS[sizes["gates"]]
    kernel, operator = importlib.import_module(f"assay.ops.gpu.{name}"), OPERATORS[name]
    axes = {"B": sizes["groups"] * sizes["rows"], "G": sizes["groups"], "H": 1, "T": sizes["time"], "D": sizes["dim"]}
    inputs = operator.draw(axes, torch.Generator(DEVICE).manual_seed(0), torch.float32)
    outputs = kernel.outputs(*inputs.values(), **operator.flags)
    grads = [torch.ones_like(outputs[0]), *(None for _ in list(operator.outputs)[1:])]

    def both() -> Any:
        kernel.forward(outputs, *inputs.values(), **operator.flags)
        return kernel.backward(outputs, grads, *inputs.values(), **operator.flags)

    return both


WORK = {"product": product, "weight gradient": weight_gradient, "recurrence": recurrence}


def milliseconds(crossover: Crossover, sizes: Sizes, above: bool) -> float:
    """The time of one of the two methods."""
    forced = replace(crossover, least=dict.fromkeys(crossover.least, 0 if above else NEVER))
    with patch.dict(CROSSOVERS, {crossover.work: forced}):
        return replayed(WORK[crossover.work](sizes), DEVICE)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    rows = []
    for crossover in list(CROSSOVERS.values()):
        for sizes, below, _ in crossover.measured:
            times = {
                crossover.below: below if below == inf else milliseconds(crossover, sizes, above=False),
                crossover.above: milliseconds(crossover, sizes, above=True),
            }
            chosen = crossover.choice(sizes)
            rows.append({"work": crossover.work, **sizes, **times, "chosen": chosen})
            listed = ", ".join(f"{method} {spent:.3f}" for method, spent in times.items())
            slower = " (the slower one)" if times[chosen] > 1.05 * min(times.values()) else ""
            print(f"{crossover.work} {sizes}: {listed}; chosen: {chosen}{slower}", flush=True)
    if arguments.json:
        record = provenance(DEVICE) | {"command": command("crossovers.py"), "rows": rows}
        Path(arguments.json).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
