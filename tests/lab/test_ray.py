"""The engine for Ray, on real clusters of this machine: what is killed is carried out again, and nothing twice."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from assay.errors import BadInput
from assay.lab.checkpoint import Checkpoints
from assay.lab.engines import ray_cluster, ray_connection, ray_worker
from assay.lab.engines.engine import Event
from assay.lab.engines.ray_cluster import RayCluster
from assay.lab.engines.ray_code import user_files
from assay.lab.engines.ray_failures import check_start
from assay.lab.engines.ray_worker import GroupWorker
from assay.lab.engines.this_process import ThisProcess
from assay.lab.plan import Group
from assay.lab.provenance import provenance
from assay.lab.status import Status
from assay.models.skeleton import Foreign
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.store import Store
from tests.lab.fragile import Deadly, Fragile

ray = pytest.importorskip("ray")
CPU = torch.device("cpu")
TIMEOUT = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and four nodes with one core each."""
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": 80 << 20, "include_dashboard": False}
    checks = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": checks, **options})
    for _ in range(4):
        cluster.add_node(num_cpus=1, **options)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def run(seed: int, task: Any = "parity", steps: int = 60) -> RunSpec:
    training = {"steps": steps, "lengths": [2, 8], "validate_every": 10, "stop": "never"}
    return run_spec(task, "gru", seed=seed, model_options={"width": 8}, training=training, testing={"rows": 16})


def facts(records: Sequence[Record]) -> dict[str, object]:
    """What records say, but for times and how they came about."""
    times: Any = {"seconds": True, "started": True, "ended": True, "population": True, "probing": {"seconds"}}
    return {r.digest: r.model_dump(exclude=times) for r in records}


def carry_out(engine: Any, groups: Sequence[Group], on_event: Callable[[Event], None] = lambda _: None) -> list[Record]:
    """The records that an engine reports."""
    records = list[Record]()

    def receive(event: Event) -> None:
        on_event(event)
        if event.record:
            records.append(event.record)

    engine.run(groups, receive)
    return records


def on_ray(
    cluster: Any,
    store: Path,
    groups: Sequence[Group],
    on_event: Callable[[Event], None] = lambda _: None,
    jobs: int | None = 2,
    interval: float = 0.0,
) -> list[Record]:
    engine = RayCluster("cpu", store, cluster.address, jobs, interval)
    engine.connect()
    with closing(engine):
        return carry_out(engine, groups, on_event)


def test_a_killed_worker_and_a_lost_node_change_no_record(cluster: Any, tmp_path: Path):
    """On four nodes; each run is reported once, and those that were interrupted go on from their checkpoints."""
    store = Store.create(tmp_path / "s").path
    fragile = [run(0, Fragile(store=str(store), victim=victim)) for victim in ("process", "node")]
    groups = [Group((spec, run(2 * i + 1), run(2 * i + 2)), weights="all") for i, spec in enumerate(fragile)]
    groups += [Group((run(5), run(6)), slots=2), Group((run(7),))]
    records = on_ray(cluster, store, groups, jobs=None)
    assert {path.name for path in store.glob("killed-*")} == {"killed-process", "killed-node"}
    assert sorted(record.digest for record in records) == sorted(s.digest for g in groups for s in g.specs)
    expected = carry_out(ThisProcess(CPU, tmp_path / "expected"), groups)
    assert facts(records) == facts(expected)
    assert {r.digest: r.weights for r in records} == {r.digest: r.weights for r in expected}
    resumed = {r.digest for r in records if r.population.get("resumed")}
    assert {spec.digest for spec in fragile} <= resumed


