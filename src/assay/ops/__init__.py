"""The recurrences as functions on tensors, and two ops that have no state.

Inputs are [batch, heads, time, dim], weights [groups, heads, ...] with the batch a multiple of the groups; a state left
out is zero. Each returns (outputs, final state); `affine` and `layer_norm` return outputs alone. With `backend="auto"`
the kernel of the tensors' device runs where there is one, then the parallel form in PyTorch, then the fold of the plain
step; `chosen` says which.
float32 and float64; bfloat16 inputs keep a float32 state.
"""

from __future__ import annotations

import importlib.util
import math
import os
from functools import lru_cache
from typing import Literal, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from assay.description import BadInput, suggestion
from assay.ops import chunked, folds
from assay.ops.fused import FUSED
from assay.ops.rules import LIMIT, RULES, Like, state_dtype

Backend = Literal["auto", "reference", "chunked", "cpu", "gpu"]
BACKENDS = get_args(Backend)
PARALLEL = tuple(name for name, rule in RULES.items() if rule.parallel)
NEEDS = {"cpu": "numba", "gpu": "triton"}  # the library that a kernel backend is written with

Sequence = Float[Tensor, "batch heads time dim"]
Gate = Float[Tensor, "batch heads time"]
FastWeight = Float[Tensor, "batch heads value key"]
Vector = Float[Tensor, "batch heads dim"]


def chosen(op: str, backend: Backend, device: torch.device, size: int = 1) -> str:
    """The backend that an op runs with on a device at a head size; BadInput if the one asked for cannot.

    Without a kernel, scans on a CPU are folded step by step: doubling moves many times the memory and is slower there.
    What torch.compile fuses as well as a kernel does, it is given plain.
    """
    if backend not in BACKENDS:
        raise BadInput(f"unknown backend {backend!r}{suggestion(str(backend), BACKENDS)}")
    if backend != "auto":
        if why_not := _unavailable(op, backend, device, size):
            raise BadInput(why_not)
        return backend
    kernel = "gpu" if device.type == "cuda" else device.type
    fuses = RULES[op].plain and torch.compiler.is_compiling()
    if kernel in NEEDS and not fuses and not _unavailable(op, kernel, device, size):
        return kernel
    scan_on_cpu = op.endswith("_scan") and device.type == "cpu"
    return "chunked" if RULES[op].parallel and not scan_on_cpu else "reference"


def _unavailable(op: str, backend: str, device: torch.device, size: int) -> str | None:
    """Why an op cannot run with a backend."""
    rule = RULES[op]
    if backend == "chunked":
        return None if rule.parallel else f"{op} has no chunked form; its backends are: {_backends(op)}"
    if backend not in NEEDS:
        return None
    if backend not in rule.saved:
        return f"{op} has no {backend} kernel; its backends are: {_backends(op)}"
    if not _installed(NEEDS[backend]):
        return f"backend {backend!r} needs {NEEDS[backend]}, which is not installed; backend='auto' does without"
    wanted = "cuda" if backend == "gpu" and not _interpreted() else "cpu"
    if device.type != wanted:
        return f"backend {backend!r} takes {wanted} tensors and these are on {device}; move them or use backend='auto'"
    if backend == "gpu" and size > LIMIT:
        return f"{op}: the gpu kernel takes head sizes from 1 to {LIMIT} and this is {size}; use backend='reference'"
    return None


def _backends(op: str) -> str:
    rule = RULES[op]
    return ", ".join(["auto", "reference", *(["chunked"] if rule.parallel else []), *sorted(rule.saved)])


def _interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


INSTALLED = {library: importlib.util.find_spec(library) is not None for library in NEEDS.values()}


def _installed(library: str) -> bool:
    return INSTALLED[library]


@lru_cache(4096)  # the same shapes come again and again
def _checked(op: str, *inputs: Like) -> int:
    """The head size of inputs; BadInput if they do not fit together."""
    rule = RULES[op]
    given = dict(zip(rule.inputs, inputs, strict=True))
    rule.check(given)
    return rule.size(given)


def _run(op: str, backend: Backend, given: dict[str, Tensor], **flags: bool) -> tuple[Tensor, ...]:
    """Check what is given, and run it."""
    first = next(iter(given.values()))
    size = _checked if not torch.compiler.is_compiling() else _checked.__wrapped__
    runs = chosen(op, backend, first.device, size(op, *(Like(x.shape, x.dtype, x.device) for x in given.values())))
    if runs == "gpu":
        return FUSED[op, runs](given, **flags)
    wide = {name: x.to(state_dtype(x.dtype)) for name, x in given.items()}  # only the gpu kernels read bfloat16
    if runs == "cpu":
        output, *states = FUSED[op, runs](wide, **flags)
    else:
        output, *states = getattr(chunked if runs == "chunked" else folds, op)(*wide.values(), **flags)
    return output.to(first.dtype), *states


