"""Mixers and models of users and of other packages: a mixer in the shared skeleton, a Hugging Face model by its config.

They run in parallel alone: their state is unknown, so whatever needs one treats them as it treats `Foreign`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.errors import BadInput, in_one_line, suggestion
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import Linear
from assay.models.mixer import Mixer, MixerLayer
from assay.models.registry import PREFIXES
from assay.models.skeleton import LONGEST, Foreign, Model, Norm, Positions, Stack, foreign_seed, in_layers
from assay.models.source import source_digest
from assay.registry import import_path
from assay.rng import Rng

WIDTHS = ("width", "d_model", "hidden_size", "dim", "embed_dim", "n_embd", "d")  # names of a width, best first
MIXER, FLA, HUGGING_FACE = PREFIXES


def foreign_model(name: str, /, **options: Any) -> Foreign:
    """The description behind `mixer:module:Class`, `fla:Layer` or `hf:Model`."""
    prefix, _, rest = name.partition(":")
    if prefix == HUGGING_FACE:
        return HuggingFace.of_name(rest, **options)
    path = rest if prefix == MIXER else _fla_path(rest)
    return InSkeleton.around(import_path(path), path, name if prefix == FLA else path, **options)


def _fla_path(layer: str) -> str:
    """The path of a layer of flash-linear-attention."""
    layers = _package("fla.layers", "flash-linear-attention", "fla")
    if not inspect.isclass(getattr(layers, layer, None)):
        names = [name for name in dir(layers) if inspect.isclass(getattr(layers, name))]
        raise BadInput(f"flash-linear-attention has no layer '{layer}'{_nearest(layer, names, 'GatedDeltaNet')}")
    return f"fla.layers:{layer}"


def _nearest(name: str, valid: Sequence[str], example: str) -> str:
    """The nearest of hundreds of names, whatever their case, or else an example.

    >>> _nearest("gtp2", ["GPT2", "Llama"], "GPT2"), _nearest("x", ["GPT2"], "GPT2")
    ("; did you mean 'GPT2'?", '; one of them is GPT2')
    """
    by_letters = {each.lower(): each for each in valid}
    close = difflib.get_close_matches(name.lower(), by_letters, n=1)
    return f"; did you mean '{by_letters[close[0]]}'?" if close else f"; one of them is {example}"


def _package(module: str, package: str, extra: str) -> Any:
    """A module of an optional package; BadInput names the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and module.startswith(error.name or " ")
        reason = "is not installed" if missing else f"cannot be imported ({in_one_line(error)})"
        raise BadInput(f"{package} {reason}; install it with: pip install 'assay[{extra}]'") from None


def output_of(result: Any) -> Any:
    """The tensor that a module returns: alone, first in a tuple, or in an output of the Hugging Face style.

    >>> output_of((1, None)), output_of([2, 3]), output_of(4)
    (1, 2, 4)
    """
    for name in ("logits", "last_hidden_state"):
        if isinstance(value := getattr(result, name, None), Tensor):
            return value
    return result[0] if isinstance(result, (tuple, list)) and result else result


# -- a mixer in the shared skeleton ------------------------------------------------------------------------------------


def width_argument(factory: Callable[..., Any]) -> str:
    """The name of the argument that takes the width; empty for the first one, by position.

    >>> width_argument(lambda hidden_size, mode="chunk": None), width_argument(lambda size: None)
    ('hidden_size', '')
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return ""
    return next((name for name in WIDTHS if name in parameters), "")


def accepts(factory: Callable[..., Any], sizes: int, options: dict[str, Any]) -> bool:
    """Whether a factory can be called with so many sizes and with those of the options that it has."""
    try:
        signature = inspect.signature(factory)
        known = {name: options[name] for name in options if name in signature.parameters}
        name = width_argument(factory) if sizes == 1 else ""
        signature.bind(*[0] * (0 if name else sizes), **known | ({name: 0} if name else {}))
    except (TypeError, ValueError):
        return False
    return True


class ForeignMixer(Mixer):
    """A user's mixer: `path` names a class or function that takes a width; the module keeps [batch, time, width]."""

    path: str
    options: dict[str, Any] = Field(default_factory=dict)

    def build(self, width: int, rng: Rng) -> ForeignLayer:
        factory = import_path(self.path)
        with foreign_seed(rng):
            name = width_argument(factory)
            module = factory(**{name: width}, **self.options) if name else factory(width, **self.options)
        if not isinstance(module, nn.Module):
            raise BadInput(f"{self.path}({width}) is a {type(module).__name__}, not a torch.nn.Module")
        return ForeignLayer(module)


class ForeignLayer(MixerLayer):
    """A user's module as a mixer without a known state."""

    starts_at_zero: ClassVar[bool] = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        y = output_of(self.module(x))
        if not isinstance(y, Tensor) or y.shape != x.shape:
            given = f"shape {list(y.shape)}" if isinstance(y, Tensor) else f"a {type(y).__name__}"
            raise BadInput(
                f"{type(self.module).__qualname__} maps [batch, time, width] = {list(x.shape)} to {given}; "
                "a mixer gives the shape that it gets"
            )
        return y, None


