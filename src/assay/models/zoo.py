"""Every named model as a recipe for one stack.

`paper` is what the authors' published code computes, quirks included: each model with its own feature map, norm and
reading order. `controlled` puts every mixer into the same skeleton (pre-norm, feed-forward, no biases in projections),
with the same feature map (softmax) and the same reading order (after the write), so that the update rule is the only
thing that differs. The models of other papers have only one convention here: pre-norm in the shared skeleton.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from assay.description import BadInput, suggestion
from assay.models.attention import Attention
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
from assay.models.skeleton import Norm, Stack
from assay.models.srwm import Srwm

Convention = Literal["paper", "controlled"]
Reading = Literal["before", "after"]
Positions = Literal["none", "sinusoidal", "learned", "rotary"]


def _paper(convention: str) -> bool:
    return _one_of("convention", convention, get_args(Convention)) == "paper"


def _one_of(name: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise BadInput(f"{name} = {value!r} is not valid{suggestion(str(value), valid)}")
    return value


def _layers(mixer: Mixer, layers: int) -> tuple[Mixer, ...]:
    if type(layers) is not int or layers < 1:
        raise BadInput(f"layers = {layers!r} is not valid: at least 1")
    return (mixer,) * layers


def transformer(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm | None = None,
    positions: Positions = "none",
    longest: int = 1024,
    convention: Convention = "paper",
) -> Stack:
    """Paper: post-norm, biases, a final norm, no positions."""
    paper = _paper(convention)
    _one_of("positions", positions, get_args(Positions))
    return Stack(
        name="transformer",
        mixers=_layers(Attention(heads=heads, bias=paper, rotary=positions == "rotary"), layers),
        width=width,
        ff=ff,
        norm=("post" if paper else "pre") if norm is None else norm,
        final_norm=paper,
        positions="none" if positions == "rotary" else positions,
        longest=longest,
    )


def linear_transformer(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    features: FeatureMap | None = None,
    gated: bool = False,
    convention: Convention = "paper",
) -> Stack:
    """Paper: elu(z) + 1, every write with full strength; `gated`, with one in (0, 1) that the token decides."""
    usual: FeatureMap = "elu" if _paper(convention) else "softmax"
    features = usual if features is None else features
    mixers = _layers(LinearAttention(heads=heads, features=features, gated=gated), layers)
    return Stack(name="linear-transformer", mixers=mixers, width=width, ff=ff, norm=norm)


def delta_net(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    features: FeatureMap | None = None,
    beta: Literal[1, 2] = 1,
    reading: Reading = "after",
    convention: Convention = "paper",
) -> Stack:
    """Paper: elu(z) + 1 made to sum to 1, beta in (0, 1), read after the write."""
    usual: FeatureMap = "elu-sum" if _paper(convention) else "softmax"
    features = usual if features is None else features
    mixers = _layers(DeltaRule(heads=heads, features=features, beta=beta, reading=reading), layers)
    return Stack(name="delta-net", mixers=mixers, width=width, ff=ff, norm=norm)


def delta_net_signed(width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre") -> Stack:
    """Beta in (0, 2) and signed unit-length keys: transitions reach the reflections."""
    mixers = _layers(DeltaRule(heads=heads, features="unit", beta=2), layers)
    return Stack(name="delta-net-signed", mixers=mixers, width=width, ff=ff, norm=norm)


def delta_product(
    width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre", steps: int = 2
) -> Stack:
    """`steps` signed delta steps per token: products of reflections."""
    mixers = _layers(DeltaRule(heads=heads, features="unit", beta=2, steps=steps), layers)
    return Stack(name="delta-product", mixers=mixers, width=width, ff=ff, norm=norm)


def recurrent_delta(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    additive: bool = False,
    convention: Convention = "paper",
) -> Stack:
    """Both conventions agree: softmax features, pre-norm, read after the write. Additive: feedback alone."""
    _paper(convention)
    mixers = _layers(RecurrentDelta(heads=heads, additive=additive), layers)
    return Stack(name="recurrent-delta", mixers=mixers, width=width, ff=ff, norm=norm)


def srwm(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm | None = None,
    reading: Reading | None = None,
    fixed: str = "",
    q_scale: float = 0.01,
    b_mean: float = -1.0,
    convention: Convention = "paper",
) -> Stack:
    """Paper: the mixer sees the un-normed stream, the norm is carried beside it, and y is read before the write.

    Parts that are `fixed` (letters of yqkb) do not modify themselves; `q_scale` and `b_mean` say how W_q and w_b begin.
    """
    paper = _paper(convention)
    if reading is None:
        reading = "before" if paper else "after"
    return Stack(
        name="srwm",
        mixers=_layers(Srwm(heads=heads, reading=reading, fixed=fixed, q_scale=q_scale, b_mean=b_mean), layers),
        width=width,
        ff=ff,
        norm=("carry" if paper else "pre") if norm is None else norm,
    )


def _recurrent(name: str, mixer: Mixer, width: int | None, layers: int | None, convention: str) -> Stack:
    """Paper: an embedding of 128 numbers, one layer and the read-out, with nothing around them."""
    if _paper(convention):
        mixers = _layers(mixer, 1 if layers is None else layers)
        bare: dict[str, Any] = {"ff": 0, "norm": "none", "residual": False}
        return Stack(name=name, mixers=mixers, width=128 if width is None else width, **bare)
    return Stack(
        name=name,
        mixers=_layers(mixer, 2 if layers is None else layers),
        width=64 if width is None else width,
    )


def lstm(width: int | None = None, layers: int | None = None, convention: Convention = "paper") -> Stack:
    """Long short-term memory."""
    return _recurrent("lstm", Lstm(), width, layers, convention)


def elementwise_lstm(width: int | None = None, layers: int | None = None, convention: Convention = "paper") -> Stack:
    """The LSTM with element-wise recurrence."""
    return _recurrent("e-lstm", ElementwiseLstm(), width, layers, convention)


def elman(
    width: int | None = None,
    layers: int | None = None,
    activation: Literal["tanh", "relu"] = "tanh",
    convention: Convention = "paper",
) -> Stack:
    """The plain recurrent network."""
    return _recurrent("elman", Elman(activation=activation), width, layers, convention)


def gru(width: int | None = None, layers: int | None = None, convention: Convention = "paper") -> Stack:
    """The gated recurrent unit."""
    return _recurrent("gru", Gru(), width, layers, convention)


def retnet(width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre") -> Stack:
    """Retention in the shared skeleton."""
    mixers = _layers(Retention(heads=heads), layers)
    return Stack(name="retnet", mixers=mixers, width=width, ff=ff, norm=norm)


def dss(width: int = 64, layers: int = 2, states: int = 16, ff: int = 0, norm: Norm = "pre") -> Stack:
    """Diagonal state-space layers; their own gated output map takes the place of a feed-forward part."""
    mixers = _layers(DiagonalSsm(states=states), layers)
    return Stack(name="dss", mixers=mixers, width=width, ff=ff, norm=norm)


def mamba(width: int = 64, layers: int = 2, states: int = 16, ff: int = 0, norm: Norm = "pre") -> Stack:
    """Selective state-space layers without feed-forward part, and a final norm."""
    mixers = _layers(SelectiveSsm(states=states), layers)
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
