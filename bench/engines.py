"""What an engine costs for each run: many trivial runs through every engine, and a store of 100,000 records.

python bench/engines.py [--runs N] [--records N] [--json FILE]

A trivial run trains a tiny model for one step; it takes "computing" milliseconds. "wall" is the time from the first
group to the last record, divided by the runs, on two cores: one process, two worker processes of one command, two
commands that lease from one store, and Ray. "overhead" is what the cores did besides computing: wall x cores -
computing. "driver" is the largest memory of the process that holds the plan. The store is opened (its index), 1,000
of its records are read, and the index is made again from the records.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from assay.lab.carry_out import carry_out, local_engine
from assay.lab.engines.engine import Event
from assay.lab.engines.ray_cluster import RayCluster
from assay.lab.execute import execute_group
from assay.lab.plan import Plan
from assay.lab.provenance import provenance
from assay.spec import RunSpec, run_spec
from assay.store import Store
from ops import command, version

CPU = torch.device("cpu")
CORES = 2
BIN = {"name": "Bin0", "low": 2, "high": 4}
Figures = dict[str, Any]


def trivial_runs(count: int) -> list[RunSpec]:
    training = {
        "steps": 1,
        "lengths": [2, 4],
        "validate_every": 1,
        "validation_rows": 4,
        "batch": 2,
        "validation": [BIN],
    }
    model, testing = {"width": 2, "layers": 1}, {"rows": 4, "bins": [BIN]}
    return [
        run_spec("parity", "gru", seed=seed, model_options=model, training=training, testing=testing)
        for seed in range(count)
    ]


def computing(count: int = 500) -> float:
    """Milliseconds of a trivial run without any engine."""
    specs = trivial_runs(count)
    execute_group(specs[:1], CPU)
    start = time.perf_counter()
    execute_group(specs, CPU)
    return 1000 * (time.perf_counter() - start) / count


class Clock:
    """The time between the first event and the last record."""

    def __init__(self) -> None:
        self.first = self.last = 0.0

    def __call__(self, event: Event) -> None:
        self.last = time.time()
        self.first = self.first or self.last


def one_process(store: Path, count: int, clock: Clock) -> None:
    plan = Plan(trivial_runs(count), (), CPU, jobs=1)
    carry_out(plan, Store.create(store), local_engine(plan, Store(store)), clock)


def two_processes(store: Path, count: int, clock: Clock) -> None:
    plan = Plan(trivial_runs(count), (), CPU, jobs=CORES)
    carry_out(plan, Store.create(store), local_engine(plan, Store(store)), clock)


def ray(store: Path, count: int, clock: Clock) -> None:
    engine = RayCluster("cpu", store, jobs=CORES)
    engine.connect()
    plan = Plan(trivial_runs(count), (), CPU, workers=engine.workers, remote=True)
    carry_out(plan, Store.create(store), engine, clock)
    engine.close()


def leasing(store: Path, count: int, clock: Clock) -> None:
    """One of two commands on a store, each with the groups that a cluster would have."""
    plan = Plan(trivial_runs(count), (), CPU, jobs=1, workers=CORES)
    carry_out(plan, Store.create(store), local_engine(plan, Store(store)), clock)


ENGINES: dict[str, tuple[Callable[[Path, int, Clock], None], int, int]] = {  # with processes, and cores
    "one process": (one_process, 1, 1),
    "two processes": (two_processes, 1, CORES),
    "two commands": (leasing, CORES, CORES),
    "ray": (ray, 1, CORES),
}


def _measured(name: str, store: Path, count: int, results: Any) -> None:
    """One process of an engine; sends its times and its memory."""
    clock = Clock()
    ENGINES[name][0](store, count, clock)
    results.put((clock.first, clock.last, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def engine_figures(name: str, count: int, computing_ms: float, store: Path) -> Figures:
    _, processes, cores = ENGINES[name]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [context.Process(target=_measured, args=(name, store, count, results)) for _ in range(processes)]
    for child in children:
        child.start()
    parts = [results.get() for _ in children]
    for child in children:
        child.join()
    history = [entry.digest for entry in Store.open(store).news()]
    if len(history) != count or len(set(history)) != count:
        raise SystemExit(f"{name}: {len(history)} records of {len(set(history))} runs, of {count}")
    wall = 1000 * (max(last for _, last, _ in parts) - min(first for first, _, _ in parts)) / count
    size = sum(path.stat().st_size for path in (store / "segments").iterdir())
    return {
        "engine": name,
        "runs": count,
        "cores": cores,
        "wall_ms": wall,
        "overhead_ms": wall * cores - computing_ms,
        "driver_mib": max(memory for *_, memory in parts),
        "bytes_per_run": size / count,
    }


def store_figures(source: Path, count: int, folder: Path) -> Figures:
    """A large store, filled with the records of another under other names by a hundred writers."""
    records = Store.open(source).records()[:1000]
    writers = [Store.create(folder) for _ in range(100)]
    for number in range(count):
        copy = records[number % len(records)].model_copy(update={"digest": f"{number:016x}"})
        copy.__dict__["origin"] = None
        writers[number % len(writers)].add(copy)
    start = time.perf_counter()
    store = Store.open(folder)
    entries = store.index()
    opened = time.perf_counter()
    store.select(list(entries)[:: max(1, count // 1000)][:1000])
    read = time.perf_counter()
    for path in (folder / "segments").glob("*.index"):
        path.unlink()
    start_again = time.perf_counter()
    Store.open(folder).index()
    return {
        "records": len(entries),
        "mib": sum(path.stat().st_size for path in (folder / "segments").iterdir()) / 2**20,
        "open_s": opened - start,
        "read_1000_s": read - opened,
        "open_without_index_s": time.perf_counter() - start_again,
    }


def measure(runs: int, records: int) -> Iterator[Figures]:
    computing_ms = computing()
    yield {"computing_ms": computing_ms}
    with TemporaryDirectory() as folder:
        rows = []
        for name in ENGINES:
            rows.append(engine_figures(name, runs, computing_ms, Path(folder) / name.replace(" ", "-")))
            yield {"engines": list(rows)}
        yield {"store": store_figures(Path(folder) / "one-process", records, Path(folder) / "large")}


def show(console: Console, record: Figures) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("engine", "runs", "cores", "wall ms", "overhead ms", "driver MiB", "bytes a run"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for row in record["engines"]:
        figures = (f"{row['wall_ms']:.1f}", f"{row['overhead_ms']:.1f}", f"{row['driver_mib']:.0f}")
        size = f"{row['bytes_per_run']:,.0f}"
        table.add_row(row["engine"], f"{row['runs']:,}", str(row["cores"]), *figures, size)
    console.print(f"A trivial run computes for {record['computing_ms']:.1f} ms.")
    console.print(table)
    store = record["store"]
    console.print(
        f"A store of {store['records']:,} records ({store['mib']:.0f} MiB) opens in {store['open_s']:.2f} s, without "
        f"its index in {store['open_without_index_s']:.1f} s; 1,000 records are read in {store['read_1000_s']:.2f} s."
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=20_000)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    record = provenance(CPU) | {"command": command("engines.py")}
    record["versions"] = record["versions"] | {"ray": version("ray")}
    for figures in measure(arguments.runs, arguments.records):
        record |= figures
        print(json.dumps(figures), file=sys.stderr, flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(record, indent=1))
    show(Console(width=100, highlight=False), record)


if __name__ == "__main__":
    main()
