"""Every named model, as a function that gives a `Stack`.

The convention `paper` is exactly what the authors' published code computes: each model with its own feature map, norm
and reading order. `controlled` puts every mixer into the same skeleton (pre-norm, feed-forward, no biases in
projections), with the same feature map (softmax) and the same reading order (after the write), so that only the update
rule differs. Models of other papers have one convention: pre-norm in the shared skeleton.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from assay.errors import BadInput, suggestion
from assay.models.attention import Attention, TrainedWeighting
from assay.models.delta_rule import DeltaRule
from assay.models.diagonal import DiagonalSsm
from assay.models.elementwise_lstm import ElementwiseLstm
from assay.models.features import FeatureMap
from assay.models.linear_attention import LinearAttention
from assay.models.mamba import SelectiveSsm
from assay.models.mixer import Mixer
from assay.models.recurrent_delta import RecurrentDelta
from assay.models.retention import Retention
from assay.models.rnn import Elman, Gru, Lstm
from assay.models.skeleton import Norm, Stack, in_layers
from assay.models.srwm import Srwm

Convention = Literal["paper", "controlled"]
Reading = Literal["before", "after"]
Positions = Literal["none", "sinusoidal", "learned", "rotary", "alibi"]


@dataclass(frozen=True)
class ByConvention:
    """A default value that depends on the convention; a recipe decorated with `conventions` gets the value."""

    paper: Any
    controlled: Any

    def __str__(self) -> str:
        return f"{self.paper} (paper), {self.controlled} (controlled)"


def by_convention(paper: Any, controlled: Any) -> Any:
    """A default value that depends on the convention, typed so that any option can have it."""
    return ByConvention(paper, controlled)


TRANSFORMER_NORM = by_convention(paper="post", controlled="pre")
LINEAR_FEATURES = by_convention(paper="elu", controlled="softmax")
DELTA_FEATURES = by_convention(paper="elu-sum", controlled="softmax")
SRWM_NORM = by_convention(paper="carry", controlled="pre")
SRWM_READING = by_convention(paper="before", controlled="after")
RNN_WIDTH = by_convention(paper=128, controlled=64)
RNN_LAYERS = by_convention(paper=1, controlled=2)


def conventions(recipe: Callable[..., Stack]) -> Callable[..., Stack]:
    """Check a recipe's option `convention`, and replace missing options by their defaults in that convention."""
    signature = inspect.signature(recipe)
    defaults = {p.name: p.default for p in signature.parameters.values() if isinstance(p.default, ByConvention)}

    @functools.wraps(recipe)
    def stack(*args: Any, **options: Any) -> Stack:
        arguments = signature.bind(*args, **options).arguments
        convention = _one_of("convention", arguments.get("convention", "paper"), get_args(Convention))
        missing = {name: getattr(default, convention) for name, default in defaults.items()}
        chosen = {name: value for name, value in arguments.items() if value is not None or name not in defaults}
        return recipe(**missing | chosen)

    return stack


