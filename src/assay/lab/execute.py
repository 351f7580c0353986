"""Carrying out runs in this process: specs in, records out. Every error becomes a record with the verdict `failed`."""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache
from typing import Any

import torch
from torch import nn

from assay import ops
from assay.errors import BadInput, in_one_line
from assay.lab.checkpoint import Checkpoints
from assay.lab.evaluate import OnProgress, evaluate, first_failing_length, probed_verdict, random_verdict
from assay.lab.integrity import examine, examine_untrained, is_built_in
from assay.lab.locks import EXCLUSIVE
from assay.lab.member import Member, StopReason
from assay.lab.memory import require_memory
from assay.lab.numerics import strict_numerics
from assay.lab.other_strings import other_scores
from assay.lab.probing import probe
from assay.lab.provenance import provenance
from assay.lab.status import EvaluationStatus, Status
from assay.lab.trainer import Callbacks, GroupTrainer, NamedState
from assay.lab.weights import Kept, is_kept, is_state_kept, serialize
from assay.models.causal import Causal, state_bits
from assay.models.mixer import operator_of
from assay.record import OtherState, Record, Score
from assay.spec import RunSpec


class CallbackError(Exception):
    """An error of a callback, which must not count as an error of the model."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


OnStatus = Callable[[Status | EvaluationStatus], None]


def execute(
    spec: RunSpec, device: torch.device, on_status: OnStatus = lambda _: None, raise_errors: bool = False
) -> Record:
    """Train and test one run; its record holds the weights."""
    (record,) = execute_group([spec], device, on_status=on_status, weights="all", raise_errors=raise_errors)
    return record


def execute_group(
    specs: Sequence[RunSpec],
    device: torch.device,
    on_record: Callable[[Record], None] = lambda _: None,
    on_status: OnStatus = lambda _: None,
    poll: Callable[[], None] = lambda: None,
    slots: int = 1,
    checkpoints: Checkpoints | None = None,
    memory_limit: float = math.inf,
    weights: Kept = "solved",
    raise_errors: bool = False,
    get_device_alone: Callable[[], bool] = lambda: False,
) -> list[Record]:
    """Train and test runs that can share a program; `on_record` receives each record when its run ends.

    The record of a run whose weights are kept holds them. With `raise_errors`, the first error of a run is raised
    instead of becoming a record. `get_device_alone` is called when memory has run out: it waits for other groups that
    use the device, and returns False if there were none.
    """
    records: list[Record] = []
    origin = provenance(device)  # of the code that is running now, not of what a later commit contains

    def add(record: Record) -> None:
        records.append(record)
        on_record(record)

    def end(
        member: Member, reason: StopReason, own: NamedState, further_states: Callable[[], Iterator[NamedState]]
    ) -> None:
        spec = member.spec

        def on_progress(tested: int, total: int) -> None:
            try:
                on_status(EvaluationStatus(spec.model.name, spec.task.kind, spec.seed, tested, total))
                poll()  # a long test can be interrupted
            except Exception as error:
                raise CallbackError(error) from error

        try:
            with _for_testing(spec, device):
                results = _results(member, reason, own, device, on_progress)
                tensors = {"": serialize(own.module)} if is_kept(weights, results["verdict"]) else {}
                states = list[OtherState]()
                for state in further_states():
                    states.append(_test_state(member, state, device, on_progress))
                    if is_state_kept(weights, states[-1]):
                        tensors[state.name] = serialize(state.module)
        except torch.OutOfMemoryError:
            raise
        except CallbackError as callback:  # not an error of the model
            raise callback.error from None
        except Exception as error:
            fail(member, error)
            return
        add(Record(**_description(member), **origin, **results, states=tuple(states)).with_weights(tensors))

    def fail(member: Member, error: BaseException) -> None:
        if raise_errors:
            raise error from error.__cause__  # not as a consequence of how the trainer handles it
        add(failure_record(member, in_one_line(error), device, _traceback(error)))

    with one_thread():
        try:
            with EXCLUSIVE if not is_built_in(specs[0].model) else nullcontext():
                examine_untrained(specs, device)
            callbacks = Callbacks(end, fail, on_status, poll, get_device_alone)
            trainer = GroupTrainer(specs, slots, device, callbacks, checkpoints)
            require_memory(specs[0], trainer.slots, device, memory_limit)
        except Exception as error:  # too large for this machine, or the module cannot be built
            for spec in specs:
                fail(Member(spec), error)
            return records
        trainer.run()
    return records


def tested_record(spec: RunSpec, module: nn.Module, steps: int, seconds: float, device: torch.device) -> Record:
    """The record of a module that was trained elsewhere, tested as every run, with its weights."""
    member = Member(spec, step=steps, seconds=seconds)
    own = NamedState("own", steps, module)
    results = _results(member, "steps", own, device, lambda tested, total: None)
    return Record(**_description(member), **provenance(device), **results).with_weights({"": serialize(module)})


def failure_record(member: Member, error: str, device: torch.device, traceback: str = "") -> Record:
    """The record of a run that could not be finished."""
    outcome: dict[str, Any] = {"verdict": "failed", "stopped": "error", "error": error, "traceback": traceback}
    return Record(**_description(member), **provenance(device), **outcome, seconds={"train": member.seconds})


def _traceback(error: BaseException) -> str:
    """Where an error was raised; for a user's mistake, where its cause was, if it has one."""
    origin = error.__cause__ if isinstance(error, BadInput) else error
    return "".join(traceback.format_exception(origin)) if origin else ""


