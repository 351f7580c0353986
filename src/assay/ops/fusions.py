"""What models compute around the recurrences, as operators: several plain operations in one kernel on a GPU.

Their shapes are those of the models: sequences are [batch, time, ...]. On a CPU, and under torch.compile, which fuses
plain operations by itself, they run as the plain operations.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from assay.errors import BadInput
from assay.ops.dispatch import FUSIONS, Backend, call, define
from assay.ops.layers import layer_norm_step
from assay.ops.operator import Operator
from assay.ops.products import per_row

__all__ = ["add_norm", "cross_entropy", "embedding", "gate", "head_norm", "qkv", "qkvb"]

HEAD_EPS = 1e-5
ACTIVATIONS = ("silu", "sigmoid")
IGNORE = -100  # a target that is not counted
FEATURES = ("elu", "elu-sum", "softmax", "unit", "identity")


# -- a residual connection and the norm after it -------------------------------------------------------------------


def add_norm_step(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The layer norm of s = x + y, and s: x, y [batch, heads, time, dim], w, b [groups, heads, dim]."""
    s = x + y
    return *layer_norm_step(s, w, b), s


ADD_NORM = define(
    Operator(
        "add_norm",
        add_norm_step,
        inputs={"x": "B H T D", "y": "B H T D", "w": "G H D", "b": "G H D"},
        outputs={"n": "B H T D", "s": "B H T D"},
        kernels={"gpu": 1},
        fusible=True,
    ),
    FUSIONS,
)


def add_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor, *, backend: Backend = "auto") -> tuple[Tensor, Tensor]:
    """The layer norm of s = x + y with w and b [groups, heads, dim], and s."""
    n, s = call(ADD_NORM, x, y, w, b, backend=backend)
    return n, s


# -- queries, keys and values of every head ------------------------------------------------------------------------


def feature_map(name: str, z: Tensor) -> Tensor:
    """`elu`: elu(z) + 1. `elu-sum`: the same, divided by its sum. `softmax`. `unit`: z / |z|. `identity`."""
    if name == "elu":
        return F.elu(z) + 1
    if name == "elu-sum":
        positive = (F.elu(z) + 1).contiguous()  # on a CPU, sums and quotients of strided rows take three times as long
        return positive / positive.sum(-1, keepdim=True)
    if name == "softmax":
        return z.softmax(-1)
    if name == "unit":
        return F.normalize(z, dim=-1)
    return z


def qkv_step(z: Tensor, heads: int, features: str) -> tuple[Tensor, Tensor, Tensor]:
    """z [batch, time, 3 width] holds q, k and v of all heads, in this order."""
    q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in z.chunk(3, -1))
    return feature_map(features, q), feature_map(features, k), v


