"""The methods of `assay certify`, and their combination."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from assay.certify.lasso import run_lassos
from assay.certify.linear import NotLinear, first_wrong_lengths, run_lasso
from assay.certify.machine import NotCarried, StateMachine, machine_of, wrong
from assay.certify.result import Result
from assay.certify.search import Limits, OnStatus, Search, SearchStatus, search
from assay.certify.table import TaskTable
from assay.errors import BadInput
from assay.lab.evaluate import answers_of, predict
from assay.lab.execute import one_thread
from assay.models.causal import Causal
from assay.record import Outcome
from assay.rng import Rng
from assay.tasks.words import readable

METHODS = ("auto", "lasso", "exhaustive", "closure", "linear", "learn")
FORMATS = ("fixed:6.4", "fixed:4.3", "fixed:4.2", "fixed:4.6")  # tried in this order


def certify(
    model: nn.Module,
    table: TaskTable,
    method: str = "auto",
    numbers: str | None = None,
    limits: Limits | None = None,
    device: torch.device | str = "cpu",
    on_status: OnStatus = lambda _: None,
) -> list[Result]:
    """What can be said about a model on all inputs of a task, by one method or by all in turn.

    `auto` shares the time: an eighth each for lassos and exhaustion, the rest for closure in several formats until one
    is a proof. A model whose state grows is examined by exhaustion and by learning.
    """
    limits = limits or Limits()
    with one_thread():
        require_same_function(model, table)
        if method == "lasso":
            return [by_lassos(model, table, limits, on_status)]
        if method == "exhaustive":
            return [by_exhaustion(model, table, limits, device, on_status)]
        if method == "linear":
            return [by_linear(model, table, limits, on_status)]
        if method == "learn":
            return [by_learning(model, table, limits, on_status)]
        if method == "closure":
            return [by_closure(model, table, numbers or FORMATS[0], limits, device, on_status)]
        return _by_all(model, table, numbers, limits, device, on_status)


def _by_all(
    model: nn.Module,
    table: TaskTable,
    numbers: str | None,
    limits: Limits,
    device: torch.device | str,
    on_status: OnStatus,
) -> list[Result]:
    eighth, results = replace(limits, seconds=limits.seconds / 8), list[Result]()
    attempts: list[Callable[[], Result]] = [
        lambda: by_lassos(model, table, eighth, on_status),
        lambda: by_exhaustion(model, table, eighth, device, on_status),
    ]
    formats = (numbers,) if numbers else FORMATS
    share = replace(limits, seconds=0.75 * limits.seconds / len(formats))
    attempts += [
        lambda format=format: by_closure(model, table, format, share, device, on_status)  # type: ignore[misc]
        for format in formats
    ]
    attempts.append(lambda: by_linear(model, table, eighth, on_status))
    if not machine_of(model, "float32").merges:  # no other method applies
        attempts.append(lambda: by_learning(model, table, share, on_status))
    for attempt in attempts:
        try:
            results.append(attempt())
        except (NotCarried, NotLinear):
            continue
        except TooCoarse:
            if numbers:
                raise
            continue
        if results[-1].outcome == "proved" and results[-1].length is None:
            break
    return results


def require_same_function(model: nn.Module, table: TaskTable) -> None:
    """BadInput if stepping through random words does not give the answers of the whole forward pass."""
    if not isinstance(model, Causal):
        return
    words = Rng.seeded(0, "certify", "step").rows(16).integers(64, table.moves.shape[1]) + 1
    forward_answers = predict(model, words)
    with torch.no_grad():
        step_answers = answers_of(Causal.forward(model.eval(), words)[0])
    differs = forward_answers != step_answers
    if differs.double().mean() > 0.01:  # more than rounding at a tie
        token = int(differs.any(0).long().argmax()) + 1
        raise BadInput(f"the `step` of the model is not its `forward`: their answers differ at token {token}")


class TooCoarse(BadInput):
    """A format that has too few numbers for the model."""


def by_lassos(model: nn.Module, table: TaskTable, limits: Limits, on_status: OnStatus = lambda _: None) -> Result:
    """Every short lasso, for every number of repetitions; says nothing about other inputs."""
    begin, machine = time.perf_counter(), _machine(model, "float32", "lasso", table)
    outcome = run_lassos(machine, table, limits, _named(on_status, "lasso"))
    detail = f"{outcome.settled:,} of {outcome.lassos:,} lassos are right for every number of repetitions"
    detail += f", {outcome.wrong:,} are wrong" * bool(outcome.wrong)
    detail += f", {outcome.open:,} are open after {outcome.length:,} tokens" * bool(outcome.open)
    return Result(
        "lasso",
        "refuted" if outcome.word else "open",
        machine.numbers,
        detail,
        length=len(outcome.word) if outcome.word else None,
        word=outcome.word or (),
        seconds=time.perf_counter() - begin,
    )


def by_exhaustion(
    model: nn.Module,
    table: TaskTable,
    limits: Limits,
    device: torch.device | str = "cpu",
    on_status: OnStatus = lambda _: None,
) -> Result:
    """Every input up to a length, as far as the limits allow. The carried state is not rounded."""
    machine = machine_of(model, "float32", device)
    machine.require_independent_rows(table.moves.shape[1])
    outcome = search(machine, table, limits, on_status=_named(on_status, "exhaustive"))
    return replace(_result("exhaustive", machine.numbers, outcome), carried=machine.merges)


def by_linear(model: nn.Module, table: TaskTable, limits: Limits, on_status: OnStatus = lambda _: None) -> Result:
    """The first wrong length of every short lasso, computed from the affine maps of the tokens, then run."""
    begin = time.perf_counter()
    _machine(model, "float32", "linear", table)
    outcome = first_wrong_lengths(model, table, limits, _named(on_status, "linear"))
    maps = f"affine maps of {outcome.numbers} numbers, {outcome.lassos} lassos"
    result = Result(
        "linear", "open", "float32", f"{maps}: none is computed to be wrong; nothing is said of other inputs"
    )
    if outcome.lasso and outcome.length:
        seconds = limits.seconds - (time.perf_counter() - begin)
        longest = outcome.length + outcome.length // 4 + 64
        length = run_lasso(model, table, outcome.lasso, longest, max(seconds, 1.0))
        decay = f", where the largest eigenvalue below 1 is {outcome.eigenvalue:.6f}" if outcome.eigenvalue else ""
        detail = f"{maps}: computed to be wrong first at length {outcome.length:,}{decay}; "
        if length:
            detail += f"run, the model is wrong first at length {length:,}"
            word = outcome.lasso.word(length)
            result = replace(result, outcome="refuted", detail=detail, length=length, word=word)
        else:
            result = replace(result, detail=f"{detail}not confirmed by running it")
    return replace(result, seconds=time.perf_counter() - begin)


def by_learning(model: nn.Module, table: TaskTable, limits: Limits, on_status: OnStatus = lambda _: None) -> Result:
    """The automaton that the model is on short inputs; it is the task's if the model has at most m states."""
    from assay.extract.learning import learn_automaton  # imports aalpy

    begin, on_status = time.perf_counter(), _named(on_status, "learn")

    def show(words: int, states: int) -> None:
        on_status(SearchStatus(0, states, words, time.perf_counter() - begin))

    learned = learn_automaton(lambda words: predict(model, words), table.task, seconds=limits.seconds, on_progress=show)
    outcome: Outcome = "conditional" if learned.equal and learned.bound else "open"
    result = Result("learn", outcome, "float32", learned.statement)
    if learned.difference:
        word = tuple(learned.difference.word)
        carried = isinstance(machine_of(model, "float32"), StateMachine) and not _right_unrounded(model, table, word)
        result = replace(result, outcome="refuted", word=word, length=len(word), carried=carried)
    return replace(result, states=learned.states, seconds=time.perf_counter() - begin)


