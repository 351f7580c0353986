"""Theorem 4's protocol as a program: two parties that each hold some of the tokens compute one layer of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from assay.models.attention import AttentionLayer
from assay.models.mixer import split_heads
from assay.models.skeleton import Block, Model

SLACK = 1e-9  # float64, in which both parties compute, is this much coarser than real numbers, as a share of a value


class Scale(NamedTuple):
    """Numbers k 2^-fraction with k between -2^(bits - 1) and 2^(bits - 1) - 1, or from 0 on if `unsigned`."""

    bits: int
    fraction: int
    unsigned: bool = False

    @property
    def unit(self) -> float:
        return 2.0**-self.fraction

    def fits(self, codes: Int[Tensor, "*shape"]) -> bool:
        least, end = (0, 1 << self.bits) if self.unsigned else (-1 << self.bits - 1, 1 << self.bits - 1)
        return bool((codes >= least).all() and (codes < end).all())


def scale_for(largest: float, bits: int) -> Scale:
    """The finest signed numbers of so many bits that reach from -`largest` to `largest`.

    >>> scale_for(3.0, 8)
    Scale(bits=8, fraction=5, unsigned=False)
    """
    return Scale(bits, bits - 1 - math.ceil(math.log2(max(largest, 2.0**-8) * (1 + 2.0 ** (2 - bits)))))


class Channel:
    """What one party sends to the other: whole numbers of so many bits. It counts the bits of one input."""

    def __init__(self) -> None:
        self.bits, self.overflow = 0, False

    def send(self, x: Float[Tensor, "rows *shape"], scale: Scale, up: bool = False) -> Float[Tensor, "rows *shape"]:
        """What arrives: the nearest number of the scale, or the next larger one."""
        codes = (x / scale.unit).ceil() if up else (x / scale.unit).round()
        self.bits += x[0].numel() * scale.bits
        self.overflow |= not scale.fits(codes.long())
        return codes.long().double() * scale.unit


@dataclass(frozen=True)
class Scales:
    """How the numbers of each message are written: p bits each, and p + floor(log2 N) for a sum of exponentials.

    Both parties know the weights, so they know how large each number can be.
    """

    precision: int
    token: Scale
    logit: Scale
    total: Scale
    value: Scale

    @property
    def rounding(self) -> float:
        """The most by which a number of a head can differ from the layer's.

        The largest logit is rounded up, and the sum of exponentials is taken relative to the rounded one, so only the
        sums and the means are off: a sum of at least exp(-unit) by half a unit, a mean by half a unit.
        """
        share = self.total.unit / 2 * math.exp(self.logit.unit)
        largest = 2.0 ** (self.precision - 1) * self.value.unit
        return self.value.unit / 2 + largest * share / (1 - share) + SLACK * largest


@torch.no_grad()
def agree_on_scales(model: Model, tokens: int, symbols: int, precision: int) -> Scales:
    """The scales for inputs of so many tokens, from the weights alone.

    The vectors of symbols and positions become numbers of p bits, as Theorem 4 has them, so a token is sent exactly.
    """
    every = torch.arange(1, symbols + 1).repeat(tokens, 1).T, torch.arange(tokens)
    token = scale_for(float(embedded(model, *every).abs().max()), precision)
    for table in [model.embed.weight, *([] if model.positions is None else model.positions.parameters())]:
        table.copy_((table / token.unit).round() * token.unit)
    q, k, v = projected(model, embedded(model, *every))
    largest_logit = float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) * layer_of(model).dim ** -0.5
    return Scales(
        precision,
        token=token,
        logit=scale_for(largest_logit, precision),
        total=Scale(precision + math.floor(math.log2(tokens)), precision - 1, unsigned=True),
        value=scale_for(float(v.abs().max()), precision),
    )


class Summary(NamedTuple):
    """What a party says about its tokens, for every head."""

    logit: Float[Tensor, "rows heads"]  # the largest, rounded up
    total: Float[Tensor, "rows heads"]  # the sum of exp(logit - the largest)
    mean: Float[Tensor, "rows heads dim"]  # of the values, weighted by these


class Party:
    """One of the two: it sees its own tokens and what it is sent, and knows all weights."""

    def __init__(
        self, model: Model, tokens: Int[Tensor, "rows some"], at: Int[Tensor, "some"], channel: Channel
    ) -> None:
        self.model, self.channel = model, channel
        self.x = embedded(model, tokens, at)

    def send_last(self, scales: Scales) -> Float[Tensor, "rows width"]:
        return self.channel.send(self.x[:, -1], scales.token)

    def send_summary(self, last: Float[Tensor, "rows width"], scales: Scales) -> Summary:
        q, _, _ = projected(self.model, last[:, None])
        _, k, v = projected(self.model, self.x)
        scores = (q @ k.mT)[:, :, 0] * layer_of(self.model).dim ** -0.5
        logit = self.channel.send(scores.amax(-1), scales.logit, up=True)
        weights = (scores - logit[..., None]).exp()
        total = weights.sum(-1)
        mean = (weights[..., None] * v).sum(2) / total[..., None]
        return Summary(logit, self.channel.send(total, scales.total), self.channel.send(mean, scales.value))


class Outcome(NamedTuple):
    """What the parties know at the end: the heads' outputs and the logits at the last token, and the bits sent."""

    heads: Float[Tensor, "rows heads dim"]
    logits: Float[Tensor, "rows answers"]
    bits: int
    overflow: bool


