"""Named models of 2024 to 2026 outside of the form of `linear_zoo`: see docs/models.md.

The conventions are those of `linear_zoo`: `paper` has the paper's convolution, norm and gate around the recurrence,
`controlled` the recurrence alone.
"""

from __future__ import annotations

from typing import Literal

from assay.models.forgetting_attention import ForgettingAttention
from assay.models.linear_zoo import GATED, NORMED, WINDOW
from assay.models.m2rnn import M2rnn
from assay.models.mamba3 import Mamba3
from assay.models.path_attention import PathAttention
from assay.models.pd_ssm import PdSsm
from assay.models.skeleton import Norm, Stack, in_layers
from assay.models.slstm import Slstm
from assay.models.stick_breaking import StickBreaking
from assay.models.switches import Output
from assay.models.zoo import Convention, by_convention, conventions

PATH_WINDOW = by_convention(paper=3, controlled=0)


@conventions
def slstm(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    convolution: int = WINDOW,
    output: Literal["plain", "norm"] = NORMED,
    convention: Convention = "paper",
) -> Stack:
    """Layers of sLSTM, the part of xLSTM that is recurrent."""
    mixers = in_layers(Slstm(heads=heads, convolution=convolution, output=output), layers)
    return Stack(name="slstm", mixers=mixers, width=width, ff=ff, norm=norm)


@conventions
def m2rnn(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    convolution: int = WINDOW,
    unit: bool = False,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """A recurrent network whose state is a matrix per head."""
    mixers = in_layers(M2rnn(heads=heads, convolution=convolution, unit=unit, output=output), layers)
    return Stack(name="m2rnn", mixers=mixers, width=width, ff=ff, norm=norm)


def pd_ssm(
    width: int = 64,
    layers: int = 2,
    states: int | None = None,
    dictionary: int = 8,
    ff: int = 4,
    norm: Norm = "pre",
) -> Stack:
    """Transitions are one-hot columns times a complex diagonal, with as many states as the width unless given."""
    mixers = in_layers(PdSsm(states=states, dictionary=dictionary), layers)
    return Stack(name="pd-ssm", mixers=mixers, width=width, ff=ff, norm=norm)


def mamba_3(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    states: int = 16,
    rotated: float = 0.5,
    ff: int = 4,
    norm: Norm = "pre",
) -> Stack:
    """Selective state-space layers with rotations and a trapezoidal write, and feed-forward parts between them."""
    mixers = in_layers(Mamba3(heads=heads, states=states, rotated=rotated), layers)
    return Stack(name="mamba-3", mixers=mixers, width=width, ff=ff, norm=norm, final_norm=True)


def forgetting_transformer(width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre") -> Stack:
    """Softmax attention with forget gates, without positions."""
    mixers = in_layers(ForgettingAttention(heads=heads), layers)
    return Stack(name="forgetting-transformer", mixers=mixers, width=width, ff=ff, norm=norm)


def stick_breaking(width: int = 64, heads: int = 4, layers: int = 2, ff: int = 4, norm: Norm = "pre") -> Stack:
    """Stick-breaking attention, without positions."""
    mixers = in_layers(StickBreaking(heads=heads), layers)
    return Stack(name="stick-breaking", mixers=mixers, width=width, ff=ff, norm=norm)


@conventions
def path(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    convolution: int = PATH_WINDOW,
    convention: Convention = "paper",
) -> Stack:
    """Softmax attention with products of Householder-like matrices as positions."""
    mixers = in_layers(PathAttention(heads=heads, convolution=convolution), layers)
    return Stack(name="path", mixers=mixers, width=width, ff=ff, norm=norm)
