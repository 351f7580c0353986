"""The connection of the Ray engine to a cluster: everything that can go wrong before there is any work."""

from __future__ import annotations

import logging
import os
import socket
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from assay.errors import BadInput
from assay.lab.checkpoint import INTERVAL
from assay.lab.device import CORES
from assay.lab.plan import GROUPS_ON_GPU

CONNECT_TIMEOUT = 5.0  # seconds in which an address must answer
SETTINGS = b"\4"  # the type of the frame that an HTTP/2 server (Ray's gRPC) sends first
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + b"\0\0\0\0\0"


class RayConnection:
    """A connection to the cluster at an address (HOST:PORT or `auto`), or to a cluster that is started on this machine.

    `connect` comes first: then `workers` is the number of workers that the cluster has room for now, or `jobs`. `close`
    comes last.
    """

    def __init__(
        self,
        device: str,
        store: Path,
        address: str | None = None,
        jobs: int | None = None,
        checkpoint_interval: float = INTERVAL,
    ) -> None:
        self.device, self.store, self.jobs, self.checkpoint_interval = device, store, jobs, checkpoint_interval
        address = address or os.environ.get("RAY_ADDRESS")
        self.address = None if address == "local" else address
        self.places = GROUPS_ON_GPU if device == "cuda" else 1  # groups at a time on one worker

    def connect(self) -> None:
        """Join the cluster, or start one; BadInput if that is not possible."""
        ray = import_ray()
        if self.address:
            _check_address(self.address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody was asked
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not self.address:
            cores = self.jobs if self.jobs and self.device == "cpu" else CORES
            gpus = {"num_gpus": 0} if self.device == "cpu" else {}
            options |= {"num_cpus": cores, "include_dashboard": False} | gpus
        try:
            with _python_path():
                ray.init(address=self.address or "local", **options)
        except (RuntimeError, ConnectionError, ValueError, ray.exceptions.RayError) as error:
            where = f"join the Ray cluster at {self.address}" if self.address else "start Ray on this machine"
            raise BadInput(f"cannot {where}: {_in_one_line(error)}") from None
        _silence_ray()
        if self.device == "cuda" and not self.jobs and not self.capacity:
            self.close()
            where = f"the Ray cluster at {self.address} has no GPU" if self.address else "there is no GPU here"
            raise BadInput(f"{where}; use --device cpu" + ", or --jobs N to wait for N GPUs" * bool(self.address))

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        import_ray().shutdown()

    @property
    def workers(self) -> int:
        """The number of workers that there is room for now, or that were asked for."""
        return self.jobs or max(1, self.capacity)

    @property
    def capacity(self) -> int:
        """The GPUs or cores of the cluster."""
        return int(import_ray().cluster_resources().get("GPU" if self.device == "cuda" else "CPU", 0))


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise BadInput("Ray is not installed; install it with: pip install 'assay[ray]'") from None
    return ray


def _check_address(address: str) -> None:
    """Raise BadInput unless a server of Ray's protocol answers at an address: Ray itself would try for minutes."""
    if address.startswith("ray://"):
        raise BadInput(
            f"{address} is an address for Ray's client, which cannot stream records; "
            "start assay on a machine of the cluster, with --address auto"
        )
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"the address {address} is not valid: HOST:PORT, as in head-node:6379, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.sendall(HTTP2_GREETING)
                if connection.recv(9)[3:4] != SETTINGS:
                    raise OSError("something else listens there")
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "no answer"
        raise BadInput(
            f"no Ray cluster answers at {address} ({reason}); give the address that `ray start --head` printed"
        ) from None


def _in_one_line(error: Exception) -> str:
    """The first words of an error of several lines."""
    return textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__


def _silence_ray() -> None:
    """Ray prints what happens to nodes and workers on standard output, where tables and JSON belong."""
    with suppress(ImportError):
        from ray._private import worker

        worker._worker_logs_enabled = False


@contextmanager
def _python_path() -> Iterator[None]:
    """Processes that are started meanwhile import the same modules as this one."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
