"""The numerical settings of training and testing, which are settings of the whole process.

Groups that share a GPU run in threads of one process. Threads that need the same settings use them together; one that
needs others waits. A graph that has been captured keeps the settings of its capture, so its replays need none.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import torch

from assay.spec import Training


class Settings(NamedTuple):
    """How float32 matrices are multiplied, and whether only deterministic algorithms are used."""

    products: Literal["highest", "high"]
    deterministic: bool


class SharedSettings:
    """The settings in use: the first user applies them, the last one restores what was before."""

    def __init__(self) -> None:
        self.condition, self.applied = threading.Condition(), ExitStack()
        self.current: Settings | None = None
        self.users = 0

    @contextmanager
    def use(self, settings: Settings) -> Iterator[None]:
        with self.condition:
            self.condition.wait_for(lambda: self.current in (None, settings))
            if self.current is None:
                self.applied.enter_context(_apply(settings))
                self.current = settings
            self.users += 1
        try:
            yield
        finally:
            with self.condition:
                self.users -= 1
                if not self.users:
                    self.current = None
                    self.applied.close()
                    self.condition.notify_all()


_in_use = SharedSettings()


@contextmanager
def numerics(training: Training, device: torch.device) -> Iterator[None]:
    """For training: strict float32 or TF32 products, as the spec says; on a GPU only deterministic algorithms.

    Compiled code keeps torch.compile's own choices: deterministic mode would disable some of its optimisations.
    """
    deterministic = device.type == "cuda" and not training.compile
    with _in_use.use(Settings("high" if training.precision == "tf32" else "highest", deterministic)):
        yield


@contextmanager
def strict_numerics(device: torch.device) -> Iterator[None]:
    """For testing: strict float32 products; on a GPU only deterministic algorithms."""
    with _in_use.use(Settings("highest", device.type == "cuda")):
        yield


@contextmanager
def _apply(settings: Settings) -> Iterator[None]:
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(settings.products)
    try:
        with ExitStack() as stack:
            if settings.deterministic:
                stack.enter_context(_deterministic())
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Only deterministic algorithms, for eager operations: the public function would also import torch.compile."""
    before, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    fill_memory = memory.fill_uninitialized_memory
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*deterministic.*")
            yield
    finally:
        torch._C._set_deterministic_algorithms(before, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill_memory