def by_closure(
    model: nn.Module,
    table: TaskTable,
    numbers: str,
    limits: Limits,
    device: torch.device | str = "cpu",
    on_status: OnStatus = lambda _: None,
) -> Result:
    """Every pair of state and task state that the rounded machine can reach."""
    machine, on_status = _machine(model, numbers, "closure", table), _named(on_status, f"closure {numbers}")
    outcome = None
    if torch.device(device).type != "cpu":
        outcome = search(StateMachine(model, numbers, device), table, limits, on_status=on_status)
        if outcome.closed or outcome.word:  # the CPU repeats what the device found
            limits, outcome = Limits(seconds=torch.inf, states=2 * outcome.pairs), None
    outcome = outcome or search(machine, table, limits, on_status=on_status)
    result = _result("closure", numbers, outcome)
    if outcome.word:
        _require_fineness(model, table, numbers, outcome)
        if _right_unrounded(model, table, outcome.word):
            result = replace(result, detail=f"{result.detail}; without rounding, the model is right on this word")
    elif outcome.closed and machine.slack < torch.inf and not getattr(model, "state_change", None):
        detail = f"{result.detail}; no carried number came closer than {machine.slack:.1e} to another rounding"
        result = replace(result, detail=detail)
    return result


def _named(on_status: OnStatus, method: str) -> OnStatus:
    return lambda status: on_status(status._replace(method=method))


