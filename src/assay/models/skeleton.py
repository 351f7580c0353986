"""The one shared residual stack: embedding, blocks of mixer and feed-forward, and a linear read-out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from assay.description import BadInput, Description, digest, suggestion
from assay.models import initial
from assay.models.causal import Causal, State
from assay.models.dense import LayerNorm
from assay.models.mixer import Mixer, MixerLayer, places
from assay.models.positions import Learned, Sinusoidal, check_learned
from assay.models.registry import read_mixer
from assay.registry import import_path
from assay.rng import Rng

LONGEST = 1024
Norm = Literal["pre", "post", "none", "carry"]
Mix = Callable[[Tensor, State], tuple[Tensor, State]]


class Architecture(Description):
    """A frozen description of a whole model. `build` makes the machine; equal seeds make equal machines."""

    name: str

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        """A module from tokens [batch, time] (or features [batch, time, features]) to logits."""
        raise NotImplementedError

    def check_length(self, longest: int) -> None:
        """Raise BadInput where the model cannot read inputs of this length."""


class Stack(Architecture):
    """Mixers in any order, one per layer, in one residual stream.

    `norm`: `pre` x + M(LN x); `post` LN(x + M x); `none` x + M x; `carry` LN(x) + M(x), as published for the SRWM.
    `ff`: hidden units of the feed-forward part as a multiple of the width, 0 for none.
    """

    kind: ClassVar[str] = "stack"
    mixers: Annotated[tuple[Annotated[SerializeAsAny[Mixer], BeforeValidator(read_mixer)], ...], Field(min_length=1)]
    width: Annotated[int, Field(ge=1)] = 64
    ff: Annotated[int, Field(ge=0)] = 4
    norm: Norm = "pre"
    residual: bool = True
    final_norm: bool = False
    positions: Literal["none", "sinusoidal", "learned"] = "none"
    longest: Annotated[int, Field(ge=1, le=2**20)] = LONGEST  # of a learned table

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
            check_learned(self.longest, longest)


class Block(Causal):
    """One layer: a mixer, then a feed-forward part, each with its residual connection and norm."""

    def __init__(self, made_of: Stack, mixer: Mixer, rng: Rng) -> None:
        super().__init__()
        width, self.norm, self.residual = made_of.width, made_of.norm, made_of.residual
        self.mixer: MixerLayer = mixer.build(width, rng.child("mixer"))
        self.mixer_norm = nn.Identity() if self.norm == "none" else LayerNorm(width)
        self.ff: nn.Module | None = None
        if made_of.ff:
            hidden = made_of.ff * width
            self.ff_norm = nn.Identity() if self.norm == "none" else LayerNorm(width)
            self.ff = nn.Sequential(
                initial.linear(rng.child("ff", 1), width, hidden, relu=True),
                initial.linear(rng.child("ff", 2), hidden, width),
            )

    def initial_state(self, batch: int) -> State:
        return self.mixer.initial_state(batch)

    def _run(self, x: Tensor, state: State, mix: Mix) -> tuple[Tensor, State]:
        inside = self.mixer_norm(x) if self.norm == "pre" else x
        y, state = mix(inside, state)
        if self.residual:
            y = (self.mixer_norm(x) if self.norm == "carry" else x) + y
        x = self.mixer_norm(y) if self.norm == "post" else y
        if self.ff is not None:
            y = self.ff(self.ff_norm(x) if self.norm in ("pre", "carry") else x)
            y = x + y if self.residual else y
            x = self.ff_norm(y) if self.norm == "post" else y
        return x, state

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self._run(x, state, self.mixer.step)

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        return self._run(x, state, self.mixer)

    def state_floats(self, length: int) -> int:
        return self.mixer.state_floats(length)


class Model(Causal):
    """Tokens (or real features) to logits. Its state is (position, the blocks' states)."""

    def __init__(self, made_of: Stack, vocab: int, features: int, answers: int, rng: Rng) -> None:
        super().__init__()
        width = made_of.width
        self.embed = (
            initial.linear(rng.child("embed"), features, width)
            if features
            else initial.embedding(rng.child("embed"), vocab, width)
        )
        self.positions: nn.Module | None = None
        if made_of.positions == "sinusoidal":
            self.positions = Sinusoidal()
        elif made_of.positions == "learned":
            self.positions = Learned(made_of.longest, width, rng.child("positions"))
        self.blocks = nn.ModuleList(
            Block(made_of, mixer, rng.child("block", i)) for i, mixer in enumerate(made_of.mixers)
        )
        self.final_norm = LayerNorm(width) if made_of.final_norm else nn.Identity()
        self.read_out = initial.linear(rng.child("read_out"), width, answers)
        self.check_length = made_of.check_length

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.int64, device=self.read_out.weight.device)

    def initial_state(self, batch: int) -> State:
        return self._zero(), tuple(block.initial_state(batch) for block in self.blocks)  # type: ignore[operator]

    def _embed(self, x: Tensor, start: Tensor, begins: bool = False) -> Tensor:
        """x [batch, time, ...] embedded, from position `start` on; that it is 0 need not be asked where it begins."""
        embedded: Tensor = self.embed(x)
        if self.positions is None:
            return embedded
        self.check_length((0 if begins else int(start)) + x.shape[1])
        placed: Tensor = self.positions(embedded, places(start, x.shape[1]))
        return placed

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        start, states = state
        h, after = self._embed(x[:, None], start)[:, 0], []
        for block, before in zip(self.blocks, states, strict=True):
            h, new = block.step(h, before)  # type: ignore[operator]
            after.append(new)
        return self.read_out(self.final_norm(h)), (start + 1, tuple(after))

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        start, states = (self._zero(), (None,) * len(self.blocks)) if state is None else state
        h, after = self._embed(x, start, begins=state is None), []
        for block, before in zip(self.blocks, states, strict=True):
            h, new = block(h, before)
            after.append(new)
        return self.read_out(self.final_norm(h)), (start + x.shape[1], tuple(after))

    def state_floats(self, length: int) -> int:
        return sum(block.state_floats(length) for block in self.blocks)  # type: ignore[operator]


class Foreign(Architecture):
    """Anybody's module: `path` names a class or function that takes (vocab, features, answers, **options).

    It maps tokens to logits [batch, time, answers], alone or first in a tuple. Its source is part of the digest.
    """

    kind: ClassVar[str] = "foreign"
    path: str
    options: dict[str, Any] = Field(default_factory=dict)
    source: str = ""

    @classmethod
    def of(cls, factory: Callable[..., nn.Module], /, **options: Any) -> Foreign:
        """The description of a class or function that can be imported."""
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
        try:
            source = digest(inspect.getsource(factory))
        except (OSError, TypeError):  # typed at a prompt: there is no source to look at
            source = ""
        return cls(name=path, path=path, options=options, source=source)

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        factory = import_path(self.path)
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.child("foreign").words(1)[0]))
            module: nn.Module = factory(vocab, features, answers, **self.options)
        return module