class InSkeleton(Foreign):
    """A user's mixer in every layer of the skeleton that all mixers share; the fields are those of `Stack`."""

    kind: ClassVar[str] = "foreign-mixer"
    width: Annotated[int, Field(ge=1)] = 64
    layers: Annotated[int, Field(ge=1)] = 2
    ff: Annotated[int, Field(ge=0)] = 4
    norm: Norm = "pre"
    final_norm: bool = False
    positions: Positions = "none"
    longest: Annotated[int, Field(ge=1, le=2**20)] = LONGEST

    @classmethod
    def around(cls, factory: Callable[..., Any], path: str, name: str, **options: Any) -> InSkeleton:
        """The description of a class or function at a path; the options are those of the skeleton and its own."""
        sizes = {key: options.pop(key) for key in SKELETON if key in options}
        _require_options(factory, options, SKELETON)
        return cls(name=name, path=path, options=options, source=source_digest(factory), **sizes)

    @property
    def needs_gpu(self) -> bool:
        """Whether its kernels are written for GPUs alone."""
        return self.path.startswith("fla.")

    def stack(self) -> Stack:
        mixer = ForeignMixer(path=self.path, options=self.options)
        sizes = {name: getattr(self, name) for name in SKELETON if name != "layers"}
        return Stack(name=self.name, mixers=in_layers(mixer, self.layers), **sizes)

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        return WithoutState(self.stack().build(vocab, features, answers, rng))

    def check_length(self, longest: int) -> None:
        self.stack().check_length(longest)


SKELETON = ("width", "layers", "ff", "norm", "final_norm", "positions", "longest")


def _require_options(factory: Callable[..., Any], options: dict[str, Any], others: tuple[str, ...]) -> None:
    """BadInput for an option that neither a factory nor what is built around it has."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for option in options:
        if option not in parameters and not takes_any:
            name = getattr(factory, "__qualname__", repr(factory))
            raise BadInput(f"{name} has no option '{option}'{suggestion(option, (*parameters, *others))}")


class WithoutState(nn.Module):
    """A model whose state is unknown: logits from tokens, and nothing else."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)[0]
        return logits


# -- Hugging Face ------------------------------------------------------------------------------------------------------


class HuggingFace(Foreign):
    """A model of transformers with random weights, built from its config; a linear map reads the answers out.

    `path` names the class of the config, `options` are further fields of it. Nothing is downloaded.
    """

    kind: ClassVar[str] = "hugging-face"
    width: Annotated[int, Field(ge=1)] = 64
    layers: Annotated[int, Field(ge=1)] = 2
    heads: Annotated[int, Field(ge=1)] = 4

    @classmethod
    def of_name(cls, model: str, **options: Any) -> HuggingFace:
        """The description of `GPT2`, for which transformers has a class GPT2Config."""
        transformers, config = _package("transformers", "transformers", "hf"), f"{model}Config"
        if not hasattr(transformers, config):
            names = [name.removesuffix("Config") for name in dir(transformers) if name.endswith("Config")]
            raise BadInput(f"transformers has no model '{model}'{_nearest(model, names, 'GPT2')}")
        sizes = {key: options.pop(key) for key in ("width", "layers", "heads") if key in options}
        path = f"transformers:{config}"
        source = source_digest(getattr(transformers, config))
        return cls(name=f"{HUGGING_FACE}:{model}", path=path, options=options, source=source, **sizes)

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        models = _package("transformers", "transformers", "hf").AutoModel
        if features:
            raise BadInput(f"{self.name} reads tokens, not real numbers")
        with foreign_seed(rng):
            body = models.from_config(self._config(vocab))
        return HuggingFaceModel(body, initial.linear(rng.child("read_out"), self.width, answers))

    def _config(self, vocab: int) -> Any:
        """The config with small sizes; a field that this kind of model does not have is left out."""
        kind = import_path(self.path)
        names = {*inspect.signature(kind).parameters, *getattr(kind, "attribute_map", {})}
        sizes = {
            "vocab_size": vocab,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.width // self.heads,
            "intermediate_size": 4 * self.width,
        }
        special = {"use_cache": False, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
        return kind(**{name: size for name, size in sizes.items() if name in names} | special | self.options)


class HuggingFaceModel(nn.Module):
    """A model of transformers without its head, and a linear read-out."""

    def __init__(self, body: nn.Module, read_out: Linear) -> None:
        super().__init__()
        self.body, self.read_out = body, read_out
        self.takes_mask = "attention_mask" in inspect.signature(body.forward).parameters

    def forward(self, tokens: Tensor) -> Tensor:
        # Padding stands at the end, where no earlier output depends on it; without a mask, transformers warns.
        mask = {"attention_mask": torch.ones_like(tokens)} if self.takes_mask else {}
        logits: Tensor = self.read_out(output_of(self.body(input_ids=tokens, **mask)))
        return logits
