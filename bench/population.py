"""Milliseconds per member and training step of populations: batch 32, width 64, 4 heads, 2 layers, ff 4.

python bench/population.py [--device cuda] [--models M ...] [--members P ...] [--time T ...] [--compile] [--json FILE]

A step draws nothing and validates nothing: sampling is done some steps ahead, validation every hundredth step. "step"
is the time of a step replayed from its graph (on a CPU: called) over the number of members, "round" that of a hundred
steps with all that belongs to them, and what the host does in between. "start" is the time from an empty population to
one that can train, kernels compiled where they were not yet. "published" is the published code of Irie et al. 2023, one
run at a time, on an H200 (`PUBLISHED` below). Memory is that of the device at its peak, and as it was predicted.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()  # before anything heavy is imported

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table

from assay.description import in_one_line
from assay.lab.memory import Forecast
from assay.lab.numerics import numerics
from assay.lab.population import Population, build_population
from assay.lab.provenance import provenance
from assay.models import MODELS
from assay.spec import RunSpec, run_spec
from ops import command, number, timed, version, wait

BARE = ("lstm", "e-lstm", "elman", "gru")  # without heads and feed-forward part
SEVEN = ("transformer", "linear-transformer", "delta-net", "recurrent-delta", "srwm", "lstm", "e-lstm")
# Milliseconds per step of one run, T = 50 and 100, measured on one H200 with PyTorch 2.11.
PUBLISHED = {
    "transformer": (5.72, 5.89),
    "lstm": (3.31, 2.91),
    "e-lstm": (23.7, 54.6),
    "linear-transformer": (4.75, 5.08),
    "delta-net": (5.83, 5.93),
    "recurrent-delta": (5.48, 6.18),
    "srwm": (6.54, 12.6),
}
Row = dict[str, Any]
Case = tuple[str, int, int, bool]  # model, members, length, whether compiled and in TF32


def spec(model: str, length: int, seed: int, faster: bool) -> RunSpec:
    options = {"width": 64, "layers": 2} | ({} if model in (*BARE, "dss", "mamba") else {"heads": 4})
    if model == "hybrid":
        options = {"width": 64}
    how = {"lengths": [2, length]} | ({"precision": "tf32", "compile": True} if faster else {})
    return run_spec("parity", model, seed=seed, model_options=options, training=how)


def measure(model: str, members: int, length: int, faster: bool, device: torch.device) -> Row:
    row: Row = {"model": model, "members": members, "time": length, "compiled_tf32": faster}
    cuda = device.type == "cuda"
    runs = [spec(model, length, seed, faster) for seed in range(members)]
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    begin = time.perf_counter()
    population = build_population(runs[0], [runs[0].task], members, device)
    for slot, run in enumerate(runs):
        population.admit(slot, run)
    wait(device)
    row["start_s"] = time.perf_counter() - begin
    population.draws[0]()
    population.step()
    wait(device)
    row["since_command_s"] = time.perf_counter() - BEGIN
    row["uncaptured"], row["uncompiled"] = population.why_not_captured, population.why_not_compiled
    row["steps_drawn_at_once"] = population.batches.ahead
    population.round()
    row["round_ms"] = timed(population.round, 1, device) / population.training.validate_every / members
    with numerics(population.training, device):
        row["step_ms"] = timed(population.step, 20 if cuda else 3, device) / members
        row["draw_ms"] = timed(population.draws[0], 3, device) / population.batches.ahead / members
        row["validate_ms"] = timed(population.validate, 2, device) / population.training.validate_every / members
    if cuda:
        row["memory_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    row["predicted_mib"] = forecast(model, length, faster, device)(members) / 2**20
    if cuda and members == 64:
        row["profile_ms"] = profile(population)
    if model in PUBLISHED and length in (50, 100):
        row["published_ms"] = PUBLISHED[model][length == 100]
    return row


@cache
def forecast(model: str, length: int, faster: bool, device: torch.device) -> Forecast:
    run = spec(model, length, 0, faster)
    return Forecast(run, [run.task], device)


def compile_ahead(todo: list[Case], bar: Progress) -> None:
    """Fill the caches of Triton and of torch.compile with all cores at once; the first case has shown a cold start."""
    alike = sorted({(model, length, faster) for model, _, length, faster in todo}, key=lambda case: not case[2])
    task = bar.add_task("compiling", total=len(alike))
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool, suppress(BrokenProcessPool):
        for _ in pool.map(_compile, alike):
            bar.advance(task)


def _compile(case: tuple[str, int, bool]) -> None:
    model, length, faster = case
    with suppress(Exception):  # the measurement will say it
        run = spec(model, length, 0, faster)
        build_population(run, [run.task], 64, torch.device("cuda"))


def profile(population: Population) -> dict[str, float]:
    """Where the time of a step goes on the device: milliseconds by the name of the kernel, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        population.step()
        torch.cuda.synchronize()
    spent: dict[str, float] = defaultdict(float)
    for kernel in seen.key_averages():
        name = re.sub(r"^void |at::native::|\(anonymous namespace\)::", "", kernel.key)
        spent[re.split(r"[<(]", name)[0][:60]] += kernel.device_time_total / 1000
    return dict(sorted(spent.items(), key=lambda pair: -pair[1])[:12])


