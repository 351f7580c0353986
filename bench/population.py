"""Milliseconds per member and training step of populations, at every size.

python bench/population.py [--device cuda] [--models M ...] [--only small|large|compiled ...] [--json FILE]

Small: batch 32, width 64, 4 heads, 2 layers, T = 50 and 100, 1 to 256 members; beside the published code of Irie et
al. 2023, one run at a time, on an H200 (`PUBLISHED` below). Large: batch 64, one layer, T up to 1,600 and widths up to
1,024, where plain PyTorch has fused attention and cuDNN (`plain.py`). Compiled: as small, with torch.compile and TF32.

"step" is the time of a step replayed from its graph (on a CPU: called) over the number of members; it draws and
validates nothing. "round" is that of a hundred steps with all that belongs to them, and what the host does in between.
"start" is the time from an empty population to one that can train, kernels compiled where they were not yet. "floor" is
the share of the least possible time (`floor.py`) in the time of a step: in strict float32, 100 % is all that a device
can do without its matrix units. Memory is that of the device at its peak, and as it was predicted.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()  # before anything heavy is imported

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table

from assay.errors import in_one_line
from assay.lab.memory import Forecast
from assay.lab.numerics import numerics
from assay.lab.population import Population, build_population
from assay.lab.precompile import compile_kernels
from assay.lab.provenance import provenance
from assay.models import MODELS
from assay.spec import RunSpec, run_spec
from floor import Floor, floor, rates_of
from ops import command, earlier_record, number, timed, version, wait
from plain import has_plain_form, plain_step

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


@dataclass(frozen=True)
class Case:
    """A population whose step is measured."""

    model: str
    members: int
    time: int
    width: int = 64
    layers: int = 2
    batch: int = 32
    compiled_tf32: bool = False

    @property
    def part(self) -> str:
        return "compiled" if self.compiled_tf32 else "small" if self.layers == 2 else "large"

    def spec(self, seed: int = 0) -> RunSpec:
        options: Row = {"width": self.width}
        if self.model != "hybrid":
            known = inspect.signature(MODELS.load(self.model)).parameters
            options |= {"layers": self.layers} | ({"heads": 4} if "heads" in known else {})
        how: Row = {"lengths": [2, self.time], "batch": self.batch}
        if self.compiled_tf32:
            how |= {"precision": "tf32", "compile": True}
        return run_spec("parity", self.model, seed=seed, model_options=options, training=how)


def case_of(row: Row) -> Case:
    return Case(**{field.name: row[field.name] for field in fields(Case)})


def small_cases(models: list[str], cuda: bool) -> Iterator[Case]:
    counts = (64, 1, 4, 16, 256) if cuda else (1, 4)
    yield from (Case(model, count, length) for count in counts for length in (50, 100) for model in models)
    if cuda:
        yield from (Case(model, 64, 50) for model in MODELS.entries if model not in models)


def large_cases() -> Iterator[Case]:
    """Lengths and widths of Bhattamishra et al. 2024, for one member and for as many as a study would have."""
    sizes = {
        "transformer": ((400, 64), (800, 64), (1600, 64), (400, 256), (400, 1024)),
        "lstm": ((400, 64), (400, 256), (400, 512), (400, 1024)),
        "gru": ((400, 256),),
        "mamba": ((400, 64), (400, 256), (400, 1024)),
        "dss": ((400, 64), (400, 256), (400, 1024)),
        "retnet": ((400, 64), (400, 256)),
        "linear-transformer": ((400, 64), (400, 256)),
        "delta-net": ((400, 64), (400, 256)),
    }
    for members in (16, 1):
        for model, shapes in sizes.items():
            for length, width in shapes:
                yield Case(model, members if width <= 256 else min(members, 4), length, width, layers=1, batch=64)


def measure(case: Case, device: torch.device) -> Row:
    row: Row = asdict(case) | {"part": case.part}
    cuda, members = device.type == "cuda", case.members
    runs = [case.spec(seed) for seed in range(members)]
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
    row["predicted_mib"] = forecast(replace(case, members=1), device)(members) / 2**20
    if cuda:
        profiled = profile(population)
        row |= {"kernels": len(profiled), "profile_ms": longest(profiled)}
    least = least_work(replace(case, members=1))
    row |= {"flops": least.flops, "bytes": least.bytes, "floor_ms": least.milliseconds(rates(device))}
    if case.model in PUBLISHED and case.part == "small" and case.time in (50, 100):
        row["published_ms"] = PUBLISHED[case.model][case.time == 100]
    del population
    gc.collect()
    if members == 1 and case.part == "large" and has_plain_form(runs[0]):
        row["plain_ms"] = plain_ms(runs[0], device)
    return row


def plain_ms(run: RunSpec, device: torch.device) -> float:
    """Plain PyTorch, called and not captured, as users train one run."""
    step = plain_step(run, device)
    timed(step, 3, device)
    return timed(step, 10 if device.type == "cuda" else 1, device)


@cache
def forecast(case: Case, device: torch.device) -> Forecast:
    run = case.spec()
    return Forecast(run, [run.task], device)


rates = cache(rates_of)


@cache
def least_work(case: Case) -> Floor:
    return floor(case.spec())


def compile_ahead(todo: list[Case], bar: Progress) -> None:
    """Fill the caches of Triton and of torch.compile with all cores at once; the first case has shown a cold start."""
    task = bar.add_task("compiling", total=len(todo))
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool, suppress(BrokenProcessPool):
        for _ in pool.map(_compile, sorted(todo, key=lambda case: not case.compiled_tf32)):
            bar.advance(task)


def _compile(case: Case) -> None:
    with suppress(Exception):  # the measurement will say it
        compile_kernels(case.spec(), case.members, torch.device("cuda"))
        if case.compiled_tf32:
            build_population(case.spec(), [case.spec().task], case.members, torch.device("cuda"))


def profile(population: Population) -> list[tuple[str, float]]:
    """The kernels of a step in their order, each with its milliseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        population.step()
        torch.cuda.synchronize()
    return [(_short(event.name), event.device_time / 1000) for event in seen.events() if event.device_time]