def qkvb_step(z: Tensor, heads: int, features: str, sigmoid: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z [batch, time, 3 width + heads] holds q, k, v and beta of all heads, in this order."""
    width = z.shape[-1] - heads
    beta = z[..., width:].transpose(1, 2)
    return *qkv_step(z[..., :width], heads, features), beta.sigmoid() if sigmoid else beta


_HEADS = {"q": "B H T D", "k": "B H T D", "v": "B H T D"}
QKV = define(
    Operator(
        "qkv",
        qkv_step,
        inputs={"z": "B T O"},
        outputs=_HEADS,
        kernels={"gpu": 0},
        flags={"heads": 1, "features": "identity"},
        fusible=True,
    ),
    FUSIONS,
)
QKVB = define(
    Operator(
        "qkvb",
        qkvb_step,
        inputs={"z": "B T O"},
        outputs=_HEADS | {"beta": "B H T"},
        kernels={"gpu": 0},
        flags={"heads": 1, "features": "identity", "sigmoid": False},
        fusible=True,
    ),
    FUSIONS,
)


def qkv(
    z: Tensor, *, heads: int = 1, features: str = "identity", backend: Backend = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v [batch, heads, time, dim] from z [batch, time, 3 heads dim]; `features` maps q and k."""
    _check_heads("qkv", z, heads, features, 0)
    q, k, v = call(QKV, z, heads=heads, features=features, backend=backend)
    return q, k, v


def qkvb(
    z: Tensor, *, heads: int = 1, features: str = "identity", sigmoid: bool = False, backend: Backend = "auto"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`qkv`, and beta [batch, heads, time] from the last entries of z [batch, time, 3 heads dim + heads]."""
    _check_heads("qkvb", z, heads, features, heads)
    q, k, v, beta = call(QKVB, z, heads=heads, features=features, sigmoid=sigmoid, backend=backend)
    return q, k, v, beta


def _check_heads(name: str, z: Tensor, heads: int, features: str, others: int) -> None:
    if features not in FEATURES:
        raise BadInput(f"{name}: unknown features {features!r}; expected one of {', '.join(FEATURES)}")
    width = z.shape[-1] - others
    if width < 1 or width % (3 * heads):
        raise BadInput(f"{name}: z has shape {list(z.shape)}; expected a multiple of 3 x {heads} entries and {others}")


# -- a gate --------------------------------------------------------------------------------------------------------


def gate_step(x: Tensor, z: Tensor) -> tuple[Tensor]:
    return (x * z.sigmoid(),)


GATE = define(
    Operator(
        "gate",
        gate_step,
        inputs={"x": "B T D", "z": "B T D"},
        outputs={"y": "B T D"},
        kernels={"gpu": 0},
        fusible=True,
    ),
    FUSIONS,
)


def gate(x: Tensor, z: Tensor, *, backend: Backend = "auto") -> Tensor:
    """x sigmoid(z), element by element."""
    (y,) = call(GATE, x, z, backend=backend)
    return y


# -- the norm of every head's output, with a gate ------------------------------------------------------------------


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    """x / rms(x) along the last axis, times w."""
    return x * (x.square().mean(-1, keepdim=True) + HEAD_EPS).rsqrt() * w


def head_norm_step(o: Tensor, z: Tensor, w: Tensor, activation: str) -> tuple[Tensor]:
    """rms-norm(o) per head, joined to [batch, time, heads dim], times silu(z) or sigmoid(z)."""
    y = rms_norm(o, per_row(w, len(o))[:, None, None]).transpose(1, 2).flatten(2)
    return (y * (F.silu(z) if activation == "silu" else z.sigmoid()),)


HEAD_NORM = define(
    Operator(
        "head_norm",
        head_norm_step,
        inputs={"o": "B H T D", "z": "B T O", "w": "G D"},
        outputs={"y": "B T O"},
        kernels={"gpu": 0},
        flags={"activation": "silu"},
        fusible=True,
    ),
    FUSIONS,
)


def head_norm(o: Tensor, z: Tensor, w: Tensor, *, activation: str = "silu", backend: Backend = "auto") -> Tensor:
    """o / rms(o) of every head [batch, heads, time, dim] times w [groups, dim], joined, times the activation of z
    [batch, time, heads dim]."""
    if activation not in ACTIVATIONS:
        raise BadInput(f"head_norm: unknown activation {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    if o.ndim == 4 and z.shape[-1] != o.shape[1] * o.shape[3]:
        expected = f"{o.shape[1]} heads of {o.shape[3]}"
        raise BadInput(f"head_norm: z has {z.shape[-1]} entries; expected {o.shape[1] * o.shape[3]}, {expected}")
    (y,) = call(HEAD_NORM, o, z, w, activation=activation, backend=backend)
    return y


# -- the two ends of a model ---------------------------------------------------------------------------------------


def embedding_step(tokens: Tensor, W: Tensor) -> tuple[Tensor]:
    """The rows of W [groups, tokens, dim] that the tokens [batch, time] of each group name."""
    rows = per_row(W, len(tokens))
    return (rows.gather(1, tokens[..., None].expand(*tokens.shape, W.shape[-1])),)


EMBEDDING = define(
    Operator(
        "embedding",
        embedding_step,
        inputs={"tokens": "B T", "W": "G N D"},
        outputs={"y": "B T D"},
        kernels={"gpu": 0},
        integers=("tokens",),
        fusible=True,
    ),
    FUSIONS,
)


def embedding(tokens: Tensor, W: Tensor, *, backend: Backend = "auto") -> Tensor:
    """The rows of W [groups, vocabulary, dim] that the tokens [batch, time] name."""
    (y,) = call(EMBEDDING, tokens, W, backend=backend)
    return y


def cross_entropy_step(logits: Tensor, targets: Tensor) -> tuple[Tensor]:
    """The mean over the targets of a row; 0 where all are IGNORE."""
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return (losses.view(targets.shape).sum(1) / (targets != IGNORE).sum(1).clamp(min=1),)


CROSS_ENTROPY = define(
    Operator(
        "cross_entropy",
        cross_entropy_step,
        inputs={"logits": "B T N", "targets": "B T"},
        outputs={"loss": "B"},
        kernels={"gpu": 1},
        integers=("targets",),
        fusible=True,
    ),
    FUSIONS,
)


def cross_entropy(logits: Tensor, targets: Tensor, *, backend: Backend = "auto") -> Tensor:
    """The mean cross-entropy [batch] of logits [batch, time, classes] over the targets [batch, time] of a row.

    A target of IGNORE is not counted; a row without any other has a loss of 0.
    """
    (loss,) = call(CROSS_ENTROPY, logits, targets, backend=backend)
    return loss