def _zeros(like: Tensor, *shape: int) -> Tensor:
    return like.new_zeros(shape, dtype=state_dtype(like.dtype))


def _fast_weight(W: Tensor | None, k: Tensor, v: Tensor) -> Tensor:
    return _zeros(v, *v.shape[:2], *v.shape[-1:], *k.shape[-1:]) if W is None else W


def _named(op: str, argument: str, tensors: tuple[Tensor, ...], *names: str) -> dict[str, Tensor]:
    if len(tensors) != len(names):
        raise BadInput(f"{op}: {argument} has {len(tensors)} tensors; expected {len(names)} ({', '.join(names)})")
    return dict(zip(names, tensors, strict=True))


def _last(outputs: Tensor) -> Tensor:
    """The final state of a rule whose outputs are its states."""
    return outputs[:, :, -1].to(state_dtype(outputs.dtype))


def linear_attention(
    q: Sequence, k: Sequence, v: Sequence, W: FastWeight | None = None, *, backend: Backend = "auto"
) -> tuple[Sequence, FastWeight]:
    """W' = W + v k^T, o = W' q."""
    o, W = _run("linear_attention", backend, {"q": q, "k": k, "v": v, "W": _fast_weight(W, k, v)})
    return o, W


def retention(
    q: Sequence,
    k: Sequence,
    v: Sequence,
    decay: Float[Tensor, "heads"] | Float[Tensor, "groups heads"],
    W: FastWeight | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, FastWeight]:
    """W' = decay W + v k^T, o = W' q."""
    decay = decay[None] if decay.ndim == 1 else decay
    o, W = _run("retention", backend, {"q": q, "k": k, "v": v, "decay": decay, "W": _fast_weight(W, k, v)})
    return o, W


def delta_rule(
    q: Sequence, k: Sequence, v: Sequence, beta: Gate, W: FastWeight | None = None, *, backend: Backend = "auto"
) -> tuple[Sequence, FastWeight]:
    """W' = W + beta (v - W k) k^T, o = W' q."""
    o, W = _run("delta_rule", backend, {"q": q, "k": k, "v": v, "beta": beta, "W": _fast_weight(W, k, v)})
    return o, W


def recurrent_delta(
    q: Sequence,
    k: Sequence,
    v: Sequence,
    beta: Gate,
    R: tuple[Tensor, Tensor, Tensor, Tensor],
    state: tuple[FastWeight, Vector] | None = None,
    *,
    additive: bool = False,
    backend: Backend = "auto",
) -> tuple[Sequence, tuple[FastWeight, Vector]]:
    """The delta rule with feedback of its last output, through R = (R_q, R_k, R_v, r_b).

    R_q and R_k are [groups, heads, key, value], R_v [groups, heads, value, value], r_b [groups, heads, value]; q, k, v
    and beta are what their softmax, identity and sigmoid are taken of. Additive, it only adds: W' = W + beta v k^T.
    """
    state = (_fast_weight(None, k, v), _zeros(v, *v.shape[:2], *v.shape[-1:])) if state is None else state
    weights = _named("recurrent_delta", "R", R, "R_q", "R_k", "R_v", "r_b")
    given = {"q": q, "k": k, "v": v, "beta": beta, **weights, **_named("recurrent_delta", "state", state, "W", "last")}
    o, W = _run("recurrent_delta", backend, given, additive=additive)
    return o, (W, _last(o))


