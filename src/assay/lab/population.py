"""Many runs as one program: parameters stacked, one forward pass mapped over them, one backward pass, one update.

A population has a fixed number of slots. Whatever differs between its members (seed, rate, steps, task) stands in
tensors with one entry per slot, so that a member can leave and another take its slot without any change of shape. No
operation mixes slots: a member does not feel its neighbours. A slot that is empty, finished or diverged computes on,
and is never updated.

Slots move in rounds of `validate_every` steps; at the end of a round all are validated on the device, and the host
learns everything at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assay.description import in_one_line
from assay.lab.data import ATTEMPTS, TrainingData, blank
from assay.lab.evaluate import answers_of, logits_of
from assay.lab.graphs import Program
from assay.lab.numerics import numerics
from assay.lab.saved import Best, Saved
from assay.lab.slots import SCHEDULES, Slots
from assay.lab.stacking import Layout, built, fixed, learned, member_logits
from assay.lab.validation import Validation
from assay.rng import Rng
from assay.spec import RunSpec, Training
from assay.tasks.task import IGNORE, Task

DRAWN_TOKENS = {"cpu": 1 << 16, "cuda": 1 << 23}  # about as many candidates as are drawn at once


def losses_of(
    logits: Float[Tensor, "members rows time answers"], targets: Int[Tensor, "members rows time"]
) -> Float[Tensor, "members"]:
    """Each member's mean cross-entropy over what is asked of it; 0 where nothing is."""
    each = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return each.view(len(targets), -1).sum(1) / (targets != IGNORE).flatten(1).sum(1).clamp(min=1)


@dataclass(frozen=True)
class Report:
    """How one slot came out of a round."""

    step: int
    diverged: bool
    loss: float  # the sum over the round
    sequences: dict[str, float]
    answers: dict[str, float]