def show(console: Console, record: Row) -> None:
    """One table per length, and one of what is compiled in TF32; within 100 columns."""
    for faster in (False, True):
        for length in sorted({row["time"] for row in record["rows"]}):
            rows = [r for r in record["rows"] if r["time"] == length and r["compiled_tf32"] == faster]
            if rows:
                failed = [r for r in rows if "failed" in r]
                rows = [r for r in rows if "failed" not in r]
                title = f"T = {length}, {'compiled, TF32' if faster else 'strict float32'}, ms per member and step"
                console.print(_table(title, rows))
                for row in failed:
                    console.print(f"{row['model']}, {row['members']} members: {row['failed'][:80]}", markup=False)
                console.print()
    if record["cold_start_s"] is not None:
        console.print(f"from the command to the first step: {record['cold_start_s']:.1f} s")


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), title_justify="left")
    names = ("model", "members", "step", "round", "published", "times as fast", "start s", "MiB", "predicted", "graph")
    for name in names:
        table.add_column(name, justify="left" if name == "model" else "right")
    for row in rows:
        said = {"model": row["model"], "members": str(row["members"])}
        said |= {"step": number(row["step_ms"]), "round": number(row["round_ms"])}
        said |= {"start s": f"{row['start_s']:.1f}", "predicted": f"{row['predicted_mib']:,.0f}"}
        said["graph"] = "no" if row["uncaptured"] else "yes"
        if "memory_mib" in row:
            said["MiB"] = f"{row['memory_mib']:,.0f}"
        if "published_ms" in row:
            said["published"] = number(row["published_ms"])
            said["times as fast"] = number(row["published_ms"] / row["round_ms"])
        table.add_row(*(said.get(name, "") for name in names))
    return table


def begun(path: str | None, now: Row) -> Row:
    """What a command that ran out of time has left of the same record: same code, same device."""
    if path is None or not Path(path).exists():
        return {}
    left: Row = json.loads(Path(path).read_text())
    if any(left[name] != now[name] for name in ("commit", "device", "versions")):
        raise SystemExit(f"{path} was measured with other code or on another device; remove it, or name another file")
    return {name: left[name] for name in ("rows", "cold_start_s", "command") if name in left}


def cases(asked: argparse.Namespace) -> list[Case]:
    cuda = asked.device == "cuda"
    members = asked.members or ([1, 4, 16, 64, 256] if cuda else [1, 4])
    strict = [(m, p, t, False) for m in asked.models or SEVEN for t in asked.time or [50, 100] for p in members]
    if cuda and not asked.models:
        strict += [(m, 64, 50, False) for m in MODELS.entries if m not in SEVEN]
    if asked.compile:
        strict += [(m, 64, 50, True) for m in asked.models or SEVEN]
    return sorted(strict, key=lambda case: (case[1] != 64, case[2]))  # what the goals speak of comes first


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--models", nargs="+", metavar="M", choices=list(MODELS.entries))
    options.add_argument("--members", nargs="+", type=int, metavar="P")
    options.add_argument("--time", nargs="+", type=int, metavar="T")
    options.add_argument("--compile", action="store_true", help="also what is compiled, in TF32, at 64 members")
    options.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    options.add_argument("--json", metavar="FILE", help="the record; one that was begun is gone on with")
    options.add_argument("--commit", metavar="HASH", help="of this code, where there is no checkout to ask")
    asked = options.parse_args()
    device, begin = torch.device(asked.device), time.monotonic()
    torch.set_num_threads(1)
    record: Row = provenance(device) | {"command": command("population.py")}
    record["versions"] = record["versions"] | {name: version(name) for name in ("triton", "numba")}
    record["commit"] = asked.commit or record["commit"]
    record |= {"rows": []} | begun(asked.json, record)
    measured = {(row["model"], row["members"], row["time"], row["compiled_tf32"]) for row in record["rows"]}
    todo = [case for case in cases(asked) if case not in measured]
    wanted = len(todo) + len(measured)
    with Progress(
        TextColumn("{task.description}"), *Progress.get_default_columns()[1:], console=Console(stderr=True)
    ) as bar:
        task = bar.add_task("measuring", total=len(todo))
        for done, case in enumerate(todo):
            if asked.device == "cuda" and done == 1 and len(todo) > 8:
                compile_ahead(todo, bar)
            bar.update(task, description=f"{case[0]} P={case[1]} T={case[2]}")
            if time.monotonic() - begin < asked.seconds:
                try:
                    record["rows"].append(measure(*case, device))
                except Exception as error:
                    names = ("model", "members", "time", "compiled_tf32")
                    said = in_one_line(error)
                    record["rows"].append(dict(zip(names, case, strict=True)) | {"failed": said})
                gc.collect()
            record["missing"] = wanted - len(record["rows"])
            if asked.json:
                Path(asked.json).write_text(json.dumps(record, indent=1))
            bar.advance(task)
    record.setdefault("cold_start_s", record["rows"][0].get("since_command_s"))
    record["rows"].sort(key=lambda r: (list(MODELS.entries).index(r["model"]), r["time"], r["members"]))
    if asked.json:
        Path(asked.json).write_text(json.dumps(record, indent=1))
    show(Console(width=100, highlight=False), record)


if __name__ == "__main__":
    main()