def srwm(
    x: Sequence,
    W: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    read_after_write: bool = False,
    fixed: str = "",
    backend: Backend = "auto",
) -> tuple[Sequence, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The self-referential matrix: W = (W_y, W_q, W_k [groups, heads, dim, dim], w_b [groups, heads, dim, 4]).

    `fixed` names parts that are read and never written to, by their letters: y, q, k, b.
    """
    if unknown := set(fixed) - set("yqkb"):
        raise BadInput(f"srwm: fixed = {fixed!r} has {sorted(unknown)[0]!r}; expected letters of 'yqkb'")
    weights = _named("srwm", "W", W, "W_y", "W_q", "W_k", "w_b")
    flags = {"read_after_write": read_after_write} | {f"fixed_{part}": part in fixed for part in "yqkb"}
    y, W_y, W_q, W_k, w_b = _run("srwm", backend, {"x": x, **weights}, **flags)
    return y, (W_y, W_q, W_k, w_b)


def elman(
    a: Sequence,
    R: Float[Tensor, "groups heads dim dim"],
    h: Vector | None = None,
    *,
    relu: bool = False,
    backend: Backend = "auto",
) -> tuple[Sequence, Vector]:
    """h' = tanh(a + R h), or relu."""
    h = _zeros(a, *a.shape[:2], *R.shape[-1:]) if h is None else h
    (outputs,) = _run("elman", backend, {"a": a, "R": R, "h": h}, relu=relu)
    return outputs, _last(outputs)


def gru(
    a: Float[Tensor, "batch heads time three_dim"],
    R: Float[Tensor, "groups heads three_dim dim"],
    b: Float[Tensor, "groups heads dim"],
    h: Vector | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, Vector]:
    """A gated recurrent unit; `a` and R hold the gates r, z, n one after the other."""
    h = _zeros(a, *a.shape[:2], *R.shape[-1:]) if h is None else h
    (outputs,) = _run("gru", backend, {"a": a, "R": R, "b": b, "h": h})
    return outputs, _last(outputs)


def lstm(
    a: Float[Tensor, "batch heads time four_dim"],
    R: Float[Tensor, "groups heads four_dim dim"],
    state: tuple[Vector, Vector] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, tuple[Vector, Vector]]:
    """Long short-term memory; `a` and R hold the gates i, f, g, o one after the other; the state is (h, c)."""
    zero = _zeros(a, *a.shape[:2], *R.shape[-1:])
    states = _named("lstm", "state", (zero, zero) if state is None else state, "h", "c")
    outputs, c = _run("lstm", backend, {"a": a, "R": R, **states})
    return outputs, (_last(outputs), c)


def elementwise_lstm(
    z: Sequence,
    f: Sequence,
    w_z: Float[Tensor, "groups heads dim"],
    w_f: Float[Tensor, "groups heads dim"],
    c: Vector | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, Vector]:
    """The recurrence of the e-LSTM: its outputs are the cells c."""
    c = _zeros(z, *z.shape[:2], *z.shape[-1:]) if c is None else c
    (outputs,) = _run("elementwise_lstm", backend, {"z": z, "f": f, "w_z": w_z, "w_f": w_f, "c": c})
    return outputs, _last(outputs)


def diagonal_scan(
    a: Shaped[Tensor, "batch heads time *dims"],
    b: Shaped[Tensor, "batch heads time *dims"],
    h: Shaped[Tensor, "batch heads *dims"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """h' = a h + b element by element, real or complex; `a` may be broadcast."""
    if b.ndim < 3:
        raise BadInput(f"diagonal_scan: b has shape {list(b.shape)}; expected at least 3 axes (batch, heads, time)")
    try:
        a = a.expand_as(b)
    except RuntimeError:
        raise BadInput(
            f"diagonal_scan: a has shape {list(a.shape)}; expected one that broadcasts to b's, {list(b.shape)}"
        ) from None
    state = b.shape[:2] + b.shape[3:]
    if h is not None and h.shape != state:
        raise BadInput(f"diagonal_scan: h has shape {list(h.shape)}; expected {list(state)} (batch, heads, dims)")
    dtype = torch.promote_types(a.dtype, b.dtype)
    h = _zeros(b.to(dtype), *state) if h is None else h
    given = {"a": a.to(dtype), "b": b.to(dtype), "h": h}
    flat = {name: x.reshape(*x.shape[: 2 if name == "h" else 3], math.prod(b.shape[3:])) for name, x in given.items()}
    (outputs,) = _run("diagonal_scan", backend, flat)
    return outputs.view(b.shape), _last(outputs).reshape(state)


def selective_scan(
    x: Sequence,
    dt: Sequence,
    A: Float[Tensor, "groups heads dim state"],
    B: Float[Tensor, "batch heads time state"],
    C: Float[Tensor, "batch heads time state"],
    h: Float[Tensor, "batch heads dim state"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, Tensor]:
    """h' = exp(dt A) h + dt x B^T, y = h' C."""
    h = _zeros(x, *x.shape[:2], *x.shape[-1:], *A.shape[-1:]) if h is None else h
    y, h = _run("selective_scan", backend, {"x": x, "dt": dt, "A": A, "B": B, "C": C, "h": h})
    return y, h


def affine(
    x: Sequence,
    W: Float[Tensor, "groups heads out dim"],
    b: Float[Tensor, "groups heads out"],
    *,
    relu: bool = False,
    backend: Backend = "auto",
) -> Float[Tensor, "batch heads time out"]:
    """y = W x + b at every moment, or max(0, y)."""
    (y,) = _run("affine", backend, {"x": x, "W": W, "b": b}, relu=relu)
    return y


def layer_norm(
    x: Sequence,
    w: Float[Tensor, "groups heads dim"],
    b: Float[Tensor, "groups heads dim"],
    *,
    backend: Backend = "auto",
) -> Sequence:
    """y = w (x - mean) / sqrt(variance + 1e-5) + b at every moment, as torch.nn.LayerNorm has it."""
    (y,) = _run("layer_norm", backend, {"x": x, "w": w, "b": b})
    return y
