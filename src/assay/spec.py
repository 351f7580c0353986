"""`RunSpec`, the complete description of a run: its task, its model, and how it is trained and tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from assay.description import Description, canonical, digest_of_text
from assay.errors import BadInput
from assay.models import as_model, read_model
from assay.models.skeleton import Architecture
from assay.tasks import named_task, read_task
from assay.tasks.bins import LONGEST, Bin, Length
from assay.tasks.task import Task

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Schedule = Literal["constant", "linear", "cosine"]
OtherState = Literal["best", "watched", "averaged"]


def _unique_names(bins: tuple[Bin, ...]) -> tuple[Bin, ...]:
    names = [bin_.name for bin_ in bins]
    if len(set(names)) < len(names):
        raise ValueError(f"two bins have the same name: {', '.join(names)}")
    return bins


def _once(states: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(states)) < len(states):
        raise ValueError(f"testing.states names a state twice: {', '.join(states)}")
    return states


Bins = Annotated[tuple[Bin, ...], Field(min_length=1), AfterValidator(_unique_names)]


class Training(Description):
    """A run is trained with AdamW until every validation sequence is right or it has made all of its steps.

    The defaults of Adam are those of the published code of Irie et al. 2023. Test bins never influence a run. A run
    diverges if its loss, a gradient or a parameter becomes NaN or infinite. The best state is that of the check with
    the largest share of right validation sequences (the mean over the bins; if several are equal, the latest check).
    On the command line, None is written as null.
    """

    kind: ClassVar[str] = "training"
    version: ClassVar[int] = 2
    added: ClassVar[tuple[str, ...]] = ("explodes", "keep", "fixed")
    lengths: Annotated[tuple[Length, Length], Field(description="the shortest and the longest input")]
    validation: Annotated[Bins, Field(description="the ranges of lengths of validation sequences")]
    validation_rows: Annotated[int, Field(ge=1, description="sequences of each validation bin")] = 128
    validate_every: Annotated[int, Field(ge=1, description="steps between two checks by validation")] = 100
    patience: Annotated[
        int, Field(ge=1, description="checks in a row at which every validation sequence must be right")
    ] = 3
    stop: Annotated[
        Literal["solved", "never"], Field(description="solved: stop after these checks; never: train for all steps")
    ] = "solved"
    keep: Annotated[Literal["last", "best"], Field(description="which state is tested: last or best")] = "last"
    steps: Annotated[int, Field(ge=1, description="maximum number of steps")] = 20_000
    fixed: Annotated[
        int | None,
        Field(ge=1, description="number of sequences of one training set for all runs; null: new ones at every step"),
    ] = None
    batch: Annotated[int, Field(ge=1, description="sequences of a batch, one batch per step")] = 32
    lr: Annotated[Rate, Field(description="the learning rate")] = 1e-3
    betas: Annotated[tuple[Beta, Beta], Field(description="the decay of Adam's two averages")] = (0.9, 0.995)
    eps: Annotated[Rate, Field(description="Adam adds this to the root of the second average")] = 1e-9
    weight_decay: Annotated[float, Field(ge=0, description="the weight decay of AdamW")] = 0.0
    clip: Annotated[Rate | None, Field(description="gradients with a larger norm are clipped; null: none")] = None
    explodes: Annotated[Rate | None, Field(description="a run diverges if its loss reaches this, in nats")] = 1000.0
    warmup: Annotated[int, Field(ge=0, description="steps in which the learning rate rises from zero")] = 0
    schedule: Annotated[Schedule, Field(description="constant; linear or cosine: falls to zero at the last step")] = (
        "constant"
    )
    precision: Annotated[Literal["float32", "tf32"], Field(description="tf32: faster on a GPU, less exact")] = "float32"
    compile: Annotated[bool, Field(description="torch.compile: faster on a GPU, slightly different results")] = False

    @model_validator(mode="after")
    def _in_order(self) -> Training:
        if self.lengths[0] > self.lengths[1]:
            raise ValueError(f"training.lengths {list(self.lengths)} are in the wrong order")
        return self


class Testing(Description):
    """A run is tested once, after training.

    Further states of it can be tested beside the one that `training.keep` names; they change nothing else. `best` is
    the best state by validation. `watched` is chosen as in the published code of Irie et al. 2023: every few steps the
    first two test bins are looked at, the state with the highest mean accuracy is kept, and the first one without a
    mistake is the last one looked at. This is the only use of test bins during training, and no verdict of a run
    depends on it; a run that has stopped goes on until its steps end, for the watched state alone. `averaged` is a
    moving average of the parameters over about a thousand steps, at the end of training.
    """

    kind: ClassVar[str] = "testing"
    version: ClassVar[int] = 1
    added: ClassVar[tuple[str, ...]] = ("both_strings", "every_length", "states", "watch_every")
    bins: Annotated[Bins, Field(description="the ranges of lengths of test sequences")]
    rows: Annotated[int, Field(ge=1, description="sequences of each test bin, spread over its lengths")] = 256
    both_strings: Annotated[
        bool, Field(description="test the first two bins also with the task's other strings (uniform or published)")
    ] = False
    every_length: Annotated[
        bool, Field(description="test every length of a bin; no length is reserved for validation")
    ] = False
    states: Annotated[
        tuple[OtherState, ...],
        Field(description="further states to test: best, watched, averaged"),
        AfterValidator(_once),
    ] = ()
    watch_every: Annotated[
        int, Field(ge=1, description="steps between two tests of the first two bins, for the watched state")
    ] = 50

    @property
    def first_bins(self) -> tuple[Bin, ...]:
        """Bin0 and Bin1: tested with both strings, and looked at for the watched state."""
        return self.bins[:2]


class RunSpec(Description):
    """The complete description of one run; equal specs are the same run."""

    kind: ClassVar[str] = "run"
    version: ClassVar[int] = 1
    task: Annotated[SerializeAsAny[Task], BeforeValidator(read_task)]
    model: Annotated[SerializeAsAny[Architecture], BeforeValidator(read_model)]
    training: Training
    testing: Testing
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @model_validator(mode="after")
    def _lengths_fit(self) -> RunSpec:
        self.task.lengths(*self.training.lengths)
        bins = (*self.training.validation, *self.testing.bins)
        for bin_ in bins:
            changed = self.task.in_bin(bin_)
            if (changed.symbols, changed.answers) != (self.task.symbols, self.task.answers):
                raise ValueError(f"{bin_.name}: its options change the symbols or answers of {self.task.kind}")
            changed.lengths(bin_.low, bin_.high)
        self.model.check_length(self.longest)
        every, each = self.training.validate_every, self.testing.watch_every
        if "watched" in self.testing.states and every % each:
            raise ValueError(f"training.validate_every = {every} is not a multiple of testing.watch_every = {each}")
        return self

    @model_validator(mode="after")
    def _strings_fit(self) -> RunSpec:
        task, training = self.task, self.training
        if task.is_published and training.fixed is None:
            raise ValueError(f"{task.kind}: published strings need a fixed training set; set training.fixed to 10000")
        if self.testing.every_length and task.is_published:
            raise ValueError(f"{task.kind}: testing.every_length is not for published strings, which have any lengths")
        if self.testing.every_length and any(bin_.high > training.lengths[1] for bin_ in training.validation):
            raise ValueError("testing.every_length needs validation bins that end with training.lengths")
        return self

    @property
    def width(self) -> int:
        """The length of the longest training input."""
        return self.task.width(self.training.lengths[1])

    @property
    def longest(self) -> int:
        """The length of the longest input that the run may read."""
        highs = [bin_.high for bin_ in (*self.training.validation, *self.testing.bins)]
        widths = [self.task.width(high) for high in (self.training.lengths[1], *highs)]
        if self.testing.both_strings:
            other = self.task.other_strings()
            widths += [other.width(bin_.high) for bin_ in self.testing.first_bins]
        return max(widths)

    @cached_property
    def digest(self) -> str:
        """The name of the run: a hash of every field and of the version of every part."""
        before, after = self.around_seed
        return digest_of_text(f"{before}{self.seed}{after}")

    @cached_property
    def around_seed(self) -> tuple[str, str]:
        """The canonical text of this spec before its seed and after it, computed once for all seeds."""
        data = self.plain()
        before, after = ({key: data[key] for key in data if (key < "seed") is first} for first in (True, False))
        del after["seed"]
        return f'{canonical(before)[:-1]},"seed":', f",{canonical(after)[1:]}"

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As in pydantic, but without what is cached, since fields may have changed."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("digest", "around_seed"):
            copy.__dict__.pop(name, None)
        return copy

    def with_seed(self, seed: int) -> Self:
        """The same run with another seed."""
        copy = self.model_copy(update={"seed": seed})
        copy.__dict__["around_seed"] = self.around_seed
        return copy


def run_spec(
    task: str | Task,
    model: str | Architecture | Callable[..., Any],
    *,
    seed: int = 0,
    task_options: dict[str, Any] | None = None,
    model_options: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    testing: dict[str, Any] | None = None,
) -> RunSpec:
    """A run from names and options; lengths, validation bins and test bins default to those of the task.

    A model is a name, an architecture, or a class or function from (vocab, features, answers) to a module.
    """
    if isinstance(task, Task) and task_options:
        raise BadInput(f"{task.kind} is already described; give {', '.join(task_options)} where it is made")
    task = named_task(task, **(task_options or {})) if isinstance(task, str) else task
    model = as_model(model, **(model_options or {}))
    training, testing = dict(training or {}), dict(testing or {})
    lengths = training.setdefault("lengths", task.train_lengths)
    if not (isinstance(lengths, (list, tuple)) and len(lengths) == 2 and all(isinstance(n, int) for n in lengths)):
        raise BadInput(f"training.lengths = {lengths!r} is not valid: two whole numbers, shortest and longest")
    if lengths[0] < 1 or lengths[0] > lengths[1]:
        raise BadInput(f"training.lengths = {list(lengths)} is not valid: from at least 1, shortest first")
    if lengths[1] > LONGEST:
        raise BadInput(f"training.lengths = {list(lengths)} is not valid: at most {LONGEST:,}")
    task.lengths(*lengths)
    bins = task.bins(*lengths)
    testing.setdefault("bins", tuple(b for b in bins if any(task.fits(n) for n in range(b.low, b.high + 1))))
    training.setdefault("validation", _validation(task, *lengths))
    return RunSpec(task=task, model=model, training=Training(**training), testing=Testing(**testing), seed=seed)


def run_specs(
    tasks: Sequence[str | Task],
    models: Sequence[str | Architecture | Callable[..., Any]],
    *,
    seeds: int = 1,
    rates: Sequence[float] = (),
    **parts: Any,
) -> list[RunSpec]:
    """All seeds of each model on each task at each learning rate; `parts` are options of `run_spec`."""
    training = parts.pop("training", {})
    rated = [training | {"lr": rate} for rate in rates] or [training]
    specs = [run_spec(task, model, training=t, **parts) for task in tasks for model in models for t in rated]
    return [spec.with_seed(seed) for spec in specs for seed in range(seeds)]


def _validation(task: Task, low: int, high: int) -> Bins:
    """Val0 has the training lengths, and Val1 somewhat longer ones if the task has such inputs.

    Val1 ends in the middle of Bin1, so that validation stays well below the lengths of Bin2 and Bin3.
    """
    bins = [Bin(name="Val0", low=low, high=high)]
    _, *longer_bins = task.bins(low, high)
    # Bin1 is missing where it would be empty; a task with names of its own has it in second place.
    second = [b for b in longer_bins if b.name == "Bin1"] or [b for b in longer_bins[:1] if "Bin" not in b.name]
    longer = [n for b in second for n in range(b.low, (b.low + b.high) // 2 + 1)]
    if any(n > high and task.fits(n) for n in longer):
        bins.append(Bin(name="Val1", low=longer[0], high=longer[-1]))
    return tuple(bins)
