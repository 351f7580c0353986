"""Named models of 2023 to 2026 whose state is a matrix with a linear recurrence: see docs/models.md.

The convention `paper` puts around the recurrence what the paper does: a short convolution, q and k of length 1, a
gated norm. `controlled` is the recurrence alone, with q and k of length 1 where the transition needs it. The rest of
both is the shared skeleton: pre-norm, and a feed-forward part.
"""

from __future__ import annotations

from typing import Literal

from assay.models.gated_delta import ChannelDelta, GatedDelta
from assay.models.gated_linear import GatedLinearAttention, Hgrn2
from assay.models.mamba2 import Mamba2
from assay.models.mlstm import Mlstm
from assay.models.rwkv7 import Rwkv7
from assay.models.skeleton import Norm, Stack, in_layers
from assay.models.switches import Output
from assay.models.zoo import Convention, by_convention, conventions

WINDOW = by_convention(paper=4, controlled=0)
GATED = by_convention(paper="gated", controlled="plain")
NORMED = by_convention(paper="norm", controlled="plain")
SHIFT = by_convention(paper=True, controlled=False)


@conventions
def gated_delta_net(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    beta: Literal[1, 2] = 1,
    convolution: int = WINDOW,
    unit: bool = True,
    output: Output = GATED,
    decays: bool = True,
    convention: Convention = "paper",
) -> Stack:
    """The delta rule with one decay per head and token; with `beta` = 2, transitions can be reflections."""
    mixer = GatedDelta(heads=heads, beta=beta, convolution=convolution, unit=unit, output=output, decays=decays)
    return Stack(name="gated-delta-net", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


@conventions
def gated_delta_product(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    steps: int = 2,
    beta: Literal[1, 2] = 2,
    convolution: int = WINDOW,
    unit: bool = True,
    output: Output = GATED,
    decays: bool = True,
    convention: Convention = "paper",
) -> Stack:
    """`steps` delta steps per token, after one decay per head."""
    mixer = GatedDelta(
        heads=heads, beta=beta, steps=steps, convolution=convolution, unit=unit, output=output, decays=decays
    )
    return Stack(name="gated-delta-product", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


@conventions
def kimi_delta_attention(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    beta: Literal[1, 2] = 1,
    convolution: int = WINDOW,
    unit: bool = True,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """The delta rule with a decay per key."""
    mixer = ChannelDelta(heads=heads, beta=beta, convolution=convolution, unit=unit, output=output)
    return Stack(name="kda", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


@conventions
def gated_delta_net_2(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    beta: Literal[1, 2] = 1,
    convolution: int = WINDOW,
    unit: bool = True,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """A decay per key, with an erase gate per key (in (0, `beta`)) and a write gate per value."""
    mixer = ChannelDelta(heads=heads, beta=beta, gates=2, convolution=convolution, unit=unit, output=output)
    return Stack(name="gated-delta-net-2", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


@conventions
def rwkv_7(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    shift: bool = SHIFT,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """A generalised delta rule; it has a token shift in place of a convolution. No value residual across layers."""
    mixer = Rwkv7(heads=heads, shift=shift, output=output)
    return Stack(name="rwkv-7", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


@conventions
def mamba_2(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    states: int = 16,
    ff: int = 0,
    norm: Norm = "pre",
    convolution: int = WINDOW,
    unit: bool = False,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """State-space layers with one decay per head, without feed-forward parts, and a final norm."""
    mixer = Mamba2(heads=heads, states=states, convolution=convolution, unit=unit, output=output)
    mixers = in_layers(mixer, layers)
    return Stack(name="mamba-2", mixers=mixers, width=width, ff=ff, norm=norm, final_norm=True)


@conventions
def gla(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    convolution: int = 0,
    unit: bool = False,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """Linear attention with a decay per key that the token computes."""
    mixer = GatedLinearAttention(heads=heads, convolution=convolution, unit=unit, output=output)
    return Stack(name="gla", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)


@conventions
def hgrn_2(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    output: Output = NORMED,
    convention: Convention = "paper",
) -> Stack:
    """A forget gate per key whose complement is the key; in layer l of L it is at least l / L."""
    mixer = Hgrn2(heads=heads, output=output)
    mixers = [m.model_copy(update={"lowest": i / layers}) for i, m in enumerate(in_layers(mixer, layers))]
    return Stack(name="hgrn-2", mixers=tuple(mixers), width=width, ff=ff, norm=norm)


@conventions
def mlstm(
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    ff: int = 4,
    norm: Norm = "pre",
    convolution: int = 0,
    unit: bool = False,
    output: Output = GATED,
    convention: Convention = "paper",
) -> Stack:
    """The matrix LSTM of xLSTM: an exponential input gate, a forget gate, a normaliser."""
    mixer = Mlstm(heads=heads, convolution=convolution, unit=unit, output=output)
    return Stack(name="mlstm", mixers=in_layers(mixer, layers), width=width, ff=ff, norm=norm)