def longest(kernels: list[tuple[str, float]]) -> dict[str, float]:
    """Where the time of a step goes: milliseconds by the name of the kernel, the longest first."""
    spent: dict[str, float] = defaultdict(float)
    for name, milliseconds in kernels:
        spent[name] += milliseconds
    return dict(sorted(spent.items(), key=lambda pair: -pair[1])[:12])


def _short(name: str) -> str:
    name = re.sub(r"^void |at::native::|\(anonymous namespace\)::", "", name)
    return re.split(r"[<(]", name)[0][:60]


TITLES = {
    "small": "strict float32, batch 32, 2 layers, width 64",
    "large": "strict float32, batch 64, one layer",
    "compiled": "compiled, TF32, batch 32, 2 layers, width 64",
}


def show(console: Console, record: Row) -> None:
    """One table for each part, within 100 columns; the failures below it."""
    for part, title in TITLES.items():
        rows = [row for row in record["rows"] if row["part"] == part]
        if not rows:
            continue
        if measured := [row for row in rows if "failed" not in row]:
            console.print(_table(f"{title}: ms per member and step", measured))
        for row in (row for row in rows if "failed" in row):
            shape = f"{row['model']}, {row['members']} members, T = {row['time']}, width {row['width']}"
            console.print(f"{shape}: {row['failed'][:80]}", markup=False)
        console.print()
    if record["cold_start_s"] is not None:
        console.print(f"from the command to the first step: {record['cold_start_s']:.1f} s")


def _table(title: str, rows: list[Row]) -> Table:
    several = len({row["commit"] for row in rows}) > 1
    title += "" if several else f"; {rows[0]['commit']}"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), title_justify="left")
    lines = [_cells(row) for row in rows]
    left_out = "start s" if several else "commit"  # for 100 columns
    for name in [name for name in COLUMNS if name != left_out and any(name in line for line in lines)]:
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=name in ("model", "commit"))
    for line in lines:
        table.add_row(*(line.get(str(column.header), "") for column in table.columns))
    return table


