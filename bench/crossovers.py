"""Milliseconds of both methods of every crossover (src/assay/ops/gpu/crossovers.py), on a GPU.

python bench/crossovers.py [--commit HASH] [--json FILE]

Each is replayed from a CUDA graph, in strict float32.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from assay.lab.provenance import provenance
from assay.ops import OPERATORS
from assay.ops.gpu import affine
from assay.ops.gpu.crossovers import CROSSOVERS, Crossover, matrix_bytes
from ops import command, replayed

DEVICE = torch.device("cuda")
NEVER = 2**62
NETWORKS = {1: "elman", 3: "gru", 4: "lstm"}  # by the number of gates
ONE_LAUNCH_AT_MOST = 2**16  # bytes of matrices; more do not fit
Sizes = dict[str, int]


def _sizes(names: str, *rows: tuple[int, ...]) -> list[Sizes]:
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


SIZES = {
    "product": _sizes(
        "groups rows depth out",
        *((64, 1600, 64, 256), (16, 25600, 128, 128), (64, 1600, 128, 512), (64, 1600, 256, 64), (16, 25600, 192, 192)),
        *((4, 64, 1024, 256), (4, 25600, 1024, 256), (1, 25600, 1024, 4096)),
    ),
    "weight gradient": _sizes(
        "groups rows small large",
        *((64, 1600, 64, 64), (64, 1600, 64, 256), (16, 25600, 64, 256), (16, 25600, 96, 96), (16, 25600, 128, 128)),
        *((9, 1600, 128, 512), (4, 64, 256, 1024), (1, 25600, 1024, 4096)),
    ),
    "recurrence": _sizes(
        "gates groups rows time dim",
        *((4, 1, 32, 50, 64), (4, 64, 32, 100, 64), (1, 16, 64, 100, 128), (4, 16, 64, 100, 96), (4, 64, 32, 100, 128)),
        *((3, 16, 64, 100, 128), (4, 4, 64, 400, 256), (4, 1, 64, 400, 1024)),
    ),
}
for sizes in SIZES["recurrence"]:
    sizes["bytes"] = matrix_bytes(sizes["gates"], sizes["dim"], torch.float32.itemsize)


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


def milliseconds(crossover: Crossover, sizes: Sizes, above: bool) -> float | None:
    """The time of one of the two methods; none where it cannot run."""
    if not above and sizes.get("bytes", 0) > ONE_LAUNCH_AT_MOST:
        return None
    forced = replace(crossover, least=dict.fromkeys(crossover.least, 0 if above else NEVER))
    with patch.dict(CROSSOVERS, {crossover.work: forced}):
        return replayed(WORK[crossover.work](sizes), DEVICE)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--commit", metavar="HASH", help="of this code, where there is no git checkout")
    options.add_argument("--json", metavar="FILE", help="the record")
    arguments = options.parse_args()
    rows = []
    for crossover in list(CROSSOVERS.values()):
        for sizes in SIZES[crossover.work]:
            times = {crossover.below: milliseconds(crossover, sizes, above=False)}
            times[crossover.above] = milliseconds(crossover, sizes, above=True)
            rows.append({"work": crossover.work, "sizes": sizes, "ms": times})
            listed = ", ".join(f"{method} {spent:.3f}" for method, spent in times.items() if spent is not None)
            print(f"{crossover.work} {sizes}: {listed}; chosen: {crossover.choice(sizes)}", flush=True)
    if arguments.json:
        record = provenance(DEVICE) | {"command": command("crossovers.py"), "rows": rows}
        record["commit"] = arguments.commit or record["commit"]
        Path(arguments.json).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
