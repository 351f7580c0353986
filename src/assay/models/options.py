"""What each option of a named model means, in one line for `assay show`; an option means the same in every model."""

from __future__ import annotations

OPTIONS = {
    "width": "numbers per token between two layers",
    "heads": "heads of a layer; each has an equal part of the width",
    "layers": "how many layers",
    "ff": "hidden units of a layer's feed-forward part, as a multiple of the width; 0: no such part",
    "norm": "pre: x + M(LN x); post: LN(x + M x); carry: LN(x) + M(x); none: x + M x",
    "convention": "paper: as in the authors' code; controlled: the same skeleton for all models",
    "positions": "how positions are encoded: none, sinusoidal or learned; for the transformer also rotary or alibi",
    "longest": "how many positions are learned, with positions=learned",
    "weighting": "how attention weighs: softmax, hard, average-hard, sigmoid or linear",
    "features": "keys and queries of a projection z: elu, elu-sum, softmax, unit (z / |z|) or identity",
    "gated": "whether each token computes the strength of its write",
    "additive": "whether updates are added, in place of the delta rule",
    "decays": "whether the state decays before a token's writes",
    "beta": "a write has a strength between 0 and this: 1 or 2",
    "reading": "whether the memory is read before or after the write",
    "fixed": "parts that do not modify themselves, as letters of yqkb (W_y, W_q, W_k, w_b)",
    "q_scale": "scales the initial W_q",
    "b_mean": "the mean of the initial w_b",
    "activation": "tanh or relu",
    "states": "numbers of the state per channel; of pd-ssm in all, and as many as the width unless given",
    "steps": "delta steps per token",
    "convolution": "the window of a causal convolution per channel, with silu, before the recurrence; 0: none",
    "unit": "whether queries and keys are divided by their length",
    "output": "of a head: plain; norm, divided by its root mean square; gated, this times a gate of the input",
    "shift": "whether projections see a mixture of the input and the one before",
    "dictionary": "matrices that a transition is chosen from",
    "rotated": "the share of a key's entries that are rotated, from 0 to 1",
    "mixers": 'the mixer of each layer, by name or as {"kind": name, option: value, ...}',
    "initial_scale": "the initial matrices of the mixers are multiplied by this",
    "state": (
        """a change of the state after every step, which is slow: '{"numbers":"fixed:2.4"}' rounds it (in these """
        """quotes), '{"noise":0.1}' adds noise in training"""
    ),
}
