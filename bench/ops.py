"""Milliseconds of every operator, forward and with backward, against the plain loop and against other libraries.

python bench/ops.py [--device cuda] [--only OP ...] [--quick] [--seconds N] [--json FILE] [--commit HASH]

A member is one network of a population: 32 rows of the batch with weights of their own. The loop is timed for one
member; "x loop" is the loop's time for as many members, one after the other, over ours. "graph" replays forward and
backward from a CUDA graph, which leaves out Python and the launches. "GB/s" is the rate at
which the fewest bytes are moved (every input and output gradient read once, every output and gradient written once),
"copy" its share of the bandwidth of a large copy.
The errors are ||x - exact|| / ||exact|| against the loop in float64, of the output and of the worst gradient.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from importlib import metadata
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table
from torch import Tensor

from assay.errors import in_one_line
from assay.lab.provenance import provenance
from assay.ops import OPERATORS, backend_for
from cases import Case, quick, usual
from peers import FLA, NETWORKS, Contender, fla, in_tf32, ours, torch_nn, with_input

Row = dict[str, Any]
EXACT_ROWS, EXACT_TIME = 4, 1024  # where errors are measured
BUSY = 0.25  # the share of the cores that other work may keep busy; with more, times on a CPU mean nothing
GRAPH_STEPS = 256  # the longest loop that is captured
COLUMNS = ["T", "d", "rows", "by", "forward", "both", "graph", "x loop", "x chunked", "x fla", "x torch"]
COLUMNS += ["GB/s", "copy", "error", "of grad"]
# How two are compared: as called from Python, as graphs, and ours as a graph with theirs as called.
WAYS = (("both_ms", "both_ms", ""), ("graph_ms", "graph_ms", "_graph"), ("graph_ms", "both_ms", "_replayed"))
SHAPE = ("op", "rows", "heads", "time", "size", "states", "dtype")


def contenders(case: Case, device: torch.device) -> list[Contender]:
    """Ours first. The loop is measured for one member only: it would keep every state of every member."""
    best = backend_for(case.op, "auto", device, case.bounded)
    others = ["chunked"] if case.operator.chunked and device.type == "cpu" else []
    one = case.members == 1 or case.operator.fusible
    if one and case.dtype != "bfloat16" and (device.type == "cpu" or case.time <= GRAPH_STEPS):
        others.append("reference")
    result = [ours(case.op, name) for name in dict.fromkeys([best, *others])]
    if device.type == "cuda" and case.members == 1:
        result += [in_tf32(case.op)] if case.op in FLA and case.dtype == "float32" else []
        result += fla(case.op, getattr(torch, case.dtype))
    if case.op in NETWORKS:
        result += [with_input(case.op, best), torch_nn(case.op)] if best != "reference" else [torch_nn(case.op)]
    return result


# -- measuring -----------------------------------------------------------------------------------------------------


def milliseconds(work: Callable[[], Any], device: torch.device) -> float:
    """The median time of a call, warm; short calls on a GPU are timed in bunches, each waited for."""
    budget, bunch, slow = (60.0, 5.0, 200.0) if device.type == "cuda" else (300.0, 0.0, 1000.0)

    def span(calls: int) -> float:
        return timed(work, calls, device)

    span(1)  # compiles, and lets the peers tune
    calls = max(1, int(bunch / span(1)))
    once = span(4 * calls) if calls > 1 else span(1)
    calls = max(1, int(bunch / once))
    least = 3 if once < slow else 1
    return statistics.median(span(calls) for _ in range(min(30, max(least, int(budget / (calls * once))))))


def timed(work: Callable[[], Any], calls: int, device: torch.device) -> float:
    """Milliseconds of a call, all of them waited for; on a CPU, PyTorch's threads are awake, as they are in a model."""
    if device.type == "cpu":
        torch.ones(2**18).sin_()
    wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait(device)
    return 1000 * (time.perf_counter() - start) / calls


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def replayed(work: Callable[[], Any], device: torch.device) -> float:
    """The same from a CUDA graph."""
    torch.cuda.empty_cache()
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    spent = milliseconds(graph.replay, device)
    del kept
    return spent