def _description(member: Member) -> dict[str, Any]:
    """The fields of a record that say which run it is of, and how and when it was trained."""
    spec, ended = member.spec, datetime.now(UTC).isoformat(timespec="seconds")
    times = {"population": member.notes, "started": member.started, "ended": ended}
    return {"digest": spec.digest, "spec": spec.plain(), **times}


def _results(
    member: Member, reason: StopReason, own: NamedState, device: torch.device, on_progress: OnProgress
) -> dict[str, Any]:
    """The fields of a record that say what came of the run: its curve, its size, and its scores on the test bins."""
    start, spec, model = time.perf_counter(), member.spec, own.module
    results: dict[str, Any] = {
        "stopped": reason,
        "steps": member.step,
        "solved_at": member.solved_at,
        "curve": tuple(member.curve),
        "parameters": sum(p.numel() for p in model.parameters()),
        "backend": backends(model, spec.width),
    }
    longest = max(bin_.high for bin_ in spec.testing.bins)
    if isinstance(model, Causal):
        results |= {"state_floats": model.state_floats(longest), "state_bits": state_bits(model, longest)}
    if reason == "diverged":
        return {**results, "verdict": "diverged", "seconds": {"train": member.seconds}}
    if not_examined := examine(model, spec, device):
        member.notes["not_examined"] = not_examined
    scores, collapsed = evaluate(model, spec, device, on_progress, own.replays)
    others = other_scores(model, spec, device, on_progress, own.replays)
    tested, verdict = time.perf_counter(), random_verdict(scores, collapsed)
    # A run that is wrong within the training lengths needs no probes.
    probing = probe(model, spec, device, own.replays) if verdict in ("solved", "partly solved") else None
    seconds = {"train": member.seconds, "test": tested - start}
    return {
        **results,
        "verdict": probed_verdict(verdict, probing),
        "tested_at": member.saved["best"].step if spec.training.keep == "best" else None,
        "first_failing_length": first_failing_length(scores, probing),
        "scores": scores,
        "other_scores": others,
        "probing": probing,
        "seconds": seconds | ({"probe": probing.seconds} if probing else {}),
    }


def _test_state(member: Member, state: NamedState, device: torch.device, on_progress: OnProgress) -> OtherState:
    """The test of a further state, as that of the run's own."""
    spec = member.spec
    scores, collapsed = evaluate(state.module, spec, device, on_progress, state.replays)
    others = other_scores(state.module, spec, device, on_progress, state.replays)
    verdict = random_verdict(scores, collapsed)
    is_probed = verdict in ("solved", "partly solved")
    probing = probe(state.module, spec, device, state.replays) if is_probed else None
    return OtherState(
        name=state.name,
        step=state.step,
        verdict=probed_verdict(verdict, probing),
        scores=_without_lengths(scores),
        other_scores=_without_lengths(others),
        first_failing_length=first_failing_length(scores, probing),
        first_perfect=member.first_perfect if state.name == "watched" else None,
        probing=probing,
    )


def _without_lengths(scores: Sequence[Score]) -> tuple[Score, ...]:
    return tuple(score.model_copy(update={"lengths": ()}) for score in scores)


def backends(model: nn.Module, time: int) -> dict[str, str]:
    """The implementation that each operator of a model runs with on inputs of a length."""
    layers = [m for m in model.modules() if operator_of(m) in ops.OPERATORS]
    device = next(model.parameters()).device
    sizes = {operator_of(layer): int(getattr(layer, "dim", 1)) for layer in layers}
    chosen = {name: ops.backend_for(name, "auto", device, size, time) for name, size in sizes.items()}
    return chosen or {"model": "torch"}


@contextmanager
def _for_testing(spec: RunSpec, device: torch.device) -> Iterator[None]:
    """Strict settings, and a stream of its own; meanwhile nobody changes what a user's own module may depend on."""
    with ExitStack() as stack:
        stack.enter_context(strict_numerics(device))
        if not is_built_in(spec.model):
            stack.enter_context(EXCLUSIVE)
        if device.type == "cuda":
            training = torch.cuda.current_stream(device)
            testing = _test_stream(training)
            testing.wait_stream(training)
            stack.callback(training.wait_stream, testing)
            stack.enter_context(torch.cuda.stream(testing))
        yield


@cache
def _test_stream(training: torch.cuda.Stream) -> torch.cuda.Stream:
    """The stream for the tests of a group: their short kernels should not wait behind the training of other groups.

    One for each stream of training: PyTorch has 32 of high priority, and gives them out again and again.
    """
    return torch.cuda.Stream(training.device, priority=-1)


_single_threaded: list[int] = []  # the number of CPU threads that each user of `one_thread` found
_single_threaded_lock = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """One CPU thread: the models are small, runs go side by side, and sums have one order.

    The number is partly one of the whole process: of several threads, the last one to leave restores it.
    """
    with _single_threaded_lock:
        _single_threaded.append(torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _single_threaded_lock:
            before = _single_threaded.pop()
            if not _single_threaded:
                torch.set_num_threads(before)