class Population:
    """Slots for runs that differ in nothing that `like` fixes: architecture, shapes, lengths, validation."""

    def __init__(
        self,
        like: RunSpec,
        tasks: Sequence[Task],
        slots: int,
        device: torch.device,
        dtype: torch.dtype | None = None,
        unmapped: str = "",
    ) -> None:
        self.unmapped = unmapped  # why the module is called as it is, in a single slot
        self.how, self.device, self.count = like.training, device, slots
        self.template = built(like, device, dtype)
        dtype = next(iter(learned(self.template).values())).dtype
        self.losses, self.update = self._losses, self._update
        self.tasks = {task: number for number, task in enumerate(tasks)}
        self.layout, self.slots = Layout(self.template), Slots.empty(slots, device)
        self.theta, self.m, self.v = (torch.zeros(slots, self.layout.size, device=device, dtype=dtype) for _ in "123")
        self.theta += self._row(self.template)  # so that what is in an empty slot can be computed with
        self.leaves, self.buffers = self._stacked() if slots > 1 else self._alone()
        self.members: list[RunSpec | None] = [None] * slots
        self.kept: dict[str, Tensor] = {}
        self._data(device)
        self.validation = Validation(like, tasks, device, dtype)
        bins = len(self.validation.bins)
        self.wrong, self.right = (torch.zeros(bins, slots, dtype=torch.int64, device=device) for _ in "12")
        self.step, self.validate = Program(self._step), Program(self._validate)
        self.draws = [Program(partial(self._draw, number)) for number in range(len(self.data))]
        self.uncompiled = self._compile() if self.how.compile else ""
        self.uncaptured = self._capture()

    def _stacked(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What is differentiated, and what is not learned, one entry per slot."""
        leaves = {name: p.detach().requires_grad_() for name, p in self.layout.views(self.theta).items()}
        return leaves, {name: x.expand(self.count, *x.shape).clone() for name, x in fixed(self.template).items()}

    def _alone(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One slot is the module itself: its parameters lie in the row."""
        leaves: dict[str, Tensor] = {**learned(self.template)}
        for name, row in self.layout.views(self.theta).items():
            leaves[name].data = row[0]
        return leaves, {name: x[None] for name, x in fixed(self.template).items()}

    def _compile(self) -> str:
        """Compile losses, gradients and update while every slot is empty; says why not where it cannot be."""
        plain = self.losses, self.update
        self.losses = torch.compile(self._losses, dynamic=False)
        self.update = torch.compile(self._update, dynamic=False)
        try:
            with numerics(self.how, self.device):
                self._step()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            self.losses, self.update = plain
            return in_one_line(error)
        return ""

    def _capture(self) -> str:
        """On a GPU, while every slot is empty and nothing can be updated; says why not where it cannot be."""
        if self.device.type != "cuda":
            return "there are no graphs on a CPU"
        if self.unmapped:
            return "the module is called as it is"
        pool, reasons = torch.cuda.graph_pool_handle(), []
        with numerics(self.how, self.device):
            for program in (self.step, self.validate, *self.draws):
                reasons.append(program.capture(pool))
        return next((reason for reason in reasons if reason), "")

    def _data(self, device: torch.device) -> None:
        how = self.how
        self.data = [TrainingData(task, how, device) for task in self.tasks]
        self.ahead = steps_ahead(how, self.count, device)
        shape = (self.ahead, self.count, how.batch, how.lengths[1])
        self.inputs = blank(next(iter(self.tasks)), *shape, device=device, dtype=self.theta.dtype)
        self.targets = torch.full(shape, IGNORE, device=device)
        self.drawn = torch.zeros(1, dtype=torch.int64, device=device)  # of what is drawn, the one whose turn it is

    # -- members come and go -------------------------------------------------------------------------------------------

    def admit(self, slot: int, spec: RunSpec, saved: Saved | None = None, step: int = 0) -> None:
        """Put a run into a slot: from its beginning, or as it was saved after some steps."""
        how, called = spec.training, self.count == 1 and self.step.graph is None
        if saved is None or called:
            fresh = built(spec, self.device, self.theta.dtype)
            theta = self._row(fresh)
            saved = saved or Saved(theta, torch.zeros_like(theta), torch.zeros_like(theta), fixed(fresh))
            if called:  # whatever else it has of its own, it has from its own seed; a graph knows the memory of the old
                self.template = fresh
                self.leaves, self.buffers = self._alone()
        with torch.no_grad():
            for rows, row in ((self.theta, saved.theta), (self.m, saved.m), (self.v, saved.v)):
                rows[slot] = row
            for name, buffer in self.buffers.items():
                buffer[slot] = saved.buffers[name]
        self.slots.set(
            slot,
            seed=spec.seed,
            task=self.tasks[spec.task],
            step=step,
            limit=how.steps,
            diverged=False,
            loss=0.0,
            lr=how.lr,
            warmup=how.warmup,
            schedule=SCHEDULES.index(how.schedule),
            beta_1=how.betas[0],
            beta_2=how.betas[1],
            eps=how.eps,
            weight_decay=how.weight_decay,
            clip=math.inf if how.clip is None else how.clip,
            explodes=math.inf if how.explodes is None else how.explodes,
        )
        self.members[slot] = spec

    def _row(self, module: nn.Module) -> Float[Tensor, "size"]:
        """A module's parameters as a slot holds them."""
        return self.layout.rows([p.detach()[None] for p in learned(module).values()], self.theta[:1])[0]

    def fits(self, saved: Saved) -> bool:
        """Whether something saved is of this architecture's shapes."""
        own = {name: x.shape[1:] for name, x in self.buffers.items()}
        return saved.theta.shape == self.theta.shape[1:] and {n: x.shape for n, x in saved.buffers.items()} == own

    def vacate(self, slot: int) -> None:
        self.slots.set(slot, step=0, limit=0)
        self.members[slot] = None

    def keep(self) -> None:
        """Remember every slot as it is now, for `saved`: all of it, or where memory runs out nothing."""
        now = {name: getattr(self, name) for name in ("theta", "m", "v")}
        now |= {f"buffer {name}": buffer for name, buffer in self.buffers.items()}
        self.kept = {name: rows.clone() for name, rows in now.items()}

    def saved(self, slot: int) -> Saved:
        """What a slot held when it was last kept, on the CPU."""
        row = {name: rows[slot].cpu() for name, rows in self.kept.items()}
        return Saved(row["theta"], row["m"], row["v"], {name: row[f"buffer {name}"] for name in self.buffers})

    def learned(self, slot: int) -> tuple[Float[Tensor, "size"], dict[str, Tensor]]:
        """A slot's parameters and buffers as they are now, on the CPU."""
        rows = self.theta[slot], {name: buffer[slot] for name, buffer in self.buffers.items()}
        return rows[0].to("cpu", copy=True), {name: row.to("cpu", copy=True) for name, row in rows[1].items()}

    def restore(self, slot: int, best: Best) -> None:
        """Put back what a member had learned by an earlier check; it is not trained from there."""
        self.theta[slot] = best.theta
        for name, buffer in self.buffers.items():
            buffer[slot] = best.buffers[name]

    def module(self, slot: int) -> nn.Module:
        """The member of a slot as a module of its own (the same one at every call)."""
        if self.count == 1:
            return self.template
        with torch.no_grad():
            for name, p in learned(self.template).items():
                p.copy_(self.leaves[name][slot])
            for name, own in fixed(self.template).items():
                own.copy_(self.buffers[name][slot])
        return self.template

    # -- a round -------------------------------------------------------------------------------------------------------

    def round(self, poll: Callable[[], None] = lambda: None) -> list[Report]:
        """Train every slot for `validate_every` steps and validate it; `poll` is called between steps."""
        present = {self.tasks[spec.task] for spec in self.members if spec is not None}
        self.slots.loss.zero_()
        with numerics(self.how, self.device):
            for done in range(self.how.validate_every):
                if done % self.ahead == 0:
                    for number in present:
                        self.draws[number]()
                with self._random():
                    self.step()
                poll()
            self.validate()
        return self._report()

    def _draw(self, number: int) -> None:
        """Batches for the next steps of all members that have a certain task; drawn for all, and kept for those."""
        batch = self.data[number].draw(self.slots.seed, self.slots.step + 1, self.ahead)
        self.drawn.zero_()
        others = self.slots.task != number
        for buffer, new in ((self.inputs, batch.inputs), (self.targets, batch.targets)):
            new = new.transpose(0, 1).to(buffer.dtype)
            if len(self.data) > 1:
                new = torch.where(others.view(-1, *[1] * (buffer.ndim - 2)), buffer, new)
            buffer.copy_(new)

    @contextmanager
    def _random(self) -> Iterator[None]:
        """A module called as it is may draw numbers (dropout): then from its member's seed and step alone."""
        spec = self.members[0]
        if not self.unmapped or spec is None:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(Rng.seeded(spec.seed, "torch", int(self.slots.step[0])).words(1)[0]))
            yield

    def _logits(self, params: dict[str, Tensor], inputs: Tensor) -> Float[Tensor, "slots rows time answers"]:
        if self.count == 1:
            return logits_of(self.template, inputs[0])[None]
        return member_logits(self.template, params, self.buffers, inputs)

    def _losses(self, params: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Float[Tensor, "slots"]:
        return losses_of(self._logits(params, inputs), targets)

    def _step(self) -> None:
        inputs, targets = (x.index_select(0, self.drawn)[0] for x in (self.inputs, self.targets))
        self.drawn.add_(1).clamp_(max=self.ahead - 1)
        active, before = self.slots.active, {name: x.clone() for name, x in self.buffers.items()}
        with torch.enable_grad():
            losses = self.losses(self.leaves, inputs, targets)
            grads = torch.autograd.grad(losses.sum(), list(self.leaves.values()), allow_unused=True)
        with torch.no_grad():
            self._settle(active, before)
            self.update(losses.detach(), grads)

    def _update(self, losses: Float[Tensor, "slots"], grads: Sequence[Tensor | None]) -> None:
        self.slots.update(losses, self.layout.rows(grads, self.theta), self.theta, self.m, self.v)

    def _settle(self, active: Bool[Tensor, "slots"], before: dict[str, Tensor]) -> None:
        """Buffers that a call has written to: those of members that have ended stay as they were."""
        self._tie()
        for name, mine in self.buffers.items():
            mine.copy_(torch.where(active.view(-1, *[1] * (mine.ndim - 1)), mine, before[name]))

    def _tie(self) -> None:
        """Where one slot is the module itself, and has put another buffer in place of the old one."""
        for name, mine in self.buffers.items() if self.count == 1 else ():
            owner, _, leaf = name.rpartition(".")
            buffers = self.template.get_submodule(owner)._buffers
            new = buffers.get(leaf)
            if new is not None and new.data_ptr() != mine.data_ptr():
                mine.copy_(new[None])
                buffers[leaf] = mine[0]

    # -- validation ----------------------------------------------------------------------------------------------------

    def _validate(self) -> None:
        self.template.eval()
        with torch.no_grad():
            for number, (inputs, targets) in enumerate(self.validation.sets):
                self.wrong[number].zero_()
                self.right[number].zero_()
                for start in range(0, inputs.shape[1], self.how.batch):
                    some = slice(start, start + self.how.batch)
                    asked_of = targets[:, some][self.slots.task]
                    said = answers_of(self._logits(self.leaves, inputs[:, some][self.slots.task]))
                    asked = asked_of != IGNORE
                    right = (said == asked_of) & asked
                    self.wrong[number] += (right != asked).any(2).sum(1)
                    self.right[number] += right.sum((1, 2))
            self._tie()
        self.template.train()

    def _report(self) -> list[Report]:
        """Everything at once: this waits for the device, and is all that does, but for states that are to be kept."""
        slots = self.slots
        finite = self.theta.isfinite().all(1)
        columns = [slots.step, slots.diverged | ~finite, slots.loss, *self.wrong, *self.right]
        table = torch.stack([column.double() for column in columns], dim=1).tolist()
        return [self._told(row, self.members[slot]) for slot, row in enumerate(table)]

    def _told(self, row: list[float], spec: RunSpec | None) -> Report:
        step, diverged, loss, *marks = row
        bins, task = self.validation.bins, self.tasks[spec.task] if spec else 0
        wrong, right = marks[: len(bins)], marks[len(bins) :]
        rows, asked = self.validation.rows[task], self.validation.asked[task]
        sequences = {name: 1 - w / n for name, w, n in zip(bins, wrong, rows, strict=True)}
        answers = {name: r / n for name, r, n in zip(bins, right, asked, strict=True)}
        return Report(int(step), bool(diverged), loss, sequences, answers)


def steps_ahead(how: Training, slots: int, device: torch.device) -> int:
    """For how many steps data is drawn at once."""
    tokens = ATTEMPTS * slots * how.batch * how.lengths[1]
    return max(1, min(how.validate_every, DRAWN_TOKENS[device.type] // tokens))
