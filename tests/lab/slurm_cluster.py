"""A Slurm cluster of two nodes on this machine, for tests: daemons of a temporary folder, which end with the tests.

Partitions: `low` (the default; its jobs are preempted by those of `high` and queued again), `patient` (the same, but
preempted jobs get a minute to end), `high` and `cpu` (only the node without a GPU). Node n1 pretends to have a GPU.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from assay.lab.engines.orphan_guard import guarded

from .waiting import wait_until

DAEMONS = ("munged", "slurmctld", "slurmd")
NODES = ("n1", "n2")
ARRAY_LIMIT = 4
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MaxArraySize={array_limit}
KillWait=20
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=4 RealMemory=1000 Gres=gpu:1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=4 RealMemory=1000
PartitionName=low Nodes=n[1-2] Default=YES PriorityTier=1 MaxTime=10
PartitionName=patient Nodes=n[1-2] PriorityTier=1 MaxTime=10 GraceTime=60
PartitionName=high Nodes=n[1-2] PriorityTier=2 PreemptMode=OFF MaxTime=10
PartitionName=cpu Nodes=n2 PriorityTier=1 MaxTime=1:00:00 DefaultTime=5
"""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster that the commands of Slurm find by SLURM_CONF; tests are skipped where it cannot be started."""
    missing = [name for name in (*DAEMONS, "sbatch", "srun") if _program(name) is None]
    if missing:
        pytest.skip(f"NOT TESTED ON SLURM: {', '.join(missing)} not installed (Debian: slurmctld slurmd munge)")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        try:
            configuration = stack.enter_context(cluster(tmp_path_factory.mktemp("slurm")))
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"NOT TESTED ON SLURM: the cluster does not start: {error}")
        patch.setenv("SLURM_CONF", str(configuration))
        yield


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """Start the daemons, and stop them at the end; yields the path of the cluster's configuration."""
    with ExitStack() as stack:
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        socket_option = f"--socket={folder}/munge.socket"
        _start(stack, folder, "munged", "--force", "--foreground", socket_option, *munge)
        wait_until((folder / "munge.socket").exists, "the socket of munged")
        configuration = _configure(folder)
        environment = {**os.environ, "SLURM_CONF": str(configuration)}
        _start(stack, folder, "slurmctld", "-D", "-f", str(configuration))
        for node in NODES:
            (folder / f"spool-{node}").mkdir()
            _start(stack, folder, "slurmd", "-D", "-N", node, "-f", str(configuration))
        idle = ["sinfo", "--noheader", "--Node", "--partition=high", "--format=%t"]
        wait_until(lambda: output(idle, environment).split() == ["idle"] * len(NODES), "idle nodes")
        stack.callback(_cancel_all, environment)
        yield configuration


def output(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a command writes to stdout; nothing if it fails."""
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False).stdout


def _configure(folder: Path) -> Path:
    (folder / "state").mkdir()
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # not used, but detecting it can fail
    (folder / "gres.conf").write_text("NodeName=n1 Name=gpu File=/dev/null\n")
    ports = dict(zip(("controller_port", *NODES), _free_ports(1 + len(NODES)), strict=True))
    host = socket.gethostname().partition(".")[0]
    values = {"folder": folder, "user": getpass.getuser(), "host": host, "array_limit": ARRAY_LIMIT}
    path = folder / "slurm.conf"
    path.write_text(CONFIGURATION.format(**values, **ports))
    return path


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start(stack: ExitStack, folder: Path, name: str, *options: str) -> None:
    """Start a daemon in the foreground, which is stopped at the end, or when this process dies."""
    log = stack.enter_context((folder / f"{name}.out").open("a"))
    program = _program(name)
    assert program
    process = subprocess.Popen(guarded([program, *options]), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    stack.callback(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait()


def _cancel_all(environment: dict[str, str]) -> None:
    """Cancel all jobs, and wait until none of their processes is left."""
    output(["scancel", "--me"], environment)
    wait_until(lambda: not output(["squeue", "--noheader"], environment).strip(), "the end of all jobs")


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