def test_a_run_that_kills_its_workers_is_found(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Among runs that share its group; the others are finished."""
    monkeypatch.setattr(ray_cluster, "MOST_DEATHS", 2)
    specs = (run(0), run(0, Deadly()))
    records = {record.digest: record for record in on_ray(cluster, Store.create(tmp_path / "s").path, [Group(specs)])}
    finished, failed = (records[spec.digest] for spec in specs)
    assert (finished.finished, failed.verdict) == (True, "failed")
    assert failed.error == (
        "2 workers died while carrying it out; the last one: "
        "its process ended unexpectedly (killed, out of memory, or crashed)"
    )
    assert failed.versions == finished.versions


def test_a_worker_whose_own_code_fails_at_the_start_ends_the_work():
    text = "ModuleNotFoundError: No module named 'numba'"
    trace = f"ray::Worker.describe() (pid=7, ip=9.8.7.6)\n{text}"
    error = ray.exceptions.RayTaskError("describe", trace, ImportError(), ip="9.8.7.6")
    with pytest.raises(BadInput, match=f"cannot start on node 9.8.7.6: {text}; install the same assay on all nodes"):
        check_start(error)
    check_start(ray.exceptions.NodeDiedError("its node has died"))


def test_workers_that_die_at_every_start_end_the_work(tmp_path: Path):
    """Those that are lost with their node, or taken back by its owner, are not counted."""
    session = object.__new__(ray_cluster.Session)
    session.failed_starts = 0
    session._end = lambda worker: None  # type: ignore[method-assign]
    preempted = ray.exceptions.RayActorError(error_msg="taken back", preempted=True)
    for error in (preempted, ray.exceptions.ActorUnavailableError("no answer", None)):
        for _ in range(ray_cluster.MOST_DEATHS + 1):
            session._handle_failed_start(Mock(), error)
    died = ray.exceptions.RayActorError(error_msg="killed by SIGKILL")
    for _ in range(ray_cluster.MOST_DEATHS - 1):
        session._handle_failed_start(Mock(), died)
    with pytest.raises(BadInput, match="3 workers in a row died when they started; the last one: its process ended"):
        session._handle_failed_start(Mock(), died)


def test_an_interrupt_saves_every_run(cluster: Any, tmp_path: Path):
    store, groups = Store.create(tmp_path / "s").path, [Group((run(seed, steps=100_000),)) for seed in range(2)]
    seen = set[int]()

    def on_event(event: Event) -> None:
        if isinstance(event.status, Status) and event.worker not in seen:
            seen.add(event.worker)
            if len(seen) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        on_ray(cluster, store, groups, on_event, interval=1000.0)
    saved = Checkpoints(store).latest()
    assert saved.keys() == {group.specs[0].digest for group in groups}
    assert all(steps > 0 for steps, _ in saved.values())


def test_a_record_that_was_not_stored_is_not_lost(cluster: Any, tmp_path: Path):
    """The checkpoint of its run stays, although the worker has told that it is obsolete."""

    class FullDisk(Exception):
        pass

    def on_event(event: Event) -> None:
        if event.record:
            raise FullDisk

    store, group = Store.create(tmp_path / "s").path, Group((run(0, steps=300),))
    with pytest.raises(FullDisk):
        on_ray(cluster, store, [group], on_event, jobs=1)
    assert group.specs[0].digest in Checkpoints(store).latest()


DRIVER = """
import sys
from assay.lab.engines.ray_cluster import RayCluster
from assay.store import Store
from tests.lab.test_ray import Group, run

if __name__ == "__main__":
    engine = RayCluster("cpu", Store.create(sys.argv[1]).path, jobs=1, checkpoint_interval=0.0)
    engine.connect()
    assert engine.workers == 1
    engine.run([Group((run(0, steps=1000),))], lambda _: None)
"""


def test_a_killed_driver_goes_on_from_its_checkpoints(cluster: Any, tmp_path: Path):
    """First on a cluster that it has started itself, then on another one."""
    (tmp_path / "driver.py").write_text(DRIVER)
    store, groups = tmp_path / "s", [Group((run(0, steps=1000),))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    driver = subprocess.Popen([sys.executable, str(tmp_path / "driver.py"), str(store)], env=environment, cwd=tmp_path)
    wait_for(lambda: bool(Checkpoints(store).latest()) or driver.poll() is not None)
    driver.kill()
    driver.wait()
    records = on_ray(cluster, store, groups, jobs=1)
    assert facts(records) == facts(carry_out(ThisProcess(CPU, tmp_path / "expected"), groups))
    assert records[0].population["resumed"] > 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- bad input ---------------------------------------------------------------------------------------------------------


def connect(address: str | None, device: str = "cpu") -> str:
    """What is wrong with an address or a device."""
    with pytest.raises(BadInput) as error:
        RayCluster(device, Path("unused"), address).connect()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_addresses_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert connect(address).startswith(f"no Ray cluster answers at {address} (Connection refused)")
        silent.listen()
        monkeypatch.setattr(ray_connection, "CONNECT_TIMEOUT", 0.2)
        assert connect(address).startswith(f"no Ray cluster answers at {address} (timed out)")
    assert connect("head-node") == "the address head-node is not valid: HOST:PORT, as in head-node:6379, or auto"
    assert "with --address auto" in connect("ray://head-node:10001")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert connect(None) == "Ray is not installed; install it with: pip install 'assay[ray]'"


def test_clusters_that_cannot_be_used(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    address, host = cluster.address, socket.gethostname()
    assert connect(address, "cuda") == (
        f"the Ray cluster at {address} has no GPU; use --device cpu, or --jobs N to wait for N GPUs"
    )
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "1.2.3")
        message = connect(address)
        assert f"cannot join the Ray cluster at {address}: Version mismatch" in message
        assert "Ray: 1.2.3" in message
    own = provenance(CPU)
    other = own | {"versions": own["versions"] | {"torch": "1.2.3"}}
    monkeypatch.setattr(ray_cluster, "provenance", lambda _: other)
    with pytest.raises(BadInput) as error:
        on_ray(cluster, tmp_path, [Group((run(0),))], jobs=1)
    assert str(error.value) == (
        f"torch differs: node {host} has {own['versions']['torch'].partition('+')[0]}, and this process 1.2.3; "
        "install the same version on all nodes"
    )


# -- a worker, without Ray ---------------------------------------------------------------------------------------------


def group_worker(places: int, monkeypatch: pytest.MonkeyPatch) -> GroupWorker:
    monkeypatch.setattr(ray_worker, "_node", lambda: "node")
    worker = GroupWorker("cpu", places, 1000.0, [], str(Path.cwd()))
    assert worker.describe()["node"] == "node"
    return worker


def work(specs: Sequence[RunSpec], **options: Any) -> dict[str, Any]:
    plain = [{"digest": spec.digest, "spec": spec.plain()} for spec in specs]
    defaults = {"slots": 1, "memory_limit": float("inf"), "weights": "none", "checkpoints": {}, "modules": {}}
    return {"specs": plain, "wanted": None, "size": len(specs), **defaults, **options}


def test_a_worker_sizes_groups_and_carries_out_several_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    worker = group_worker(2, monkeypatch)
    groups = [Group((run(0), run(1)), 2), Group((run(2), run(3)), 2)]
    streams = [worker.carry_out(work(group.specs, slots=0)) for group in groups]
    first = [next(stream) for stream in streams]  # both are being carried out
    messages = [m for batch, stream in zip(first, streams, strict=True) for m in chain(batch, *stream)]
    records = [Record(**message[1]) for message in messages if message[0] == "record"]
    assert facts(records) == facts(carry_out(ThisProcess(CPU, tmp_path), groups))
    assert [record.population["slots"] for record in records] == [2] * 4


NET = """
from torch import nn
from helping import SIZE

class Net(nn.Module):
    def __init__(self, vocab, features, answers):
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(vocab, SIZE), nn.Linear(SIZE, answers))
    def forward(self, tokens):
        return self.net(tokens)
"""


def test_the_modules_of_a_user_are_sent_to_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With what they import; another version on the node is refused."""
    for name, text in (("netting.py", NET), ("helping.py", "SIZE = 4"), ("unneeded.py", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    from netting import Net  # type: ignore[import-not-found]

    spec = run_spec("parity", Foreign.of(Net), training={"steps": 10, "lengths": [2, 8], "validate_every": 10})
    modules = user_files(spec.plain())
    assert modules == {name: (tmp_path / name).read_bytes() for name in ("netting.py", "helping.py")}
    for name in ("netting", "helping"):  # as in another process, on another machine
        (tmp_path / f"{name}.py").unlink()
        monkeypatch.delitem(sys.modules, name)
    worker = group_worker(1, monkeypatch)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (*_, last) = messages = list(chain(*worker.carry_out(work([spec], modules=modules))))
    assert last == ("done",)
    assert [Record(**message[1]).finished for message in messages if message[0] == "record"] == [True]
    Path(sys.modules["helping"].__file__ or "").write_text("SIZE = 5")
    (*_, last) = chain(*worker.carry_out(work([spec])))
    assert last[0] == "bad input"
    assert "another version of netting:Net" in last[1]
