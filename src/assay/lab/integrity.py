"""The examination of a user's own module, before training and again before the test.

The output at a position may depend on the input up to that position alone: not on later tokens, padding included, and
not on other rows of the batch. So later tokens and other rows are changed, and the outputs are compared, in `eval` and
in `train` mode. Every call gets a new copy of the module and the same state of torch's random generators, so that
nothing is left behind and dropout draws the same numbers. Built-in models are not examined: tests cover them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from assay.errors import BadInput, in_one_line
from assay.lab.data import blank
from assay.lab.evaluate import CHUNK_PAIRS, logits_of
from assay.lab.stacking import build_module
from assay.models.foreign import InSkeleton
from assay.models.skeleton import Architecture, Stack
from assay.rng import Rng
from assay.spec import RunSpec
from assay.tasks.task import Task, columns

ROWS = 4  # of a batch: after a cut, half of them get other tokens, half get padding
SHORT = 8  # tokens of the shortest batch
# The largest relative change that may be rounding: a kernel may sum in another order, and an FFT rounds everywhere.
ROUNDING = 1024 * torch.finfo(torch.float32).eps
MODES = ("eval", "train")
SHRINKS = 1e-3  # a change by rounding shrinks at least so much in float64


class Position(NamedTuple):
    """A position of a row, both counted from 0."""

    row: int
    time: int


class Outputs(NamedTuple):
    """The logits of a call, and the states of the random generators after it."""

    logits: Float[Tensor, "rows time answers"]
    generators: list[Tensor]

    def drew_as_many_as(self, other: Outputs) -> bool:
        return all(map(torch.equal, self.generators, other.generators))


class NotComparable(Exception):
    """Why two calls cannot be compared."""


def is_built_in(model: Architecture) -> bool:
    """Whether a model is made of Assay's own parts alone."""
    return type(model) is Stack and all(type(mixer).__module__.startswith("assay.") for mixer in model.mixers)


def require_device(model: Architecture, device: torch.device) -> None:
    """Raise BadInput if a model cannot run on a device at all."""
    if device.type == "cpu" and isinstance(model, InSkeleton) and model.needs_gpu:
        raise BadInput(f"{model.name} has kernels for GPUs only; run it on a machine with a GPU, with --device cuda")


def examine_untrained(specs: Sequence[RunSpec], device: torch.device) -> None:
    """Raise BadInput if the module that these runs share cannot read their longest input, or is not causal."""
    spec = max(specs, key=_longest)
    if is_built_in(spec.model):
        return
    require_device(spec.model, device)
    module = build_module(spec, device)
    examiner = Examiner(module, spec, device)
    trained, longest = spec.task.lengths(*spec.training.lengths)[-1], _longest(spec)
    examiner.read(trained)  # an error here is not one of the length
    try:
        examiner.read(longest)
    except BadInput:
        raise
    except Exception as error:
        message = f"{spec.model.name} cannot read {longest:,} tokens, the longest input of this run"
        raise BadInput(f"{message}: {in_one_line(error)}") from error
    examiner.examine()


def examine(module: nn.Module, spec: RunSpec, device: torch.device, modes: Sequence[str] = MODES) -> str:
    """Raise BadInput if a user's own module is not causal; returns what could not be examined and why, or nothing."""
    return "" if is_built_in(spec.model) else Examiner(module, spec, device).examine(modes)


def _longest(spec: RunSpec) -> int:
    """The length of the longest input that a run may read."""
    return spec.task.lengths(1, spec.longest)[-1]


