"""The residual stack that all mixers share: embedding, blocks of mixer and feed-forward, and a linear read-out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.description import Description
from assay.errors import BadInput, suggestion
from assay.models import initial
from assay.models.causal import Causal, State
from assay.models.dense import LayerNorm
from assay.models.mixer import Mixer, MixerLayer, positions_from
from assay.models.positions import PositionTable, Sinusoidal, check_table
from assay.models.registry import read_mixer
from assay.models.source import source_digest
from assay.numbers import read_format
from assay.registry import import_path
from assay.rng import Rng

LONGEST = 1024
Norm = Literal["pre", "post", "none", "carry"]
Positions = Literal["none", "sinusoidal", "learned"]
Mix = Callable[[Tensor, State], tuple[Tensor, State]]


class Architecture(Description):
    """A frozen description of a whole model. `build` makes the module; equal seeds give equal parameters."""

    name: str

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        """A module from tokens [batch, time] (or features [batch, time, features]) to logits."""
        raise NotImplementedError

    def check_length(self, longest: int) -> None:
        """Raise BadInput if the model cannot read inputs of this length."""


class StateChange(Description):
    """What happens to the state of a model before the first step and after every step.

    `numbers`: it is rounded to this format, as fixed:2.4, in training and in testing, and so is the initial state;
    gradients pass as if it were not.
    `noise`: while training, a number between -noise and noise is added to every number of the state. It is a chaotic
    function of that number, so that a run needs no random generator.
    """

    kind: ClassVar[str] = "state-change"
    numbers: str = ""
    noise: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _is_a_format(self) -> Self:
        if self.numbers:
            read_format(self.numbers)
        return self

    def apply(self, state: State, training: bool) -> State:
        """The changed state; positions, which are integers, stay."""
        form = read_format(self.numbers) if self.numbers else None

        def change(x: Tensor) -> Tensor:
            if not (x.is_floating_point() or x.is_complex()):
                return x
            y = x.detach()
            if self.noise and training:
                numbers = torch.view_as_real(y) if y.is_complex() else y
                numbers = numbers + self.noise * (2 * (numbers * 12345.678).remainder(1.0) - 1)
                y = torch.view_as_complex(numbers) if y.is_complex() else numbers
            y = form.round(y) if form else y
            return torch.where(x.isfinite(), x + (y - x.detach()), y)

        return pytree.tree_map(change, state)


class Stack(Architecture):
    """One mixer per layer, in any order, in one residual stream.

    `norm`: `pre` x + M(LN x); `post` LN(x + M x); `none` x + M x; `carry` LN(x) + M(x), as published for the SRWM.
    `ff`: hidden units of the feed-forward part as a multiple of the width; 0 for no such part.
    `state`: a change of the state after every step; the model then computes step by step, which is slow.
    `initial_scale`: the initial matrices of all mixers are multiplied by this number.
    """

    kind: ClassVar[str] = "stack"
    added: ClassVar[tuple[str, ...]] = ("state", "initial_scale")
    mixers: Annotated[tuple[Annotated[SerializeAsAny[Mixer], BeforeValidator(read_mixer)], ...], Field(min_length=1)]
    width: Annotated[int, Field(ge=1)] = 64
    ff: Annotated[int, Field(ge=0)] = 4
    norm: Norm = "pre"
    residual: bool = True
    final_norm: bool = False
    positions: Positions = "none"
    longest: Annotated[int, Field(ge=1, le=2**20)] = LONGEST  # the number of learned positions
    state: StateChange | None = None
    initial_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for mixer in self.mixers:
            mixer.check(self.width)
        if self.positions != "learned" and self.longest != LONGEST:
            raise ValueError("longest is the size of a table of learned positions; set positions to learned")
        return self

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> Model:
        return Model(self, vocab, features, answers, rng)

    def check_length(self, longest: int) -> None:
        if self.positions == "learned":
            check_table(self.longest, longest)


def in_layers(mixer: Mixer, layers: int) -> tuple[Mixer, ...]:
    """The same mixer in every layer, for the `mixers` of a Stack."""
    if type(layers) is not int or layers < 1:
        raise BadInput(f"layers = {layers!r} is not valid: at least 1")
    return (mixer,) * layers


class Stream(NamedTuple):
    """The residual stream as a sum that is not yet computed: a norm computes it in the same kernel."""

    x: Tensor
    addend: Tensor | None = None


def total_of(stream: Stream) -> Tensor:
    return stream.x if stream.addend is None else stream.x + stream.addend


def norm_of(stream: Stream, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The norm of the sum, and the sum."""
    if stream.addend is not None and isinstance(norm, LayerNorm):
        return norm.of_sum(stream.x, stream.addend)
    total = total_of(stream)
    return norm(total), total


