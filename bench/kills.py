"""A study that is killed at random again and again: nothing finished is lost, and nothing is recorded twice.

python bench/kills.py [--kills N] [--seed N] [--json FILE]

Rounds of a study of 24 runs, each on a new store, in one of three ways by turns: three commands that share a store;
one command with two workers that lease from the store; and one command on a Ray cluster of three nodes. Every few
seconds a random process is killed with SIGKILL: a command, a worker, or a node of Ray; what is missing is then started
again. A round ends when all runs have a record. Its records must then be those of an undisturbed study, each once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from assay.lab.carry_out import carry_out, local_engine
from assay.lab.leases import reports
from assay.lab.plan import Plan
from assay.lab.provenance import provenance
from assay.record import Record
from assay.store import Store
from assay.studies import study_named
from ops import command, version
from random_kills import kill_worker, replace_node

CPU = torch.device("cpu")
RUNS = 24
STUDY = """
from assay.spec import run_spec
RUNS = [run_spec("parity", "gru", seed=s, model_options={"width": 8},
                 training={"steps": 1500, "lengths": [2, 12], "validate_every": 10, "stop": "never"},
                 testing={"rows": 64})
        for s in range(%d)]
"""
LEASED = """
import sys
from pathlib import Path
from assay.lab.carry_out import carry_out
from assay.lab.engines.choice import RunOptions, shared_plan, worker_command
from assay.lab.engines.local_devices import LocalDevices
from assay.lab.engines.store_workers import StoreWorkers
from assay.store import Store
from assay.studies import study_named
store = Store.create("store")
plan, saved = shared_plan(study_named("study.py").runs, store.index(), RunOptions(device="cpu", checkpoint=0.5), 2)
command = worker_command(store.path, saved.save(store.path), "cpu", 1)
launcher = LocalDevices(command, store.path / "logs", cpu_workers=2)
carry_out(plan, store, StoreWorkers(plan, store.path, launcher, 2, saved.earlier))
"""


class Commands:
    """One or several equal commands in a folder, and the workers that their heartbeats name."""

    def __init__(self, folder: Path, words: list[str], count: int) -> None:
        self.folder, self.words = folder, words
        self.commands: list[subprocess.Popen[bytes] | None] = [None] * count

    def start_missing(self) -> None:
        for number, process in enumerate(self.commands):
            if process is None or process.poll() is not None:
                self.commands[number] = subprocess.Popen(
                    self.words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )

    def victims(self) -> list[tuple[str, Callable[[], None]]]:
        running = [process for process in self.commands if process and process.poll() is None]
        own = {process.pid for process in running}
        workers = {report["pid"] for report in reports(self.folder / "store") if not report["gone"]} - own
        return [("command", process.kill) for process in running] + [("worker", killer(pid)) for pid in workers]

    def stop(self) -> None:
        for process in filter(None, self.commands):
            process.terminate()
            process.wait()


def killer(pid: int) -> Callable[[], None]:
    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return kill


@contextmanager
def sharing_commands(folder: Path) -> Iterator[Commands]:
    """Three commands that share a store."""
    words = [sys.executable, "-m", "assay", "study", "study.py", "--store", "store", "--device", "cpu"]
    way = Commands(folder, [*words, "--jobs", "1", "--checkpoint", "0.5"], 3)
    try:
        yield way
    finally:
        way.stop()


@contextmanager
def leasing_workers(folder: Path) -> Iterator[Commands]:
    """A command with two workers that lease from its store."""
    (folder / "leased.py").write_text(LEASED)
    way = Commands(folder, [sys.executable, "leased.py"], 1)
    try:
        yield way
    finally:
        way.stop()


NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


class RayNodes(Commands):
    """A command that drives a Ray cluster of three nodes on this machine, of which each is a process tree."""

    def __init__(self, folder: Path, cluster: Any) -> None:
        words = [sys.executable, "-m", "assay", "study", "study.py", "--store", "store", "--device", "cpu"]
        engine = ["--engine", "ray", "--address", cluster.address, "--checkpoint", "0.5"]
        super().__init__(folder, [*words, *engine], 1)
        self.cluster, self.chance = cluster, random.Random(0)

    def victims(self) -> list[tuple[str, Callable[[], None]]]:
        commands = [victim for victim in super().victims() if victim[0] == "command"]
        return [*commands, *[("Ray worker", self._kill_worker)] * 3, ("Ray node", self._replace_node)]

    def _kill_worker(self) -> None:
        kill_worker(self.cluster, self.chance)

    def _replace_node(self) -> None:
        replace_node(self.cluster, self.chance, **NODE)


@contextmanager
def ray_nodes(folder: Path) -> Iterator[RayNodes]:
    from ray.cluster_utils import Cluster

    checks = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    head = NODE | {"num_cpus": 0, "_system_config": checks}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        cluster.add_node(**NODE)
    way = RayNodes(folder, cluster)
    try:
        yield way
    finally:
        way.stop()
        cluster.shutdown()


# With the seconds between two kills: where everything may have to start again, it is given the time to do so.
WAYS = {
    "three commands": (sharing_commands, 0.5, 2.5),
    "leasing workers": (leasing_workers, 2.0, 8.0),
    "Ray nodes": (ray_nodes, 1.0, 8.0),
}


def undisturbed(folder: Path) -> dict[str, Record]:
    """The records of the study, carried out by one process."""
    (folder / "study.py").write_text(STUDY % RUNS)
    os.chdir(folder)
    store = Store.create(folder / "store")
    plan = Plan(study_named("study.py").runs, (), CPU, jobs=2)
    return {record.digest: record for record in carry_out(plan, store, local_engine(plan, store))}


def one_round(name: str, folder: Path, chance: random.Random, most: int, expected: dict[str, Record]) -> dict[str, Any]:
    """Carry out the study in a way, with at most so many kills; the round's figures."""
    (folder / "study.py").write_text(STUDY % RUNS)
    kills, start = Counter[str](), time.monotonic()
    start_way, shortest, longest = WAYS[name]
    with start_way(folder) as way:
        way.start_missing()
        while not is_done(folder, expected):
            time.sleep(chance.uniform(shortest, longest))
            victims = way.victims()
            if victims and sum(kills.values()) < most and (folder / "store").exists():
                kind, kill = chance.choice(victims)
                kill()
                kills[kind] += 1
            way.start_missing()
    records = list(Store.open(folder / "store").history())
    finished = {record.digest: record for record in records}
    return {
        "way": name,
        "kills": dict(kills),
        "seconds": round(time.monotonic() - start, 1),
        "records": len(records),
        "lost": len(expected.keys() - finished.keys()),
        "twice": len(records) - len(finished),
        "failed": sum(not record.finished for record in records),
        "different": sum(finished[name].result != expected[name].result for name in finished),
        "resumed": sum(bool(record.population.get("resumed")) for record in records),
    }


