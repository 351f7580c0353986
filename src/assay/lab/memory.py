"""How many slots fit: the memory of a step is traced without computing anything, for two sizes, and is a line."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.lab.data import TrainingData, blank
from assay.lab.population import losses_of, steps_ahead
from assay.lab.stacking import built, fixed, learned, member_logits
from assay.spec import RunSpec
from assay.tasks.task import Task

COPIES = 6  # of a member's parameters: they and Adam's two averages, now and as they were when the round began
MOST = 256  # beyond that a GPU is full, and a member costs as much as ever
SHARE = 0.7  # of the free memory; the rest is for the allocator's rounding, test sets and libraries


class Peak(TorchDispatchMode):
    """Counts the bytes of every storage that an operation makes, until it is freed; `most` is the peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live, self.most = 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {_storage(x)._cdata for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in pytree.tree_leaves(made):
            if isinstance(x, Tensor) and _storage(x)._cdata not in given:
                self._count(_storage(x))
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self.known:
            return
        size, key = storage.nbytes(), storage._cdata
        self.known.add(key)
        self.live += size
        self.most = max(self.most, self.live)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


def _storage(x: Tensor) -> torch.UntypedStorage:
    return x.untyped_storage()


def trace(like: RunSpec, slots: int, device: torch.device, watch: TorchDispatchMode) -> None:
    """Go through a training step with tensors that have no contents, watched."""
    how = like.training
    template = built(like, torch.device("cpu"))
    with FakeTensorMode(allow_non_fake_inputs=True), watch:
        given, own = (
            {name: torch.empty(slots, *x.shape, dtype=x.dtype, device=device) for name, x in named.items()}
            for named in (learned(template), fixed(template))
        )
        copies = [torch.empty_like(x) for x in given.values() for _ in range(COPIES - 1)]
        trained = [x.requires_grad_() for x in given.values()]
        shape = (slots, how.batch, how.lengths[1])
        inputs = blank(like.task, *shape, device=device)
        targets = torch.zeros(shape, dtype=torch.int64, device=device)
        losses = losses_of(member_logits(template, given, own, inputs), targets)
        grads = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
        del copies, grads


def traced(like: RunSpec, slots: int, device: torch.device) -> int:
    """The bytes that a training step of so many slots holds at its peak, parameters and their averages included."""
    peak = Peak()
    trace(like, slots, device, peak)
    return peak.most


class Forecast:
    """The bytes that a population of any number of slots will hold at its peak: what stays, and the larger of a step
    and a draw of data."""

    def __init__(self, like: RunSpec, tasks: Sequence[Task], device: torch.device) -> None:
        self.like, self.device = like, device
        few, more = (traced(like, slots, device) for slots in (2, 4))
        self.each = (more - few) / 2
        self.base = few - 2 * self.each
        numbers = sum(p.numel() for p in learned(built(like, torch.device("cpu"))).values())
        self.kept = COPIES * 4 * numbers
        self.drawn = max(_drawn(task, like) for task in tasks)

    def __call__(self, slots: int) -> float:
        how, ahead = self.like.training, steps_ahead(self.like.training, slots, self.device)
        batch = slots * ahead * how.batch * how.lengths[1] * 8 * (1 + max(1, self.like.task.features))
        step, draw = self.base + self.each * slots, (self.kept + self.drawn * ahead) * slots
        return batch + max(step, draw)


def _drawn(task: Task, like: RunSpec) -> int:
    """The bytes that a draw holds for each member and step."""
    peak, cpu = Peak(), torch.device("cpu")
    data, one = TrainingData(task, like.training, cpu), torch.ones(1, dtype=torch.int64)
    data.draw(one, one, 1)  # tables are made once
    with peak:
        data.draw(one, one, 1)
    return peak.most


def room(device: torch.device, jobs: int = 1) -> float:
    """The bytes that each of so many jobs may take, of those that are free now; no bound on a CPU."""
    return SHARE * torch.cuda.mem_get_info(device)[0] / jobs if device.type == "cuda" else math.inf


def slots_that_fit(like: RunSpec, tasks: Sequence[Task], wanted: int, device: torch.device, within: float) -> int:
    """How many of the wanted slots fit into so many bytes: at least one."""
    forecast, slots = Forecast(like, tasks, device), max(1, min(wanted, MOST))
    while slots > 1 and forecast(slots) > within:
        slots -= 1
    return slots
