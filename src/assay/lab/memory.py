"""Memory: how much a population will need, and how much there is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from assay.errors import BadInput
from assay.lab.data import TrainingData, steps_ahead
from assay.lab.tracing import PeakMemory, parameter_copies, trace_step
from assay.models.skeleton import Stack
from assay.spec import RunSpec
from assay.tasks.task import Task

MOST_SLOTS = 256  # beyond this a GPU is full: more slots take proportionally longer
TRACED_SLOTS = 16  # at most; a trace on a GPU uses the memory of a step
USABLE_SHARE = 0.7  # of the free memory; the rest is for the allocator's rounding, test sets and libraries
GIB = 1 << 30


def step_bytes(spec: RunSpec, slots: int, device: torch.device) -> int:
    """The peak memory of a training step, parameters and their copies included."""
    return trace_step(spec, slots, device).peak


class Forecast:
    """The peak memory of a population as a function of its slots: batches, and the larger of a step and a data draw.

    A step's memory is linear in the slots, so two traces determine it. If few slots are expected, one trace with just
    so many is enough, since hardly any memory is shared by the slots; the step's kernels are compiled from it as well.
    """

    def __init__(self, spec: RunSpec, tasks: Sequence[Task], device: torch.device, expected: int = 4) -> None:
        self.spec, self.device, self.tasks = spec, device, len(tasks)
        few, many = (0, expected) if 2 < expected <= TRACED_SLOTS else (2, 4)
        trace, least = trace_step(spec, many, device), trace_step(spec, few, device).peak if few else 0
        self.per_slot = (trace.peak - least) / (many - few)
        self.base = least - few * self.per_slot
        self.copies = parameter_copies(spec) * 4 * trace.parameters
        self.draw = max(_draw_bytes(task, spec) for task in tasks)

    def __call__(self, slots: int) -> float:
        spec, training = self.spec, self.spec.training
        ahead = steps_ahead(spec.task, training, slots, self.device)
        rows = slots * ahead * training.batch + self.tasks * (training.fixed or 0)
        batches = rows * spec.width * 8 * (1 + max(1, spec.task.features))
        step, draw = self.base + self.per_slot * slots, (self.copies + self.draw * ahead) * slots
        return batches + max(step, draw)


def _draw_bytes(task: Task, spec: RunSpec) -> int:
    """The peak memory of drawing one batch of one member."""
    memory, cpu = PeakMemory(), torch.device("cpu")
    data, one = TrainingData(task, spec.training, cpu), torch.ones(1, dtype=torch.int64)
    data.draw(one, one, 1)  # tables are built at the first draw
    with memory:
        data.draw(one, one, 1)
    return memory.peak


def memory_limit(device: torch.device, jobs: int = 1) -> float:
    """The bytes that each of several jobs may use, out of the memory that is free now."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_host_memory()
    return USABLE_SHARE * free / jobs


def _free_host_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Available main memory, or less where a container is limited to less; infinite where the system does not say."""
    free = float("inf")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in fields:
            free = 1024.0 * int(fields["MemAvailable"].split()[0])
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        free = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit, used, statistics = (cgroup / f"memory.{name}" for name in ("max", "current", "stat"))
    if limit.exists() and used.exists() and statistics.exists() and (text := limit.read_text().strip()) != "max":
        cache = dict(line.split() for line in statistics.read_text().splitlines()).get("inactive_file", "0")
        free = min(free, max(0.0, float(text) - float(used.read_text()) + float(cache)))  # page cache can be dropped
    return free


def slots_that_fit(
    spec: RunSpec, tasks: Sequence[Task], wanted: int, device: torch.device, limit: float
) -> tuple[int, float]:
    """How many of the wanted slots fit into so many bytes, at least one, and the bytes that they need."""
    slots = max(1, min(wanted, MOST_SLOTS))
    forecast = Forecast(spec, tasks, device, slots)
    while slots > 1 and forecast(slots) > limit:
        slots -= 1
    return slots, forecast(slots)


def require_memory(spec: RunSpec, slots: int, device: torch.device, limit: float) -> None:
    """Raise BadInput if a population of a built-in model would need more memory than a CPU has: it would be killed.

    A GPU raises an error of its own when memory runs out. A user's own module is not traced on a CPU: it might keep
    fake tensors that the trace computes.
    """
    if device.type != "cpu" or not isinstance(spec.model, Stack) or _is_small(spec, slots, limit):
        return
    needed = step_bytes(spec, slots, device)
    if needed > limit:
        raise BadInput(
            f"a training step needs about {needed / GIB:,.1f} GiB and this run may use {limit / GIB:,.1f} GiB; "
            "lower training.batch, training.lengths, the model's size, --slots or --jobs"
        )


def _is_small(spec: RunSpec, slots: int, limit: float) -> bool:
    """Whether every size is far below what could fill several GiB; spares small runs the trace, about a second."""
    if not isinstance(spec.model, Stack) or limit < 4 * GIB:
        return False
    options = [value for mixer in spec.model.mixers for value in mixer.plain().values() if isinstance(value, int)]
    tokens = slots * spec.training.batch * spec.width
    sizes = (tokens <= 4096, spec.model.width <= 128, len(spec.model.mixers) <= 4, spec.model.ff <= 4)
    return all(sizes) and spec.model.longest <= 4096 and sum(spec.task.shape) <= 4096 and max(options, default=0) <= 64