def measure(case: Case, contender: Contender, device: torch.device, exact: Exact | None) -> Row:
    row: Row = {**asdict(case), "backend": contender.name, "bytes_floor": case.floor}
    try:
        torch.set_float32_matmul_precision(contender.precision)
        forward, wanted = contender.start(case.draw(device))
        arriving = [torch.randn_like(o) for o in forward()]

        def both() -> Sequence[Tensor]:
            return torch.autograd.grad(forward(), list(wanted.values()), arriving)

        if exact and contender.turn:
            row |= exact.errors(contender)
        row |= {"forward_ms": milliseconds(forward, device), "both_ms": milliseconds(both, device)}
        if device.type == "cuda" and (contender.name != "reference" or case.time <= GRAPH_STEPS):
            row["graph_ms"] = replayed(both, device)
    except Exception as error:  # a peer that refuses, a graph that cannot be captured: noted in the row
        row["failed"] = in_one_line(error)[:200]
    finally:
        torch.set_float32_matmul_precision("highest")
    return row


class Exact:
    """A case of a few rows, with its output and gradients in float64."""

    def __init__(self, case: Case, device: torch.device) -> None:
        few = replace(case, rows=min(EXACT_ROWS, case.rows))
        self.inputs = few.draw(device)
        double = {n: x.double() for n, x in self.inputs.items()}
        forward, wanted = ours(case.op, "reference").start(double)
        (self.output,) = forward()
        self.arriving = torch.randn_like(self.output).to(getattr(torch, case.dtype))
        grads = torch.autograd.grad(self.output, list(wanted.values()), self.arriving.to(self.output.dtype))
        self.grads = dict(zip(wanted, grads, strict=True))

    def errors(self, contender: Contender) -> dict[str, float]:
        turn = contender.turn
        assert turn is not None, "only implementations with the same layout are compared"
        forward, wanted = contender.start(self.inputs)
        (output,) = forward()
        grads = torch.autograd.grad(output, list(wanted.values()), turn(self.arriving))
        off = [_relative(turn(grad), self.grads[name]) for name, grad in zip(wanted, grads, strict=True)]
        return {
            "error_out": float(_relative(turn(output), self.output)),
            "error_grad": float(torch.stack(off).max()),
        }


def _relative(x: Tensor, exact: Tensor) -> Tensor:
    ratio: Tensor = (x - exact).norm() / exact.norm()
    return ratio.detach()


def copy_bandwidth(device: torch.device) -> float:
    """Gigabytes per second of a large copy, read and written."""
    x = torch.ones(2**30 if device.type == "cuda" else 2**26, device=device)
    y = torch.empty_like(x)
    return 2 * x.nbytes / milliseconds(lambda: y.copy_(x), device) / 1e6


# -- compiling ahead ------------------------------------------------------------------------------------------------


def compile_ahead(todo: list[Case], progress: Progress) -> None:
    """Fill Triton's cache with all cores at once: fla tries up to 48 settings of a kernel, and compiles each."""
    import triton.testing

    alike = defaultdict(list)
    for case in todo:
        alike[case.op, case.size, case.dtype].append(case)
    task = progress.add_task("compiling", total=len(alike))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool, suppress(BrokenProcessPool):
        for _ in pool.map(_compile, alike.values()):
            progress.advance(task)
    triton.testing.do_bench = partial(triton.testing.do_bench, warmup=5, rep=25)  # ms; by default 25 and 100


def _compile(cases: list[Case]) -> None:
    """Run each case once; every setting is tried and none is timed."""
    os.environ["FLA_CACHE_RESULTS"] = "0"  # its choice would be arbitrary
    import triton.testing

    def tried(work: Callable[[], object], **_: object) -> list[float]:
        work()
        return [1.0, 1.0, 1.0]

    triton.testing.do_bench, device = tried, torch.device("cuda")
    for case in cases:
        for contender in contenders(case, device):
            if contender.name.startswith(("gpu", "fla")):
                torch.set_float32_matmul_precision(contender.precision)
                with suppress(Exception):  # the measurement will report it
                    forward, wanted = contender.start(case.draw(device))
                    torch.autograd.grad(forward()[0].sum(), list(wanted.values()))