def _one_of(name: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise BadInput(f"{name} = {value!r} is not valid{suggestion(str(value), valid)}")
    return value


@conventions
def transformer(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = TRANSFORMER_NORM,
    positions: Positions = "none",
    longest: int = 1024,
    weighting: TrainedWeighting = "softmax",
    convention: Convention = "paper",
) -> Stack:
    """Paper: post-norm, biases, a final norm, no positions."""
    paper = convention == "paper"
    _one_of("positions", positions, get_args(Positions))
    return Stack(
        name="transformer",
        mixers=in_layers(
            Attention(
                heads=heads,
                bias=paper,
                rotary=positions == "rotary",
                alibi=positions == "alibi",
                weighting=weighting,
            ),
            layers,
        ),
        width=width,
        ff=ff,
        norm=norm,
        final_norm=paper,
        positions="none" if positions == "rotary" or positions == "alibi" else positions,
        longest=longest,
    )


@conventions
def linear_transformer(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    features: FeatureMap = LINEAR_FEATURES,
    gated: bool = False,
    convention: Convention = "paper",
) -> Stack:
    """Paper: features elu(z) + 1, writes without a gate. If `gated`, each token computes the strength of its write."""
    mixers = in_layers(LinearAttention(heads=heads, features=features, gated=gated), layers)
    return Stack(name="linear-transformer", mixers=mixers, width=width, ff=ff, norm=norm)


@conventions
def delta_net(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    features: FeatureMap = DELTA_FEATURES,
    beta: Literal[1, 2] = 1,
    reading: Reading = "after",
    convention: Convention = "paper",
) -> Stack:
    """Paper: features elu(z) + 1 divided by their sum, beta in (0, 1), read after the write."""
    mixers = in_layers(DeltaRule(heads=heads, features=features, beta=beta, reading=reading), layers)
    return Stack(name="delta-net", mixers=mixers, width=width, ff=ff, norm=norm)


def delta_net_signed(width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre") -> Stack:
    """Beta in (0, 2) and signed keys of unit length: transitions can be reflections."""
    mixers = in_layers(DeltaRule(heads=heads, features="unit", beta=2), layers)
    return Stack(name="delta-net-signed", mixers=mixers, width=width, ff=ff, norm=norm)


def delta_product(
    width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre", steps: int = 2
) -> Stack:
    """`steps` signed delta steps per token: transitions are products of reflections."""
    mixers = in_layers(DeltaRule(heads=heads, features="unit", beta=2, steps=steps), layers)
    return Stack(name="delta-product", mixers=mixers, width=width, ff=ff, norm=norm)


@conventions
def recurrent_delta(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    additive: bool = False,
    convention: Convention = "paper",
) -> Stack:
    """Both conventions are the same: softmax features, pre-norm, read after the write.

    If `additive`, the update is additive instead of the delta rule.
    """
    mixers = in_layers(RecurrentDelta(heads=heads, additive=additive), layers)
    return Stack(name="recurrent-delta", mixers=mixers, width=width, ff=ff, norm=norm)


@conventions
def srwm(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = SRWM_NORM,
    reading: Reading = SRWM_READING,
    fixed: str = "",
    q_scale: float = 0.01,
    b_mean: float = -1.0,
    convention: Convention = "paper",
) -> Stack:
    """A weight matrix that modifies itself at every token.

    As published (`convention=paper`), a layer M computes LN(x) + M(x) (`norm=carry`), and its output is read before the
    matrix is modified. `fixed` lists parts that are not modified, as letters of yqkb (W_y, W_q, W_k, w_b). `q_scale`
    scales the initial W_q, and `b_mean` is the mean of the initial w_b. With `convention=controlled`, all models have
    the same norm and reading order.
    """
    mixer = Srwm(heads=heads, reading=reading, fixed=fixed, q_scale=q_scale, b_mean=b_mean)
    return Stack(name="srwm", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


def _recurrent(name: str, mixer: Mixer, width: int, layers: int, convention: Convention) -> Stack:
    """Paper: an embedding, recurrent layers and the read-out, without feed-forward parts, norms and residuals."""
    mixers = in_layers(mixer, layers)
    if convention == "paper":
        return Stack(name=name, mixers=mixers, width=width, ff=0, norm="none", residual=False)
    return Stack(name=name, mixers=mixers, width=width)


@conventions
def lstm(width: int = RNN_WIDTH, layers: int = RNN_LAYERS, convention: Convention = "paper") -> Stack:
    """Long short-term memory."""
    return _recurrent("lstm", Lstm(), width, layers, convention)


@conventions
def elementwise_lstm(width: int = RNN_WIDTH, layers: int = RNN_LAYERS, convention: Convention = "paper") -> Stack:
    """The LSTM with element-wise recurrence."""
    return _recurrent("e-lstm", ElementwiseLstm(), width, layers, convention)


@conventions
def elman(
    width: int = RNN_WIDTH,
    layers: int = RNN_LAYERS,
    activation: Literal["tanh", "relu"] = "tanh",
    convention: Convention = "paper",
) -> Stack:
    """The plain recurrent network."""
    return _recurrent("elman", Elman(activation=activation), width, layers, convention)


@conventions
def gru(width: int = RNN_WIDTH, layers: int = RNN_LAYERS, convention: Convention = "paper") -> Stack:
    """The gated recurrent unit."""
    return _recurrent("gru", Gru(), width, layers, convention)


def retnet(width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre") -> Stack:
    """Retention in the shared skeleton."""
    mixers = in_layers(Retention(heads=heads), layers)
    return Stack(name="retnet", mixers=mixers, width=width, ff=ff, norm=norm)


def dss(width: int = 64, layers: int = 2, states: int = 16, ff: int = 0, norm: Norm = "pre") -> Stack:
    """Diagonal state-space layers; they have a gated output map instead of a feed-forward part."""
    mixers = in_layers(DiagonalSsm(states=states), layers)
    return Stack(name="dss", mixers=mixers, width=width, ff=ff, norm=norm)


def mamba(width: int = 64, layers: int = 2, states: int = 16, ff: int = 0, norm: Norm = "pre") -> Stack:
    """Selective state-space layers without feed-forward parts, and a final norm."""
    mixers = in_layers(SelectiveSsm(states=states), layers)
    return Stack(name="mamba", mixers=mixers, width=width, ff=ff, norm=norm, final_norm=True)


def hybrid(
    mixers: tuple[Any, ...] = ("delta-rule", "attention"),
    width: int = 64,
    ff: int = 4,
    norm: Norm = "pre",
    positions: Literal["none", "sinusoidal", "learned"] = "none",
    longest: int = 1024,
) -> Stack:
    """Mixers in any order, each by name or as {"kind": name, option: value, ...}."""
    return Stack(name="hybrid", mixers=mixers, width=width, ff=ff, norm=norm, positions=positions, longest=longest)