class Examiner:
    """Calls copies of one module, and compares their outputs."""

    def __init__(self, module: nn.Module, spec: RunSpec, device: torch.device) -> None:
        self.module, self.spec, self.device, self.name = module, spec, device, spec.model.name

    # -- calls ---------------------------------------------------------------------------------------------------------

    def read(self, length: int) -> None:
        """Read one input in `eval` mode; the logits must have the right shape."""
        self.call(self.inputs(length, rows=1), train=False)

    def inputs(self, length: int, rows: int = ROWS) -> Shaped[Tensor, "rows time *features"]:
        """Random inputs of the task, always the same ones."""
        rng = Rng.seeded(0, "examination", length, device=self.device).rows(rows)
        return self.spec.task.inputs(torch.full((rows,), length, device=self.device), rng)

    def call(self, inputs: Tensor, train: bool, dtype: torch.dtype | None = None) -> Outputs:
        """The outputs of a new copy, from the same random state as every call; `dtype` replaces its floating type."""
        module = self.copy().train(train)
        if dtype is not None:
            module, inputs = module.to(dtype), inputs.to(dtype) if inputs.is_floating_point() else inputs
        cuda = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.device] if cuda else []), torch.no_grad():
            logits = logits_of(module, inputs)
            self.check_shape(logits, inputs)
            generators = [torch.get_rng_state(), *([torch.cuda.get_rng_state(self.device)] if cuda else [])]
        return Outputs(logits, generators)

    def copy(self) -> nn.Module:
        """A copy of the module: of the object or, if that fails, a new one with the same parameters and buffers."""
        try:
            return copy.deepcopy(self.module)
        except Exception:  # it keeps a result of an earlier call, or an object that cannot be copied
            built = build_module(self.spec, self.device)
        for tensors in (nn.Module.named_parameters, nn.Module.named_buffers):
            trained = dict(tensors(self.module))
            for name, tensor in tensors(built):
                tensor.data.copy_(trained[name])
        return built

    def check_shape(self, logits: object, inputs: Tensor) -> None:
        expected = [*inputs.shape[:2], self.spec.task.shape.answers]
        right = f"logits [batch, time, answers] = {expected} for inputs {list(inputs.shape)}"
        if not isinstance(logits, Tensor):
            raise BadInput(f"{self.name} gives a {type(logits).__name__}; it should give {right}")
        if list(logits.shape) != expected or not logits.is_floating_point():
            raise BadInput(f"{self.name} gives {logits.dtype} of shape {list(logits.shape)}; it should give {right}")

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def examine(self, modes: Sequence[str] = MODES) -> str:
        """Compare outputs at several lengths; returns which modes could not be examined and why.

        The `train` mode is used at the lengths of training only.
        """
        skipped: dict[str, str] = {}
        lengths = _lengths(self.spec, self.device)
        trained = [length for length in lengths if length <= self.spec.width]
        cases = [(mode, length) for mode in modes for length in (lengths if mode == "eval" else trained)]
        for mode, length in cases:
            try:
                self._examine_batch(self.inputs(length), mode == "train")
            except (BadInput, torch.OutOfMemoryError):
                raise
            except Exception as error:  # training and testing report errors of the module
                why = str(error) if isinstance(error, NotComparable) else in_one_line(error)
                skipped.setdefault(mode, f"{mode} mode at {length} tokens: {why}")
        return "; ".join(skipped.values())

    def _examine_batch(self, inputs: Tensor, train: bool) -> None:
        """Raise BadInput if an output depends on another row, or on a later token of its own row."""
        expected = self.call(inputs, train)
        if (relative_change(expected, self.call(inputs, train)) > ROUNDING).any():
            raise NotComparable("two calls with the same input and the same random state differ")
        mode = " in train mode" if train else ""
        rows, length = inputs.shape[:2]
        row, time = torch.arange(rows, device=self.device)[:, None], columns(inputs)
        others = changed(self.spec.task, inputs)

        for parity in (0, 1):
            kept = (row % 2 == parity).expand(rows, length)
            if leak := self._leak(expected, inputs, replace(inputs, others, ~kept), kept, train):
                raise BadInput(
                    f"{self.name} depends on the other rows of its batch{mode}: changing them changes the output "
                    f"of row {leak.row} at position {leak.time}, counted from 0"
                )

        tails = replace(others, blank_like(self.spec.task, inputs), (row % 2 == 1).expand(rows, length))
        cuts = _cuts(length, self.device)

        def leak_from(first: int, row_: int) -> Position | None:
            """What changes before the cut if the tokens from `first` on, of one row, are replaced."""
            altered = replace(inputs, tails, (row == row_) & (time >= first))
            return self._leak(expected, inputs, altered, (row == row_) & (time < cuts), train)

        if leak := self._leak(expected, inputs, replace(inputs, tails, time >= cuts), time < cuts, train):
            which = leak.row
            token = _last(lambda first: leak_from(first, which) is not None, int(cuts[which]), length)
            seen = leak_from(token, which) or leak
            raise BadInput(
                f"{self.name} sees the future{mode}: changing token {token} changes the output at position "
                f"{seen.time}, counted from 0, in an input of {length} tokens"
            )

    def _leak(
        self, expected: Outputs, inputs: Tensor, altered: Tensor, compared: Bool[Tensor, "rows time"], train: bool
    ) -> Position | None:
        """The first compared position whose output changes with the input, by more than rounding."""
        actual = self.call(altered, train)
        if not actual.drew_as_many_as(expected):
            raise NotComparable("how many random numbers it draws depends on its input")
        changes = torch.where(compared, relative_change(expected, actual), 0.0)
        leaks = changes > ROUNDING
        if leaks.any():
            leaks &= leaks.cumsum(1) == 1  # the first of each row: a network may amplify rounding from there on
            leaks &= ~self._shrinks(changes, inputs, altered, train)
        return _earliest(leaks)

    def _shrinks(
        self, changes: Float[Tensor, "rows time"], inputs: Tensor, altered: Tensor, train: bool
    ) -> Bool[Tensor, "rows time"]:
        """Where changes nearly vanish in float64, so that they come from rounding; nowhere if the type is fixed."""
        try:
            exact = [self.call(x, train, torch.float64) for x in (inputs, altered)]
        except Exception:  # the module mixes its numbers with others of a fixed type
            return torch.zeros_like(changes, dtype=torch.bool)
        return relative_change(*exact) < SHRINKS * changes