# -- comparing and showing ------------------------------------------------------------------------------------------


def compare(rows: list[Row], bandwidth: float) -> None:
    """Add to every row how many times as fast it is as the others at its shape, each family at its best."""
    alike = defaultdict(list)
    for row in rows:
        alike[tuple(row[name] for name in SHAPE)].append(row)
    for row in (row for row in rows if "both_ms" in row):
        for other in alike[tuple(row[name] for name in SHAPE)]:
            family = _family(row, other)
            for ours_ms, theirs_ms, ending in WAYS:
                if family and ours_ms in row and theirs_ms in other:
                    times = other[theirs_ms] * row["members"] / other["members"] / row[ours_ms]
                    row[f"x_{family}{ending}"] = min(times, row.get(f"x_{family}{ending}", times))
        row["gb_per_s"] = row["bytes_floor"] / row.get("graph_ms", row["both_ms"]) / 1e6
        row["copy_share"] = row["gb_per_s"] / bandwidth


def _family(row: Row, other: Row) -> str:
    """The kind of comparison of a row with another, if any: with the loop of one member, or with a peer."""
    mine, theirs = row["backend"], other["backend"]
    if mine.endswith("+input"):
        return "torch" if theirs == "torch.nn" and other["members"] == row["members"] else ""
    if theirs == "reference":
        return "loop" if mine not in ("reference", "torch.nn") else ""
    if mine not in ("cpu", "gpu", "gpu tf32") or other["members"] != row["members"]:
        return ""
    return theirs.split()[0] if theirs.startswith(("chunked", "fla")) else ""


def cells(row: Row) -> dict[str, str]:
    """A row of a table."""
    short = {"bfloat16": " bf16"}.get(row["dtype"], "")
    backend = row["backend"].replace("reference", "loop").replace("recurrent", "recur") + short
    members = f"{row['members']} x " if row["members"] > 1 else ""
    front = {"T": str(row["time"]), "d": str(row["size"]), "rows": f"{members}{row['rows']}", "by": backend}
    numbers = {"forward": "forward_ms", "both": "both_ms", "graph": "graph_ms"}
    numbers |= {f"x {family}": f"x_{family}" for family in ("loop", "chunked", "fla", "torch")} | {"GB/s": "gb_per_s"}
    texts = front | {name: number(row[key]) for name, key in numbers.items() if key in row}
    if "copy_share" in row:
        texts["copy"] = f"{row['copy_share']:.1%}"
    errors = {"error": "error_out", "of grad": "error_grad"}
    return texts | {name: f"{row[key]:.0e}" for name, key in errors.items() if key in row}


def number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 1 else f"{x:.3f}"


