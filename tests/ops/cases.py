"""Every op as a case: the shapes it takes and how it is called, so that a property is written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from assay import ops
from assay.ops.rules import RULES

Part = list[Tensor]
Parts = tuple[Part, Part, Part]
SIZES = {"H": 2, "K": 3, "V": 2, "D": 3, "O": 4, "N": 2}  # heads, key size, value size, other sizes, states


@dataclass(frozen=True)
class Case:
    """`inputs` are [batch, heads, time, *shape], `weights` [groups, heads, *shape], `state` [batch, heads, *shape].

    A shape is a string of axes, such as "3D N". `tame` turns random numbers into what a trained network might hold, so
    that nothing grows without bound along time.
    """

    op: str
    call: Callable[..., Any]  # of (inputs, weights, state, backend=...): outputs and a final state, or outputs alone
    inputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    tame: Callable[[Part, Part, Part], Any] = lambda x, w, s: (x, w, s)
    dtype: torch.dtype = torch.float64

    def draw(self, time: int, batch: int = 2, groups: int = 1, seed: int = 0, **sizes: int) -> Parts:
        """Random inputs, weights and state."""
        rng = torch.Generator().manual_seed(seed)
        sizes = SIZES | sizes

        def some(shapes: tuple[str, ...], *front: int) -> Part:
            full = [(*front, *(_size(axis, sizes) for axis in shape.split())) for shape in shapes]
            return [torch.randn(shape, generator=rng, dtype=self.dtype) * 0.6 for shape in full]

        parts: Parts = self.tame(
            some(self.inputs, batch, sizes["H"], time),
            some(self.weights, groups, sizes["H"]),
            some(self.state, batch, sizes["H"]),
        )
        return parts

    def run(
        self, inputs: Sequence[Tensor], weights: Sequence[Tensor], state: Sequence[Tensor], backend: str = "reference"
    ) -> tuple[Tensor, ...]:
        """The outputs and every tensor of the final state. A GPU, where there is one, gets what its kernels run on."""
        device = "cuda" if backend == "gpu" and torch.cuda.is_available() else "cpu"
        given = ([x.to(device) for x in part] for part in (inputs, weights, state))
        return tuple(x.cpu() for x in pytree.tree_leaves(self.call(*given, backend=backend)))

    def gradients(self, x: Part, w: Part, s: Part, backend: str = "reference") -> tuple[Tensor, ...]:
        """The outputs, the final state, and the gradient of everything given."""
        given = [[leaf.detach().requires_grad_() for leaf in part] for part in (x, w, s)]
        outputs = self.run(*given, backend)
        return *(o.detach() for o in outputs), *torch.autograd.grad(loss(outputs), [x for part in given for x in part])


def loss(outputs: Sequence[Tensor]) -> Tensor:
    """Every entry times a random number of its own, the same at every precision."""
    rng = torch.Generator().manual_seed(1)
    total = torch.zeros((), dtype=torch.float64)
    for o in outputs:
        factor = torch.randn(o.shape, generator=rng, dtype=torch.complex64 if o.is_complex() else torch.float32)
        total = total + (o * factor).sum().real
    return total


def _size(axis: str, sizes: dict[str, int]) -> int:
    """The size of an axis such as 3D or 4."""
    letter = axis.lstrip("0123456789")
    return int(axis.removesuffix(letter) or 1) * (sizes[letter] if letter else 1)


def _decaying(x: Part, w: Part, s: Part) -> Parts:
    return x, [p.sigmoid() for p in w], s


def _writing(x: Part, w: Part, s: Part) -> Parts:
    q, k, v, beta = x
    return [q, k.softmax(-1), v, (3 * beta).sigmoid()], w, s


def _reflecting(x: Part, w: Part, s: Part) -> Parts:
    q, k, v, beta = x
    return [q, F.normalize(k, dim=-1), v, 2 * (3 * beta).sigmoid()], w, s


def _scaled(x: Part, w: Part, s: Part) -> Parts:
    """Times a row or a column, a weight gives back numbers of the same size."""
    return x, [p * max(1, *p.shape[2:]) ** -0.5 for p in w], s


def _contracting(x: Part, w: Part, s: Part) -> Parts:
    return x, [p / torch.linalg.matrix_norm(p, 2, keepdim=True) for p in w], s


def _bounded(x: Part, w: Part, s: Part) -> Parts:
    a, b = x
    return [inside(a), b], w, s


def _selecting(x: Part, w: Part, s: Part) -> Parts:
    u, dt, B, C = x
    return [u, F.softplus(dt), B, C], [-w[0].exp()], s


def inside(a: Tensor) -> Tensor:
    """Inside the unit circle."""
    return a / (1 + a.abs())


def pair(state: Part) -> tuple[Tensor, ...] | None:
    return tuple(state) or None


_SRWM = (("D",), ("D D", "D D", "D D", "D 4"))
_SCAN = (("D N", "D N"), (), ("D N",))
_AFFINE = (("D",), ("O D", "O"))

CASES = {
    "linear_attention": Case(
        "linear_attention", lambda x, w, s, **kw: ops.linear_attention(*x, *s, **kw), ("K", "K", "V"), (), ("V K",)
    ),
    "retention": Case(
        "retention",
        lambda x, w, s, **kw: ops.retention(*x, *w, *s, **kw),
        ("K", "K", "V"),
        ("",),
        ("V K",),
        _decaying,
    ),
    "delta_rule": Case(
        "delta_rule", lambda x, w, s, **kw: ops.delta_rule(*x, *s, **kw), ("K", "K", "V", ""), (), ("V K",), _writing
    ),
    "delta_rule-signed": Case(
        "delta_rule", lambda x, w, s, **kw: ops.delta_rule(*x, *s, **kw), ("K", "K", "V", ""), (), ("V K",), _reflecting
    ),
    "recurrent_delta": Case(
        "recurrent_delta",
        lambda x, w, s, **kw: ops.recurrent_delta(*x, tuple(w), pair(s), **kw),
        ("K", "K", "V", ""),
        ("K V", "K V", "V V", "V"),
        ("V K", "V"),
        _scaled,
    ),
    "recurrent_delta-additive": Case(
        "recurrent_delta",
        lambda x, w, s, **kw: ops.recurrent_delta(*x, tuple(w), pair(s), additive=True, **kw),
        ("K", "K", "V", ""),
        ("K V", "K V", "V V", "V"),
        ("V K", "V"),
        _scaled,
    ),
    "srwm": Case("srwm", lambda x, w, s, **kw: ops.srwm(*x, tuple(s or w), **kw), *_SRWM, tame=_scaled),
    "srwm-after": Case(
        "srwm", lambda x, w, s, **kw: ops.srwm(*x, tuple(s or w), read_after_write=True, **kw), *_SRWM, tame=_scaled
    ),
    "srwm-fixed": Case(
        "srwm", lambda x, w, s, **kw: ops.srwm(*x, tuple(s or w), fixed="qb", **kw), *_SRWM, tame=_scaled
    ),
    "elman": Case("elman", lambda x, w, s, **kw: ops.elman(*x, *w, *s, **kw), ("D",), ("D D",), ("D",), _contracting),
    "elman-relu": Case(
        "elman", lambda x, w, s, **kw: ops.elman(*x, *w, *s, relu=True, **kw), ("D",), ("D D",), ("D",), _contracting
    ),
    "gru": Case("gru", lambda x, w, s, **kw: ops.gru(*x, *w, *s, **kw), ("3D",), ("3D D", "D"), ("D",), _scaled),
    "lstm": Case(
        "lstm", lambda x, w, s, **kw: ops.lstm(*x, *w, pair(s), **kw), ("4D",), ("4D D",), ("D", "D"), _scaled
    ),
    "elementwise_lstm": Case(
        "elementwise_lstm", lambda x, w, s, **kw: ops.elementwise_lstm(*x, *w, *s, **kw), ("D", "D"), ("D", "D"), ("D",)
    ),
    "diagonal_scan": Case(
        "diagonal_scan", lambda x, w, s, **kw: ops.diagonal_scan(*x, *s, **kw), *_SCAN, tame=_bounded
    ),
    "diagonal_scan-complex": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(*x, *s, **kw),
        *_SCAN,
        tame=_bounded,
        dtype=torch.complex128,
    ),
    "selective_scan": Case(
        "selective_scan",
        lambda x, w, s, **kw: ops.selective_scan(x[0], x[1], w[0], x[2], x[3], *s, **kw),
        ("D", "D", "N", "N"),
        ("D N",),
        ("D N",),
        _selecting,
    ),
    "affine": Case("affine", lambda x, w, s, **kw: ops.affine(*x, *w, **kw), *_AFFINE, tame=_scaled),
    "affine-relu": Case("affine", lambda x, w, s, **kw: ops.affine(*x, *w, relu=True, **kw), *_AFFINE, tame=_scaled),
    "layer_norm": Case("layer_norm", lambda x, w, s, **kw: ops.layer_norm(*x, *w, **kw), ("D",), ("D", "D")),
}
OPS = sorted({case.op for case in CASES.values()})
KERNELS = [(op, backend) for op in OPS for backend in sorted(RULES[op].saved)]


def installed(backend: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that takes a backend's library."""
    library = ops.NEEDS.get(backend)
    missing = library is not None and not ops._installed(library)
    return [pytest.mark.skipif(missing, reason=f"{library} is not installed")]


def with_backends(*backends: str, among: Iterable[str] = CASES) -> pytest.MarkDecorator:
    """A test of (case, backend), for every case and each of the backends that its op has."""
    runs = [
        pytest.param(CASES[name], backend, id=f"{name}-{backend}", marks=installed(backend))
        for name in among
        for backend in backends
        if backend == "reference" or backend in RULES[CASES[name].op].saved or backend in _parallel(CASES[name].op)
    ]
    return pytest.mark.parametrize(("case", "backend"), runs)


def _parallel(op: str) -> tuple[str, ...]:
    return ("chunked",) if op in ops.PARALLEL else ()