def is_done(folder: Path, expected: dict[str, Record]) -> bool:
    store = folder / "store"
    return (store / Store.MARK).exists() and expected.keys() <= Store.open(store).index().keys()


def show(console: Console, record: dict[str, Any]) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    names = ("records", "lost", "twice", "failed", "different", "resumed")
    for column in ("way", "kills", "of", *names):
        table.add_column(column, justify="left" if column in ("way", "of") else "right")
    for way in WAYS:
        rounds = [row for row in record["rounds"] if row["way"] == way]
        kills = Counter[str]()
        for row in rounds:
            kills.update(row["kills"])
        kinds = ", ".join(f"{count} {kind}" for kind, count in kills.most_common())
        sums = [str(sum(row[name] for row in rounds)) for name in names]
        table.add_row(way, str(sum(kills.values())), kinds, *sums)
    console.print(table)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=210)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", choices=[*WAYS], action="append", help="only this way")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    out = Path(arguments.json).resolve() if arguments.json else None
    record = provenance(CPU) | {"command": command("kills.py"), "runs": RUNS, "rounds": []}
    record["versions"] = record["versions"] | {"ray": version("ray")}
    chance, total, console = random.Random(arguments.seed), 0, Console(width=100, highlight=False)
    with TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("kills", total=arguments.kills)
        (Path(folder) / "expected").mkdir()
        expected = undisturbed(Path(folder) / "expected")
        while total < arguments.kills:
            for name in arguments.only or WAYS:
                place = Path(folder) / f"{len(record['rounds'])}"
                place.mkdir()
                record["rounds"].append(one_round(name, place, chance, arguments.kills - total, expected))
                total += sum(record["rounds"][-1]["kills"].values())
                progress.update(bar, completed=total)
                print(json.dumps(record["rounds"][-1]), file=sys.stderr, flush=True)
                if out:
                    out.write_text(json.dumps(record, indent=1))
    show(console, record)


if __name__ == "__main__":
    main()