COLUMNS = ["model", "members", "T", "width", "step", "round", "floor", "kernels", "paper", "plain", "x as fast"]
COLUMNS += ["start s", "GiB", "forecast", "commit"]


def _cells(row: Row) -> dict[str, str]:
    """A row of a table. `x as fast` compares a round with the published code, and a step with plain PyTorch."""
    cells = {"model": row["model"], "members": str(row["members"]), "T": str(row["time"])}
    cells |= {"step": number(row["step_ms"]), "round": number(row["round_ms"])}
    cells |= {"floor": f"{row['floor_ms'] / row['step_ms']:.0%}"}
    cells |= {"forecast": number(row["predicted_mib"] / 1024)}
    cells |= {"start s": f"{row['start_s']:.1f}", "commit": row["commit"][:6]}
    if row["part"] == "large":
        cells["width"] = str(row["width"])
    if "kernels" in row:
        cells |= {"kernels": str(row["kernels"]), "GiB": number(row["memory_mib"] / 1024)}
    for name, field, ours in (("paper", "published_ms", "round_ms"), ("plain", "plain_ms", "step_ms")):
        if field in row:
            theirs = row[field]
            cells |= {name: number(theirs), "x as fast": number(theirs / row[ours])}
    return cells


def every_case(models: list[str], cuda: bool) -> list[Case]:
    cases = [*small_cases(models, cuda)]
    if cuda:
        cases += [*large_cases(), *(Case(model, 64, 50, compiled_tf32=True) for model in models)]
    return sorted(cases, key=_priority)


def _priority(case: Case) -> int:
    """What the goals are about comes first, in case that the time runs out; the rest shows how times grow."""
    first = case.members == 64 and case.time == 50
    return {"small": 0 if first else 3, "large": 1, "compiled": 2}[case.part]


def _place(row: Row) -> tuple[int, ...]:
    return list(MODELS.entries).index(row["model"]), row["time"], row["width"], row["members"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--models", nargs="+", metavar="M", choices=list(MODELS.entries))
    options.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES))
    options.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    options.add_argument("--json", metavar="FILE", help="the record; what it has of this commit is not measured again")
    options.add_argument("--commit", metavar="HASH", help="of this code, where there is no checkout to ask")
    arguments = options.parse_args()
    device, begin = torch.device(arguments.device), time.monotonic()
    torch.set_num_threads(1)
    record: Row = provenance(device) | {"command": command("population.py")}
    record["versions"] = record["versions"] | {name: version(name) for name in ("triton", "numba")}
    record["commit"] = arguments.commit or record["commit"]
    begun = earlier_record(arguments.json, record)
    earlier = {case_of(row): row for row in begun.get("rows", ())}
    record |= {"rows": [], "cold_start_s": begun.get("cold_start_s")}
    cuda, models = device.type == "cuda", list(arguments.models or SEVEN)
    cases, whole = every_case(models, cuda), len(every_case(list(SEVEN), cuda))
    chosen = [case for case in cases if case.part in arguments.only and (not arguments.models or case.model in models)]
    todo = [case for case in chosen if case not in earlier or earlier[case]["commit"] != record["commit"]]
    todo.sort(key=earlier.__contains__)  # what was measured at an earlier commit comes last
    columns = (TextColumn("{task.description}"), *Progress.get_default_columns()[1:])
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("measuring", total=len(todo))
        for done, case in enumerate(todo):
            if device.type == "cuda" and done == 1 and len(todo) > 8:
                compile_ahead(todo, bar)
            bar.update(task, description=f"{case.model} P={case.members} T={case.time} width {case.width}")
            if time.monotonic() - begin < arguments.seconds:
                try:
                    row = measure(case, device)
                except Exception as error:
                    row = asdict(case) | {"part": case.part, "failed": in_one_line(error)}
                earlier[case] = row | {"commit": record["commit"]}
                record["cold_start_s"] = record["cold_start_s"] or row.get("since_command_s")
                gc.collect()
            record["rows"] = sorted(earlier.values(), key=_place)
            record["missing"] = whole - len(record["rows"])
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(record, indent=1))
            bar.advance(task)
    show(Console(width=100, highlight=False), record)


if __name__ == "__main__":
    main()