def relative_change(first: Outputs, second: Outputs) -> Float[Tensor, "rows time"]:
    """The largest change of a logit at each position, relative to its own size and to the median size of all logits.

    Not to the largest logit: a module may mask answers with -1e9.
    """
    a, b = first.logits.double(), second.logits.double()
    sizes = torch.maximum(a.abs(), b.abs())
    finite = sizes[sizes.isfinite()]
    typical = finite.median() if len(finite) else sizes.new_zeros(())
    same = (a == b) | (a.isnan() & b.isnan())
    changes = (a - b).abs() / (sizes.nan_to_num(posinf=0.0) + typical)
    return torch.where(same, 0.0, changes.nan_to_num(nan=math.inf)).amax(-1)


def _earliest(found: Bool[Tensor, "rows time"]) -> Position | None:
    """The earliest position of any row that is found."""
    positions = found.T.nonzero()
    return Position(int(positions[0, 1]), int(positions[0, 0])) if len(positions) else None


def changed(task: Task, inputs: Shaped[Tensor, "rows time *features"]) -> Shaped[Tensor, "rows time *features"]:
    """Inputs in which every token is another one; real vectors are those of the next row."""
    if task.features:
        return inputs.roll(1, 0)
    symbols = len(task.symbols)
    if symbols == 1:
        return blank_like(task, inputs)
    rng = Rng.seeded(0, "changes", device=inputs.device).rows(len(inputs))
    shifts: Int[Tensor, "rows time"] = 1 + rng.integers(inputs.shape[1], symbols - 1)
    return (inputs - 1 + shifts) % symbols + 1


def blank_like(task: Task, inputs: Shaped[Tensor, "rows time *features"]) -> Shaped[Tensor, "rows time *features"]:
    """Padding in the shape of these inputs."""
    return blank(task, *inputs.shape[:2], device=inputs.device, dtype=inputs.dtype)


def replace(inputs: Tensor, others: Tensor, where: Bool[Tensor, "rows time"]) -> Tensor:
    """The inputs, with other tokens at some positions."""
    return torch.where(_like(where, inputs), others, inputs)


def _like(mask: Tensor, inputs: Tensor) -> Tensor:
    """A mask of rows and positions, for tokens or for real vectors."""
    return mask if inputs.ndim == 2 else mask[..., None]


def _cuts(length: int, device: torch.device) -> Int[Tensor, "rows 1"]:
    """The first changed position of each row: early, late, and between."""
    cuts = (1, length // 3, 2 * length // 3, length - 1)
    return torch.tensor([max(1, cut) for cut in cuts], device=device)[:, None]


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """A number from low to high - 1 at which something holds, but not at the next number; it holds at low, not at high.

    >>> _last(lambda n: n < 6, 2, 20)
    5
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _lengths(spec: RunSpec, device: torch.device) -> list[int]:
    """The lengths to examine: a short one, the longest of training, and the longest that is affordable."""
    affordable = math.isqrt(CHUNK_PAIRS[device.type] // ROWS)  # a module may hold a number for every pair of tokens
    fitting = spec.task.lengths(1, spec.longest)
    lengths = [length for length in fitting if length <= affordable] or fitting[:1]
    short = next((length for length in lengths if length >= SHORT), lengths[-1])
    trained = max((length for length in lengths if length <= spec.width), default=short)
    return sorted({short, trained, lengths[-1]})