class Block(Causal):
    """One layer: a mixer, then a feed-forward part, each with a residual connection and a norm."""

    def __init__(self, description: Stack, mixer: Mixer, rng: Rng) -> None:
        super().__init__()
        width, self.norm, self.residual = description.width, description.norm, description.residual
        self.mixer: MixerLayer = mixer.build(width, rng.child("mixer"))
        self.mixer_norm = nn.Identity() if self.norm == "none" else LayerNorm(width)
        self.ff: nn.Module | None = None
        if description.ff:
            hidden = description.ff * width
            self.ff_norm = nn.Identity() if self.norm == "none" else LayerNorm(width)
            self.ff = nn.Sequential(
                initial.linear(rng.child("ff", 1), width, hidden, relu=True),
                initial.linear(rng.child("ff", 2), hidden, width),
            )

    def initial_state(self, batch: int) -> State:
        return self.mixer.initial_state(batch)

    def run(self, stream: Stream, state: State, mix: Mix) -> tuple[Stream, State]:
        """From stream to stream: its last addition is left to whoever needs the sum, often a norm."""
        if self.norm in ("post", "none"):
            return self._run_post(total_of(stream), state, mix)
        n, x = norm_of(stream, self.mixer_norm)
        y, state = mix(n if self.norm == "pre" else x, state)
        stream = self._add(x if self.norm == "pre" else n, y)
        if self.ff is not None:
            n, x = norm_of(stream, self.ff_norm)
            stream = self._add(x, self.ff(n))
        return stream, state

    def _run_post(self, x: Tensor, state: State, mix: Mix) -> tuple[Stream, State]:
        y, state = mix(x, state)
        stream = self._add(x, y)
        if self.norm == "post":
            stream = Stream(norm_of(stream, self.mixer_norm)[0])
        if self.ff is not None:
            x = total_of(stream)
            stream = self._add(x, self.ff(x))
            if self.norm == "post":
                stream = Stream(norm_of(stream, self.ff_norm)[0])
        return stream, state

    def _add(self, x: Tensor, y: Tensor) -> Stream:
        return Stream(x, y) if self.residual else Stream(y)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        stream, state = self.run(Stream(x), state, self.mixer.step)
        return total_of(stream), state

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        stream, state = self.run(Stream(x), state, self.mixer)
        return total_of(stream), state

    def state_floats(self, length: int) -> int:
        return self.mixer.state_floats(length)


