"""The engine that carries out one group after the other in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from assay.lab.checkpoint import INTERVAL, Checkpoints
from assay.lab.engines.engine import Event, OnEvent
from assay.lab.execute import execute_group
from assay.lab.interrupts import stop_on_signal
from assay.lab.plan import Group
from assay.lab.status import EvaluationStatus, Status
from assay.record import Record

WORKER = 0  # the only one


class ThisProcess:
    """Carries out groups here; interrupts take effect between training steps."""

    def __init__(self, device: torch.device, store: Path, checkpoint_interval: float = INTERVAL) -> None:
        self.device, self.store, self.checkpoint_interval = device, store, checkpoint_interval

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None:
        def on_record(record: Record) -> None:
            on_event(Event(WORKER, record=record))

        def on_status(status: Status | EvaluationStatus) -> None:
            on_event(Event(WORKER, status=status))

        with stop_on_signal() as poll:
            for group in groups:
                checkpoints = Checkpoints(self.store, self.checkpoint_interval)
                options = (group.slots, checkpoints, group.memory_limit, group.weights)
                execute_group(group.specs, self.device, on_record, on_status, poll, *options)
                on_event(Event(WORKER))
