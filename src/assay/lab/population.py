"""Many runs trained as one program: stacked parameters, one forward pass over all, one backward pass, one update.

A population has a fixed number of slots. Everything that differs between members (seed, rate, steps, task) stands in
tensors with one entry per slot, so a member can leave and another take its slot without a change of shape. No operation
mixes slots: a member's numbers do not depend on the others. Slots that are empty, finished or diverged are computed as
well, and never updated.

Slots advance in rounds of `validate_every` steps. At the end of a round all slots are validated on the device, and the
host reads one small table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from assay.errors import in_one_line
from assay.lab.checkpoint import without_prefix
from assay.lab.cuda_graphs import GraphedFunction, wait_for_device
from assay.lab.data import BatchBuffer
from assay.lab.evaluate import answers_in_parallel
from assay.lab.locks import EXCLUSIVE
from assay.lab.member import RoundReport
from assay.lab.member_state import MemberState, SavedState
from assay.lab.numerics import numerics
from assay.lab.pace import Pace
from assay.lab.precompile import compile_kernels
from assay.lab.replays import Replays
from assay.lab.slot_modules import SingleModule, SlotModules, StackedModules
from assay.lab.slots import Slots, is_fused
from assay.lab.stacking import Layout, SumOfLosses, build_module, frozen, member_losses, trainable
from assay.lab.validation import HeldOutSets
from assay.lab.watch import Watch
from assay.rng import Rng
from assay.spec import RunSpec
from assay.tasks.task import Task

AVERAGED_STEPS = 1000  # about so many of the last steps are averaged


def build_population(
    spec: RunSpec, tasks: Sequence[Task], slots: int, device: torch.device, unmapped: str = ""
) -> Population:
    """A population with empty slots; on a GPU its kernels are compiled first, several at a time."""
    if device.type == "cuda" and not unmapped:
        compile_kernels(spec, slots, device)
    return Population(spec, tasks, slots, device, unmapped=unmapped)


class Population:
    """Slots for runs that agree with `spec` in everything they share: architecture, shapes, lengths, validation.

    `unmapped` says why the module cannot be mapped over slots; it is then called directly, in a single slot.
    """

    def __init__(
        self,
        spec: RunSpec,
        tasks: Sequence[Task],
        slots: int,
        device: torch.device,
        dtype: torch.dtype | None = None,
        unmapped: str = "",
    ) -> None:
        self.training, self.device, self.count, self.unmapped = spec.training, device, slots, unmapped
        template = build_module(spec, device, dtype)
        dtype = next(iter(trainable(template).values())).dtype
        self.layout, self.slots = Layout(template), Slots.empty(slots, device)
        self.theta, self.m, self.v = (torch.zeros(slots, self.layout.size, device=device, dtype=dtype) for _ in "123")
        self.theta += self.layout.row(template)  # empty slots compute with finite numbers
        copied = is_fused(self.theta) and not self.training.compile
        self.modules: SlotModules = (
            StackedModules(template, self.layout, self.theta, copied)
            if slots > 1
            else SingleModule(template, self.layout, self.theta)
        )
        self.members: list[RunSpec | None] = [None] * slots
        self.snapshot: dict[str, Tensor] = {}
        self.tasks = {task: number for number, task in enumerate(tasks)}
        self.batches = BatchBuffer(tasks, self.training, slots, device, dtype)
        self.validation = HeldOutSets(spec, "validate", tasks, slots, device, dtype)
        states = spec.testing.states
        self.watch = Watch(spec, tasks, self.theta, self.modules.buffers) if "watched" in states else None
        self.average = torch.zeros_like(self.theta) if "averaged" in states else None
        self.losses, self.update = self._losses, self._update
        self.ones = torch.ones(slots, device=device, dtype=dtype)  # the gradient of every member's loss
        self.step, self.validate = GraphedFunction(self._step), GraphedFunction(self._validate)
        self.look, self.pace = GraphedFunction(self._look), Pace(device)
        self.draws = [GraphedFunction(partial(self._draw, number)) for number in range(len(tasks))]
        self.why_not_compiled = self._compile() if self.training.compile else ""
        self.why_not_captured = self._capture()
        # Only then does the module stay the same for all members.
        self.replays = None if self.why_not_captured else Replays(partial(answers_in_parallel, template))

    def _compile(self) -> str:
        """Compile loss, gradient and update while every slot is empty; returns why that failed, or an empty string."""
        self.losses = torch.compile(self._losses, dynamic=False)
        self.update = torch.compile(self._update, dynamic=False)
        try:
            with numerics(self.training, self.device), EXCLUSIVE:
                self._step()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.losses, self.update = self._losses, self._update
            return in_one_line(error)
        return ""

    def _capture(self) -> str:
        """Capture CUDA graphs while no slot can be updated; returns why that failed, or an empty string."""
        if self.device.type != "cuda":
            return "there are no graphs on a CPU"
        if self.unmapped:
            return "the module is called directly"
        pool = torch.cuda.graph_pool_handle()
        with numerics(self.training, self.device):
            # Validation first: its sequences are longer, and a step can use parts of its larger pieces of memory.
            functions = [self.validate, *([self.look] if self.watch else []), self.step, *self.draws]
            reasons = [function.capture(pool) for function in functions]
        return next((reason for reason in reasons if reason), "")

    def close(self) -> None:
        """Free the memory of tensors and graphs now: a population refers to itself, so Python would do it later."""
        vars(self).clear()

    # -- members enter and leave ---------------------------------------------------------------------------------------

    def admit(
        self,
        slot: int,
        spec: RunSpec,
        state: MemberState | None = None,
        step: int = 0,
        first_perfect: int | None = None,
    ) -> None:
        """Put a run into a slot: from its start, or from a state after some steps."""
        single = self.modules if isinstance(self.modules, SingleModule) and self.step.graph is None else None
        if state is None or single:
            # On the CPU, so that all parameters are copied to a GPU at once.
            module = build_module(spec, self.device if single else torch.device("cpu"), self.theta.dtype)
            theta = self.layout.row(module).to(self.device)
            state = state or MemberState(theta, torch.zeros_like(theta), torch.zeros_like(theta), frozen(module))
            if single:  # not once a graph is captured: it is bound to the memory of its module
                single.install(module)
        with torch.no_grad():
            for rows, row in ((self.theta, state.theta), (self.m, state.m), (self.v, state.v)):
                rows[slot] = row
            for name, buffer in self.modules.buffers.items():
                buffer[slot] = state.buffers[name]
            self.modules.refresh()
            if self.watch:
                self.watch.reset(slot, state.saved.get("watched"), first_perfect)
            if self.average is not None:
                self.average[slot] = state.saved["averaged"].theta if "averaged" in state.saved else state.theta
        self.slots.assign(slot, spec, self.tasks[spec.task], step)
        self.members[slot] = spec

    def fits(self, state: MemberState) -> bool:
        """Whether a state has this architecture's shapes."""
        shapes = {name: x.shape[1:] for name, x in self.modules.buffers.items()}
        return state.theta.shape == self.theta.shape[1:] and {n: x.shape for n, x in state.buffers.items()} == shapes

    def vacate(self, slot: int) -> None:
        """Empty a slot."""
        self.slots.set(slot, step=0, limit=0)
        self.members[slot] = None

    def take_snapshot(self) -> None:
        """Copy the state of every slot on the device, for `state`: all of it, or nothing if memory runs out."""
        tensors = {name: getattr(self, name) for name in ("theta", "m", "v")}
        tensors |= {f"buffer {name}": buffer for name, buffer in self.modules.buffers.items()}
        if self.watch:
            tensors |= {f"watch {name}": x for name, x in self.watch.tensors.items()}
        if self.average is not None:
            tensors["average"] = self.average
        self.snapshot = {name: rows.clone() for name, rows in tensors.items()}

    def state(self, slot: int) -> MemberState:
        """The state of a slot at the last snapshot, on the CPU."""
        own = {name: rows for name, rows in self.snapshot.items() if not name.startswith("watch ")}
        row = {name: rows[slot].cpu() for name, rows in own.items()}
        buffers, saved = {name: row[f"buffer {name}"] for name in self.modules.buffers}, dict[str, SavedState]()
        if self.watch:
            saved["watched"] = self.watch.saved(slot, without_prefix("watch ", self.snapshot))
        if self.average is not None:
            saved["averaged"] = SavedState(0, 0.0, row["average"], buffers)
        return MemberState(row["theta"], row["m"], row["v"], buffers, saved)

    def current_state(self, slot: int) -> tuple[Float[Tensor, "size"], dict[str, Tensor]]:
        """A slot's parameters and buffers now, copied to the CPU."""
        buffers = {name: buffer[slot].to("cpu", copy=True) for name, buffer in self.modules.buffers.items()}
        return self.theta[slot].to("cpu", copy=True), buffers

    def restore(self, slot: int, saved: SavedState) -> None:
        """Put back a saved state of a member for testing; training does not continue from it."""
        self.theta[slot] = saved.theta
        for name, buffer in self.modules.buffers.items():
            buffer[slot] = saved.buffers[name]
        self.modules.refresh()

    def saved_states(self, slot: int) -> dict[str, SavedState]:
        """The states that the population has saved of a slot until now: watched, if any was, and averaged."""
        saved, (_, buffers) = dict[str, SavedState](), self.current_state(slot)
        if self.watch and (watched := self.watch.saved(slot, self.watch.tensors)).step:
            saved["watched"] = watched
        if self.average is not None:
            saved["averaged"] = SavedState(
                int(self.slots.step[slot]), 0.0, self.average[slot].to("cpu", copy=True), buffers
            )
        return saved

    def module(self, slot: int) -> nn.Module:
        """The member of a slot as a module; valid until the next call or the next round."""
        return self.modules.module(slot)

    # -- a round -------------------------------------------------------------------------------------------------------

    def round(self, poll: Callable[[], None] = lambda: None) -> list[RoundReport]:
        """Train every slot for `validate_every` steps and validate it; `poll` is called between steps."""
        tasks = {self.tasks[spec.task] for spec in self.members if spec is not None}
        self.slots.loss.zero_()
        for step in range(self.training.validate_every):
            with self._as_captured():
                if step % self.batches.ahead == 0:
                    for number in tasks:
                        self.draws[number]()
                with self._seeded():
                    self.step()
            if self.watch and (step + 1) % self.watch.every == 0:
                with self._as_captured():
                    self.look()
            self.pace.step_launched()
            poll()
        with self._as_captured():
            self.validate()
        return self._reports()

    @contextmanager
    def _as_captured(self) -> Iterator[None]:
        """Direct calls need the settings, and the global state, that graphs were captured with."""
        if not self.why_not_captured:
            yield
            return
        with numerics(self.training, self.device), EXCLUSIVE:
            yield

    def _draw(self, task: int) -> None:
        self.batches.draw(task, self.slots.seed, self.slots.step, self.slots.task)

    @contextmanager
    def _seeded(self) -> Iterator[None]:
        """A module that is called directly may draw random numbers (dropout): from its member's seed and step alone."""
        spec = self.members[0]
        if not self.unmapped or spec is None:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(Rng.seeded(spec.seed, "torch", int(self.slots.step[0])).words(1)[0]))
            yield

    def _step(self) -> None:
        inputs, targets = self.batches.take()
        leaves, buffers = self.modules.leaves, {name: x.clone() for name, x in self.modules.buffers.items()}
        with torch.enable_grad():
            losses = self.losses(leaves, inputs, targets)
            total = SumOfLosses.apply(losses, self.ones.to(losses.dtype))  # type: ignore[no-untyped-call]
            grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        with torch.no_grad():
            self._restore_inactive_buffers(buffers)
            active = None if self.average is None else self.slots.active
            self.update(losses.detach(), grads)
            if active is not None:
                self._update_average(active)

    def _losses(self, leaves: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Float[Tensor, "slots"]:
        return member_losses(self.modules.logits(leaves, inputs), targets)

    def _update(self, losses: Float[Tensor, "slots"], grads: Sequence[Tensor | None]) -> None:
        g = self.layout.rows(grads, self.theta)
        self.slots.update(losses, g, self.theta, self.m, self.v, self.modules.copy)

    def _update_average(self, active: Bool[Tensor, "slots"]) -> None:
        """The last steps count most; at first there are few of them, so that the initial values are soon forgotten."""
        assert self.average is not None
        weight = (10 / (10 + self.slots.step)).clamp(min=1 / AVERAGED_STEPS).where(active, 0)
        self.average.lerp_(self.theta, weight.to(self.theta.dtype)[:, None])

    def _restore_inactive_buffers(self, previous: dict[str, Tensor]) -> None:
        """Undo what the forward pass wrote to the buffers of slots that are no longer trained."""
        self.modules.collect_buffers()
        if not previous:
            return
        active = self.slots.active
        for name, buffer in self.modules.buffers.items():
            buffer.copy_(torch.where(active.view(-1, *[1] * (buffer.ndim - 1)), buffer, previous[name]))

    def _validate(self) -> None:
        with self._evaluation() as logits:
            self.validation.count(logits, self.slots.task)

    def _look(self) -> None:
        assert self.watch is not None
        with self._evaluation() as logits:
            self.watch.look(logits, self.slots, self.theta, self.modules.buffers)

    @contextmanager
    def _evaluation(self) -> Iterator[Callable[[Tensor], Tensor]]:
        """The logits of all slots as a function of inputs, in evaluation mode."""
        modules = self.modules
        modules.template.eval()
        with torch.no_grad():
            yield partial(modules.logits, modules.leaves)
            modules.collect_buffers()
        modules.template.train()

    def _reports(self) -> list[RoundReport]:
        """One report per slot. This waits for the device, once per round."""
        slots, validation = self.slots, self.validation
        diverged = slots.diverged | ~self.theta.isfinite().all(1)
        perfect = self.watch.first_perfect if self.watch else torch.zeros_like(slots.step)
        columns = [slots.step, diverged, slots.loss, perfect, *validation.wrong_rows, *validation.right_answers]
        table = torch.stack([column.double() for column in columns], dim=1)
        wait_for_device(self.device)
        tasks = [self.tasks[spec.task] if spec else 0 for spec in self.members]
        return [
            replace(
                validation.report(task, int(step), bool(has_diverged), loss, counts),
                first_perfect=int(first_perfect) or None,
            )
            for task, (step, has_diverged, loss, first_perfect, *counts) in zip(tasks, table.tolist(), strict=True)
        ]
