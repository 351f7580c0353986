"""A task whose runs kill the process or the node of a Ray cluster that carries them out."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Literal

from torch import Tensor

from assay.rng import Rng
from assay.tasks.regular import Parity

PATIENCE = 0.3  # seconds in which a checkpoint reaches the store, at each of several draws


class Fragile(Parity):
    """Kills its process, or its node, once: as soon as the store has a checkpoint of this process."""

    store: str
    victim: Literal["process", "node"]

    def draw(self, lengths: Tensor, rng: Rng, width: int) -> Tensor:
        self._kill_once()
        return super().draw(lengths, rng, width)

    def _kill_once(self) -> None:
        mark, deadline = Path(self.store) / f"killed-{self.victim}", time.monotonic() + PATIENCE
        while not mark.exists() and time.monotonic() < deadline:
            if list(Path(self.store).glob(f"checkpoints/{os.getpid()}-*.safetensors")):
                mark.touch()
                os.kill(os.getpid() if self.victim == "process" else int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
                time.sleep(60)  # a process that has lost its node is ended by Ray
            time.sleep(0.01)


class Deadly(Parity):
    """Kills every process that draws an input."""

    def draw(self, lengths: Tensor, rng: Rng, width: int) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().draw(lengths, rng, width)