def _machine(model: nn.Module, numbers: str, method: str, table: TaskTable) -> StateMachine:
    try:
        machine = StateMachine(model, numbers)
    except NotCarried as error:
        raise NotCarried(f"{error}: method {method} does not apply; exhaustive and learn do") from None
    machine.require_independent_rows(table.moves.shape[1])
    return machine


def _result(method: str, numbers: str, outcome: Search) -> Result:
    machine = "the model" if numbers == "float32" else f"the machine whose state is rounded to {numbers}"
    common = {"states": outcome.pairs, "seconds": outcome.seconds}
    if outcome.word:
        detail = f"{machine} is right on every shorter input"
        return Result(method, "refuted", numbers, detail, length=len(outcome.word), word=outcome.word, **common)  # type: ignore[arg-type]
    if outcome.closed:
        pairs = f"{outcome.pairs:,} pairs of state and task state"
        detail = f"{machine} is right on every input: {pairs} are all it reaches"
        return Result(method, "proved", numbers, detail, pairs_digest=outcome.digest(), **common)  # type: ignore[arg-type]
    detail = (
        f"{machine} is right on every input up to {outcome.length} tokens ({outcome.pairs:,} pairs); "
        f"{outcome.stopped} ended the search"
    )
    bounded = method == "exhaustive" and outcome.length > 0
    return Result(method, "proved" if bounded else "open", numbers, detail, length=outcome.length, **common)  # type: ignore[arg-type]


def _require_fineness(model: nn.Module, table: TaskTable, numbers: str, outcome: Search) -> None:
    """Raise TooCoarse if rounding itself, not a long input, makes the answers wrong."""
    states, word = outcome.rows[:, :-1], outcome.word or ()
    if not _right_unrounded(model, table, word):
        return
    if len(word) == 1:
        symbol = readable(word, table.symbols)
        raise TooCoarse(f"{numbers} is too coarse: rounded, the model is wrong on '{symbol}' already; use more bits")
    if bool((states == states[0]).all()):
        raise TooCoarse(f"{numbers} is too coarse: every state is rounded to the same numbers; use more bits")


def _right_unrounded(model: nn.Module, table: TaskTable, word: tuple[int, ...]) -> bool:
    machine, logits = StateMachine(model, "float32"), torch.zeros(1, 1)
    codes = machine.start()
    for token in word:
        logits, codes = machine.step(codes, torch.tensor([token]))
    return not bool(wrong(logits, table.answers[[table.walk(word)]]).any())
