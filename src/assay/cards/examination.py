"""The examination of a card's subject, before any training: what it can read, and on what its outputs depend.

Each task of the battery has another number of tokens and answers, so the module is built and called for each of them.
Its dependence on later tokens, on other rows and on precision is examined on the first task that it can be trained on.
A task on which it fails is left out, and the other ones go on; a module that sees the future is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from assay.cards.subject import Subject
from assay.errors import USER_CODE_ERRORS, BadInput, in_one_line
from assay.lab.evaluate import logits_of
from assay.lab.integrity import Examiner, is_built_in, relative_change, require_device
from assay.lab.stacking import build_module, member_losses, trainable
from assay.spec import RunSpec, run_spec
from assay.studies.card import ROWS, Question, Scale

Outcome = Literal["passed", "failed", "unknown"]
UNSTABLE = 1e-3  # a relative difference between float32 and float64 that is worth a warning
FEWEST_BINS = 2  # validation uses inputs that are somewhat longer than those of training


class Check(NamedTuple):
    """One thing that was examined, and what came of it."""

    name: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Examination:
    """The runs that can be carried out, the checks, and the tasks that are left out with the reason."""

    runs: tuple[RunSpec, ...]
    checks: tuple[Check, ...]
    left_out: dict[str, str]
    shortened: dict[str, str]  # by task: why it is tested on shorter inputs than the references


class Fault(Exception):
    """Why a task is left out: the class, the call and the shape."""


def examine_subject(subject: Subject, scale: Scale, device: torch.device) -> Examination:
    """Examine a subject on every task; BadInput if none is left. Built-in models are covered by tests."""
    require_device(subject.model, device)
    runs = scale.runs(subject.model)
    if is_built_in(subject.model):
        return Examination(tuple(runs), (), {}, {})
    kept, left_out, shortened = list[RunSpec](), dict[str, str](), dict[str, str]()
    for question in scale.questions:
        specs = [run for run in runs if run.task.kind == question.task]
        try:
            remark, readable = _readable(subject, question, specs, device)
        except Fault as fault:
            left_out[question.task] = str(fault)
            continue
        kept += readable
        if remark:
            shortened[question.task] = remark
    if not kept:
        raise BadInput(_one_report(left_out))
    return Examination(tuple(kept), tuple(_dependences(kept[0], device)), left_out, shortened)


def _one_report(left_out: dict[str, str]) -> str:
    """Why no task is left: of reasons that differ in sizes alone, the first one."""
    reasons: dict[str, list[str]] = {}
    for task, reason in left_out.items():
        reasons.setdefault(re.sub(r"\d+", "0", reason), []).append(task)
    firsts = [left_out[tasks[0]] for tasks in reasons.values()]
    if len(firsts) == 1:
        return firsts[0] + (f", and so on all {len(left_out)} tasks" if len(left_out) > 1 else "")
    return "; ".join(f"{', '.join(tasks)}: {reason}" for reason, tasks in zip(firsts, reasons.values(), strict=True))


def _call(spec: RunSpec, subject: Subject) -> str:
    vocab, features, answers = spec.task.shape
    return f"{subject.title} with vocab={vocab}, features={features}, answers={answers}"


def _readable(
    subject: Subject, question: Question, specs: Sequence[RunSpec], device: torch.device
) -> tuple[str, list[RunSpec]]:
    """The runs of a task, with the test bins that the module can read, and a remark if some are left out."""
    spec, call = specs[0], _call(specs[0], subject)
    try:
        module = build_module(spec, device)
    except USER_CODE_ERRORS as error:
        raise Fault(f"{call} cannot be built: {in_one_line(error)}") from None
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise Fault(f"{call} has parameters without a size (nn.Lazy...): make them when it is built")
    count = sum(parameter.numel() for parameter in trainable(module).values())
    if not count:
        raise Fault(f"{call} has no parameters that can be trained")
    examiner = Examiner(module, spec, device)
    _train_once(examiner, call)
    bins, remark = list(spec.testing.bins), ""
    while True:
        length = spec.task.lengths(bins[-1].low, bins[-1].high)[-1]
        try:
            examiner.read(length)
            break
        except USER_CODE_ERRORS as error:
            remark = remark or f"{call} cannot read {length:,} tokens: {in_one_line(error)}"
            if len(bins) <= FEWEST_BINS:
                raise Fault(remark) from None
            bins.pop()
    if not remark:
        return "", list(specs)
    longest = f"it is tested up to {bins[-1].high:,} tokens"
    return f"{remark}; {longest}", [_with_bins(run, len(bins), question) for run in specs]


def _with_bins(run: RunSpec, count: int, question: Question) -> RunSpec:
    training = {"lengths": run.training.lengths, "steps": run.training.steps, "lr": run.training.lr}
    testing = {"bins": question.bins()[:count], "rows": ROWS}
    return run_spec(run.task, run.model, seed=run.seed, training=training, testing=testing)


def _train_once(examiner: Examiner, call: str) -> None:
    """One forward and one backward pass, as training does them."""
    spec, device = examiner.spec, examiner.device
    inputs = examiner.inputs(spec.width)
    shape = f"on inputs {list(inputs.shape)}"
    module = examiner.copy().train()
    try:
        logits = logits_of(module, inputs)
        examiner.check_shape(logits, inputs)
    except BadInput as error:
        raise Fault(str(error)) from None
    except USER_CODE_ERRORS as error:
        raise Fault(f"{call} {shape} raises {in_one_line(error)}") from None
    places = {logits.device, *(x.device for x in (*module.parameters(), *module.buffers()))}
    moved = next((place for place in places if place.type != device.type), None)
    if moved is not None:
        raise Fault(f"{call} {shape} on {device.type} has tensors on {moved}; use the device of the input")
    if logits.isnan().any():
        raise Fault(f"{call} {shape} gives NaN before the first step")
    try:
        member_losses(logits[None], spec.task.solve(inputs)[None]).sum().backward()
    except USER_CODE_ERRORS as error:
        raise Fault(f"{call} {shape} raises in backward: {in_one_line(error)}") from None
    gradients = [x.grad for x in trainable(module).values() if x.grad is not None]
    if not gradients:
        raise Fault(f"{call} {shape}: no parameter receives a gradient")
    if any(not gradient.isfinite().all() for gradient in gradients):
        raise Fault(f"{call} {shape}: a gradient is NaN or infinite before the first step")


def _dependences(spec: RunSpec, device: torch.device) -> Iterator[Check]:
    """What is compared once: gradients, causality, the other rows, precision."""
    examiner = Examiner(build_module(spec, device), spec, device)
    yield _gradients(examiner)
    unknown = examiner.examine()  # BadInput if it sees the future, whatever the task
    about = "later tokens, other rows of the batch and earlier calls do not change an output"
    yield Check("causality and batch", "unknown" if unknown else "passed", unknown or about)
    yield _precision(examiner, spec)
    yield Check("longest input", "passed", f"reads {spec.longest:,} tokens of {spec.task.kind}")


def _gradients(examiner: Examiner) -> Check:
    module, inputs = examiner.copy().train(), examiner.inputs(examiner.spec.width)
    logits_of(module, inputs).square().sum().backward()
    idle = [name for name, x in trainable(module).items() if x.grad is None]
    of_mixer = sum(x.numel() for part in _own_parts(module) for x in part.parameters() if x.requires_grad)
    if _own_parts(module) and not of_mixer:
        return Check("gradients", "passed", "the mixer has no parameters of its own; the skeleton around it learns")
    detail = f"{len(idle)} parameters receive none: {', '.join(idle[:3])}" if idle else "every parameter receives one"
    return Check("gradients", "passed", detail)


def _own_parts(module: nn.Module) -> list[nn.Module]:
    from assay.models.foreign import ForeignLayer

    return [part for part in module.modules() if isinstance(part, ForeignLayer)]


def _precision(examiner: Examiner, spec: RunSpec) -> Check:
    """How far float32 is from float64, on the longest input."""
    inputs = examiner.inputs(spec.longest, rows=2)
    try:
        exact = examiner.call(inputs, train=False, dtype=torch.float64)
    except Exception as error:
        return Check("precision", "unknown", f"it does not compute in float64: {in_one_line(error)}")
    outputs = examiner.call(inputs, train=False)
    if any(logits.isnan().any() for logits, _ in (exact, outputs)):
        return Check("precision", "failed", f"it gives NaN at {spec.longest:,} tokens")
    change = float(relative_change(exact, outputs).max())
    detail = f"float32 and float64 differ by {change:.1g} of a logit's size at {spec.longest:,} tokens"
    return Check("precision", "passed" if change < UNSTABLE else "failed", detail)