@torch.no_grad()
def run_protocol(
    model: Model, tokens: Int[Tensor, "rows time"], first: Bool[Tensor, "time"], scales: Scales
) -> Outcome:
    """The logits of a model with one layer of attention at the last token, by two parties.

    `first` marks the tokens of one of them. Who holds the last token sends its vector; then each sends, for every head,
    its largest logit, its sum of exponentials and its mean of values.
    """
    channel, at = Channel(), torch.arange(tokens.shape[1])
    parties = [Party(model, tokens[:, mine], at[mine], channel) for mine in (first, ~first)]
    last = parties[0 if first[-1] else 1].send_last(scales)
    heads = combined(*(party.send_summary(last, scales) for party in parties))
    return Outcome(heads, finished(model, last, heads), channel.bits, channel.overflow)


def combined(one: Summary, other: Summary) -> Float[Tensor, "rows heads dim"]:
    """The mean of all values, from the two parties' summaries."""
    top = torch.maximum(one.logit, other.logit)
    parts = [summary.total * (summary.logit - top).exp() for summary in (one, other)]
    weighted = parts[0][..., None] * one.mean + parts[1][..., None] * other.mean
    return weighted / (parts[0] + parts[1])[..., None]


def bits_allowed(model: Model, tokens: int, precision: int) -> float:
    """d p + H (2 m p + 4 p + 2 log2 N): the bits that the lean protocol may send.

    `one_layer` solves this for the width.
    """
    layer, p = layer_of(model), precision
    width = layer.out.out_features
    return width * p + layer.heads * (2 * layer.dim * p + 4 * p + 2 * math.log2(tokens))


# -- a model with one layer of attention -------------------------------------------------------------------------------


def layer_of(model: Model) -> AttentionLayer:
    layer = block_of(model).mixer
    assert isinstance(layer, AttentionLayer)
    return layer


def block_of(model: Model) -> Block:
    (block,) = model.blocks
    assert isinstance(block, Block)
    return block


def embedded(model: Model, tokens: Int[Tensor, "rows some"], at: Int[Tensor, "some"]) -> Float[Tensor, "rows some d"]:
    x: Tensor = model.embed(tokens)
    return x if model.positions is None else model.positions(x, at)


def projected(model: Model, x: Float[Tensor, "rows some d"]) -> tuple[Tensor, ...]:
    """The queries, keys and values of every head."""
    layer, block = layer_of(model), block_of(model)
    normed = block.mixer_norm(x) if block.norm == "pre" else x
    return tuple(split_heads(part, layer.heads) for part in layer.project(normed).chunk(3, -1))


def finished(
    model: Model, last: Float[Tensor, "rows width"], heads: Float[Tensor, "rows heads dim"]
) -> Float[Tensor, "rows answers"]:
    """What follows the heads at the last token, which each party computes alone."""
    block = block_of(model)
    assert block.norm in ("none", "pre")
    x: Tensor = last + layer_of(model).out(heads.flatten(1))
    if block.ff is not None:
        x = x + block.ff(block.ff_norm(x))
    logits: Tensor = model.read_out(model.final_norm(x))
    return logits


@torch.no_grad()
def direct(model: Model, tokens: Int[Tensor, "rows time"]) -> tuple[Tensor, Tensor]:
    """The heads' outputs and the logits at the last token, by a step of the model.

    The cache before it has the keys and values of the other tokens: with one layer, these depend on no attention.
    """
    before, heads = tokens.shape[1] - 1, []
    _, k, v = projected(model, embedded(model, tokens[:, :-1], torch.arange(before)))
    hook = layer_of(model).out.register_forward_pre_hook(lambda _, inputs: heads.append(inputs[0]))
    logits, _ = model.step(tokens[:, -1], (torch.tensor(before), ((k, v),)))
    hook.remove()
    return heads[0].view(len(tokens), layer_of(model).heads, -1), logits
