"""Runs that have ended in TensorBoard or Weights & Biases: their curves, scores and verdicts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.errors import BadInput, in_one_line, suggestion
from assay.lab.engines.engine import Event, OnEvent
from assay.record import Record
from assay.store import require_writable

OnRecord = Callable[[Record], None]


@contextmanager
def logged(targets: Sequence[str], on_event: OnEvent) -> Iterator[OnEvent]:
    """Report events to `on_event`, and every record also to targets such as `tensorboard:FOLDER`.

    A target that cannot be written any more is left out, with a message: the runs go on, and the store has them.
    """
    with ExitStack() as stack:
        writers = {target: stack.enter_context(_writer(target)) for target in targets}

        def receive(event: Event) -> None:
            on_event(event)
            if event.record is None or not event.record.finished:
                return
            for target, write in list(writers.items()):
                try:
                    write(event.record)
                except Exception as error:  # of another library, which may wait for a network
                    del writers[target]
                    on_event(Event(message=f"--log {target} has ended: {in_one_line(error)}"))

        yield receive


def check_targets(targets: Sequence[str]) -> None:
    """BadInput for a target that cannot be written to."""
    for target in targets:
        kind, _, place = target.partition(":")
        if kind not in TARGETS:
            raise BadInput(f"--log {target}: unknown target '{kind}'{suggestion(kind, TARGETS)}")
        library, example, _ = TARGETS[kind]
        if not place:
            raise BadInput(f"--log {target} is not valid: write {example}")
        if find_spec(library) is None:
            raise BadInput(f"--log {kind} needs {library}, which is not installed: pip install 'assay[logs]'")
        if kind == "tensorboard":
            require_writable(Path(place))
        elif os.environ.get("WANDB_MODE", "online") == "online":
            _log_in(target)


def _log_in(target: str) -> None:
    """Ask for a key now, not when the first run ends."""
    import wandb

    try:
        wandb.login()
    except Exception as error:
        reason = f"{in_one_line(error)}; WANDB_MODE=offline writes to this machine alone"
        raise BadInput(f"--log {target} cannot be used: {reason}") from None


def _writer(target: str) -> Any:
    kind, _, place = target.partition(":")
    return TARGETS[kind][2](place)


@contextmanager
def _tensorboard(folder: str) -> Iterator[OnRecord]:
    """One run of TensorBoard for each record."""
    from torch.utils.tensorboard import SummaryWriter

    def write(record: Record) -> None:
        place = Path(folder, record.task.replace(":", "."), record.model.replace(":", "."), record.digest)
        with SummaryWriter(str(place)) as writer:
            for step, values in curve(record):
                for name, value in values.items():
                    writer.add_scalar(name, value, step)
            for name, value in scores(record).items():
                writer.add_scalar(name, value, record.steps)
            text = f"    {json.dumps({'verdict': record.verdict, **record.spec}, indent=1)}".replace("\n", "\n    ")
            writer.add_text("run", text, record.steps)

    yield write


@contextmanager
def _wandb(project: str) -> Iterator[OnRecord]:
    """One run of Weights & Biases for each record; its own settings say whether it is offline."""
    import wandb

    def write(record: Record) -> None:
        name = f"{record.task} {record.model} seed {record.seed}"
        run = wandb.init(project=project, name=name, id=record.digest, config=record.spec, resume="allow", reinit=True)
        for step, values in curve(record):
            run.log(values, step=step)
        run.summary.update({"verdict": record.verdict, "wrong_word": record.wrong_word, **scores(record)})
        run.finish()

    try:
        yield write
    finally:
        wandb.teardown()  # waits until its own process has written everything


TARGETS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "tensorboard": ("tensorboard", "tensorboard:FOLDER", _tensorboard),
    "wandb": ("wandb", "wandb:PROJECT", _wandb),
}


def curve(record: Record) -> Iterator[tuple[int, dict[str, float]]]:
    """The loss and the validation accuracies at every check."""
    for point in record.curve:
        shares = {f"validation/{name}": share for name, share in point.sequences.items()}
        yield point.step, {"loss": point.loss, **shares}


def scores(record: Record) -> dict[str, float]:
    """The share of right sequences in every test bin."""
    return {f"test/{score.bin}": score.sequences for score in record.scores if not score.probe}
