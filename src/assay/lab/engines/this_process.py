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


class ThisProcess:
    """Carries out groups here; interrupts take effect between training steps."""

    def __init__(self, device: torch.device, store: Path, checkpoint_interval: float = INTERVAL) -> None:
        self.device, self.store, self.checkpoint_interval = device, store, checkpoint_interval

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None:
        with stop_on_signal() as poll:
            for number, group in enumerate(groups):

                def on_record(record: Record, worker: int = number) -> None:
                    on_event(Event(worker, record=record))

                def on_status(status: Status | EvaluationStatus, worker: int = number) -> None:
                    on_event(Event(worker, status=status))

                checkpoints = Checkpoints(self.store, self.checkpoint_interval)
                execute_group(
                    group.specs, self.device, on_record, on_status, poll, group.slots, checkpoints, group.memory_limit
                )