def show(console: Console, record: Row) -> None:
    """A table per operator, of 100 columns at most, and below it the failures."""
    for op in dict.fromkeys(row["op"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["op"] == op]
        table = Table(title=_title(rows), box=None, padding=(0, 1, 0, 0), title_justify="left")
        lines = [cells(row) for row in rows]
        for name in [name for name in COLUMNS if any(name in line for line in lines)]:
            table.add_column(name, justify="left" if name == "by" else "right")
        for line in lines:
            table.add_row(*(line.get(str(column.header), "") for column in table.columns))
        console.print(table)
        for failure in dict.fromkeys(f"{row['backend']}: {row['failed']}" for row in rows if "failed" in row):
            console.print(failure, markup=False)
        console.print()


def _title(rows: list[Row]) -> str:
    row = rows[0]
    heads = f"{row['heads']} heads" if row["heads"] > 1 else "one head"
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    return f"{row['op']}, {heads} of d" + (f", {row['states']} states" if row["states"] else "") + f"; {commits}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--only", nargs="+", metavar="OP", choices=list(OPERATORS), default=list(OPERATORS))
    options.add_argument("--quick", action="store_true", help="one small shape per operator")
    options.add_argument("--seconds", type=float, default=inf, help="measure nothing after so long")
    options.add_argument("--json", metavar="FILE", help="the record; what it has of this commit is not measured again")
    options.add_argument("--commit", metavar="HASH", help="of this code, where there is no git checkout")
    arguments = options.parse_args()
    device, begin = torch.device(arguments.device), time.monotonic()
    whole = usual(device.type == "cuda")
    todo = [case for case in (quick() if arguments.quick else whole) if case.op in arguments.only]
    settings = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY") if name in os.environ]
    record: Row = provenance(device) | {
        "command": " ".join([*settings, command("ops.py")]),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "rows": [],
    }
    record["versions"] = record["versions"] | {name: version(name) for name in ("triton", "numba", "fla-core")}
    record["commit"] = arguments.commit or record["commit"]
    record["rows"] = earlier_record(arguments.json, record).get("rows", [])
    measured = {case_of(row): row["commit"] for row in record["rows"]}
    todo = [case for case in todo if measured.get(case) != record["commit"]]
    todo.sort(key=lambda case: case in measured)  # what was measured at an earlier commit comes last
    if device.type == "cpu" and is_busy(record):
        print(f"the machine is busy (load {record['load']:.1f}): times will be wrong, ratios too", file=sys.stderr)
    columns = (TextColumn("{task.description}"), *Progress.get_default_columns()[1:])
    with Progress(*columns, console=Console(stderr=True)) as progress:
        if device.type == "cuda" and not arguments.quick:
            compile_ahead(todo, progress)
        record["copy_gb_per_s"] = copy_bandwidth(device)
        task = progress.add_task("measuring", total=len(todo))
        for case in todo:
            if time.monotonic() - begin > arguments.seconds:
                break
            progress.update(task, description=f"{case.op} T={case.time} d={case.size} x{case.members}")
            exact = Exact(case, device) if case.members == 1 and case.time <= EXACT_TIME else None
            rows = [measure(case, contender, device, exact) for contender in contenders(case, device)]
            record["rows"] = replaced(record["rows"], [row | {"commit": record["commit"]} for row in rows], whole)
            compare(record["rows"], record["copy_gb_per_s"])
            measured[case] = record["commit"]
            record["missing"] = len({*whole} - {*measured})
            if arguments.json:  # after every case, so that an interrupted run leaves its results
                Path(arguments.json).write_text(json.dumps(record, indent=1))
            progress.advance(task)
    show(Console(width=100, highlight=False), record)


def earlier_record(path: str | None, now: Row) -> Row:
    """A record of this device and these versions; each row names the commit at which it was measured."""
    record = begun(path, now, ("device", "versions"), "commit", "cold_start_s")
    return record | {"rows": [{"commit": record["commit"]} | row for row in record.get("rows", ())]}


def replaced(earlier: list[Row], rows: list[Row], order: list[Case]) -> list[Row]:
    """The rows of a case in the place of earlier ones; cases are in some order, and others come last."""
    cases = {case_of(row) for row in rows}
    places = {case: place for place, case in enumerate(order)}
    both = [row for row in earlier if case_of(row) not in cases] + rows
    return sorted(both, key=lambda row: places.get(case_of(row), len(order)))


def case_of(row: Row) -> Case:
    return Case(**{field.name: row[field.name] for field in fields(Case)})


def begun(path: str | None, now: Row, same: Sequence[str], *others: str) -> Row:
    """The rows, the command and others of a record, whose fields `same` are those of now."""
    if path is None or not Path(path).exists():
        return {}
    left: Row = json.loads(Path(path).read_text())
    if differing := [name for name in same if left[name] != now[name]]:
        raise SystemExit(f"{path} was measured with another {' and '.join(differing)}; remove it, or name another file")
    return {name: left[name] for name in ("rows", "command", *others) if name in left}


def is_busy(record: Row) -> bool:
    return bool(record["load"] > BUSY * record["threads"])


def command(script: str) -> str:
    """The command line, with the path of the record as in the repository."""
    words = [f"bench/results/{Path(word).name}" if word.endswith(".json") else word for word in sys.argv[1:]]
    return " ".join(["python", f"bench/{script}", *words])


def version(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


if __name__ == "__main__":
    main()