class Model(Causal):
    """A module from tokens (or real-valued features) to logits. Its state is (position, states of the blocks)."""

    def __init__(self, description: Stack, vocab: int, features: int, answers: int, rng: Rng) -> None:
        super().__init__()
        width = description.width
        self.embed = (
            initial.linear(rng.child("embed"), features, width)
            if features
            else initial.embedding(rng.child("embed"), vocab, width)
        )
        self.positions: nn.Module | None = None
        if description.positions == "sinusoidal":
            self.positions = Sinusoidal()
        elif description.positions == "learned":
            self.positions = PositionTable(description.longest, width, rng.child("positions"))
        self.blocks = nn.ModuleList(
            Block(description, mixer, rng.child("block", i)) for i, mixer in enumerate(description.mixers)
        )
        self.final_norm = LayerNorm(width) if description.final_norm else nn.Identity()
        self.read_out = initial.linear(rng.child("read_out"), width, answers)
        self.check_length, self.state_change = description.check_length, description.state
        if description.initial_scale != 1:
            for block in self.blocks:
                initial.scale_matrices(block.mixer, description.initial_scale)  # type: ignore[arg-type]

    def _position(self, number: int) -> Tensor:
        return torch.full((), number, dtype=torch.int64, device=self.read_out.weight.device)

    def initial_state(self, batch: int) -> State:
        states = tuple(block.initial_state(batch) for block in self.blocks)  # type: ignore[operator]
        if self.state_change and self.state_change.numbers:
            states = self.state_change.apply(states, training=False)
        return self._position(0), states

    def _embed(self, x: Tensor, start: Tensor | None) -> Tensor:
        """Embed x [batch, time, ...], whose first position is `start`, or 0: None avoids a read from the device."""
        embedded: Tensor = self.embed(x)
        if self.positions is None:
            return embedded
        self.check_length((0 if start is None else int(start)) + x.shape[1])
        first = self._position(0) if start is None else start
        with_positions: Tensor = self.positions(embedded, positions_from(first, x.shape[1]))
        return with_positions

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        start, states = state
        h, after = self._run_blocks(self._embed(x[:, None], start)[:, 0], states, "step")
        if self.state_change:
            after = self.state_change.apply(after, self.training)
        return self.read_out(h), (start + 1, after)

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        if self.state_change:
            return super().forward(x, state)
        start, states = (None, (None,) * len(self.blocks)) if state is None else state
        h, after = self._run_blocks(self._embed(x, start), states, "forward")
        return self.read_out(h), (self._position(x.shape[1]) if start is None else start + x.shape[1], after)

    def _run_blocks(self, x: Tensor, states: State, method: Literal["step", "forward"]) -> tuple[Tensor, State]:
        """All blocks and the final norm, on one moment or on several."""
        stream, after = Stream(x), []
        for block, state in zip(self.blocks, states, strict=True):
            assert isinstance(block, Block)
            stream, new_state = block.run(stream, state, getattr(block.mixer, method))
            after.append(new_state)
        return norm_of(stream, self.final_norm)[0], tuple(after)

    def state_floats(self, length: int) -> int:
        return sum(block.state_floats(length) for block in self.blocks)  # type: ignore[operator]


class Foreign(Architecture):
    """A user's module: `path` names a class or function that takes (vocab, features, answers, **options).

    The module gives logits [batch, time, answers], alone or first in a tuple. Its output at a position depends on the
    input up to that position, and on no other row of the batch; `lab.integrity` examines this before training and
    before testing. `source` is a digest of the file that defines it and of everything that this file imports.
    """

    kind: ClassVar[str] = "foreign"
    path: str
    options: dict[str, Any] = Field(default_factory=dict)
    source: str = ""

    @classmethod
    def of(cls, factory: Callable[..., nn.Module], /, **options: Any) -> Foreign:
        """The description of an importable class or function."""
        path = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"
        try:
            parameters = inspect.signature(factory).parameters
            importable = import_path(path) is factory
        except (BadInput, ValueError, TypeError):
            importable = False
        if not importable:
            raise BadInput(f"{factory!r} cannot be imported as {path}; a model is a class or function of a module")
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        for option in options:
            if option not in parameters and not takes_any:
                raise BadInput(f"{factory.__qualname__} has no option '{option}'{suggestion(option, parameters)}")
        return cls(name=path, path=path, options=options, source=source_digest(factory))

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        factory = import_path(self.path)
        with foreign_seed(rng):
            module: nn.Module = factory(vocab, features, answers, **self.options)
        return module


@contextmanager
def foreign_seed(rng: Rng) -> Iterator[None]:
    """PyTorch's random generator, seeded for the code of a user, and as it was afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(int(rng.child("foreign").words(1)[0]))
        yield
