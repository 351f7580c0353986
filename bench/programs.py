"""Several programs on one device: a step of all of them, and a study of them from the command to its result.

python bench/programs.py [--device cuda] [--steps N] [--json FILE]

"six programs" is the time of one step of each program of `six_programs.py`, every program on its own stream; "two
programs" that of two programs of 27 members, one for each width. "study" is `assay study bench/six_programs.py`: first
with empty caches of compiled kernels, then again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from assay.lab.numerics import numerics
from assay.lab.population import Population, build_population
from assay.lab.provenance import provenance
from assay.spec import RunSpec
from ops import command
from six_programs import MODELS, RUNS, WIDTHS, spec

FIGURES = ("study_cold_s", "study_s", "six_programs_ms", "two_programs_ms")
STUDY = str(Path(__file__).with_name("six_programs.py"))


def population(specs: Sequence[RunSpec], device: torch.device) -> Population:
    result = build_population(specs[0], [specs[0].task], len(specs), device)
    for slot, run in enumerate(specs):
        result.admit(slot, run)
    return result


def step_of_all(populations: Sequence[Population], device: torch.device, steps: int) -> float:
    """Milliseconds of one step of every population, each on its own stream."""
    streams = [torch.cuda.Stream() if device.type == "cuda" else None for _ in populations]

    def take(count: int) -> None:
        for _ in range(count):
            for member, stream in zip(populations, streams, strict=True):
                with torch.cuda.stream(stream):
                    member.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    with numerics(populations[0].training, device):
        take(3)
        start = time.perf_counter()
        take(steps)
    return 1000 * (time.perf_counter() - start) / steps


def study_seconds(device: torch.device, caches: str) -> float:
    """From the command to its result, in a process of its own."""
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "assay", "study", STUDY, "--store", f"{folder}/store"]
        words += ["--device", device.type, "--weights", "none", "--json"]
        start = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True, env=os.environ | {"TRITON_CACHE_DIR": caches})
        return time.perf_counter() - start


def measure(device: torch.device, steps: int) -> Iterator[dict[str, Any]]:
    """One figure after the other."""
    with TemporaryDirectory() as caches:
        for name in ("study_cold_s", "study_s"):
            yield {name: study_seconds(device, caches)}
    small = [
        population([run for run in RUNS if (run.model.name, run.model.plain()["width"]) == key], device)
        for key in ((model, width) for model in MODELS for width in WIDTHS)
    ]
    yield {"six_programs_ms": step_of_all(small, device, steps)}
    two = {}
    for model in MODELS:
        large = [population([spec(model, width, seed) for seed in range(27)], device) for width in WIDTHS]
        two[model] = step_of_all(large, device, steps)
        del large
    yield {"two_programs_ms": two}


def show(console: Console, record: dict[str, Any]) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("what", "measured"):
        table.add_column(name, justify="left" if name == "what" else "right")
    mean = sum(record["two_programs_ms"].values()) / len(record["two_programs_ms"])
    table.add_row("six programs of 9, a step of all", f"{record['six_programs_ms']:.2f} ms")
    for model, milliseconds in record["two_programs_ms"].items():
        table.add_row(f"two programs of 27, {model}", f"{milliseconds:.2f} ms")
    table.add_row("six over two (mean of the three models)", f"{record['six_programs_ms'] / mean:.2f}")
    table.add_row("study of 54 runs, empty caches", f"{record['study_cold_s']:.1f} s")
    table.add_row("study of 54 runs, again", f"{record['study_s']:.1f} s")
    console.print(table)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--commit", metavar="HASH", help="of this code, where there is no git checkout")
    arguments = options.parse_args()
    device = torch.device(arguments.device)
    record = provenance(device) | {"command": command("programs.py"), "missing": len(FIGURES)}
    record["commit"] = arguments.commit or record["commit"]
    for figure in measure(device, arguments.steps):
        record |= figure | {"missing": record["missing"] - 1}
        print(json.dumps(figure), file=sys.stderr, flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(record, indent=1))
    show(Console(width=100, highlight=False), record)


if __name__ == "__main__":
    main()
