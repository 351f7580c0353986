"""The machine that is examined: a model on a CPU, step by step, in blocks of rows, its carried state rounded."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.models.causal import Causal
from assay.models.skeleton import Model
from assay.numbers import Fixed, read_format
from assay.rng import Rng
from assay.tasks.task import IGNORE

BLOCK = 256  # rows of one evaluation on a CPU; a shorter block is padded, so that sums have one order
CLOSE = 1e-9  # two float64 results of different orders of operations differ by less


class NotCarried(BadInput):
    """The model has no state of a fixed size that could be carried and compared."""


class StateMachine:
    """A model whose state is a row of integer codes: the digits of a fixed-point format, else the numbers' bits.

    `numbers` is the fixed-point format to which the state is rounded before the first step and after every step; then
    everything inside a step is computed in float64, from the model's own weights. Or it is float32: nothing is rounded.
    """

    merges = True  # equal pairs of state and task state have equal futures

    def __init__(self, model: nn.Module, numbers: str = "float32", device: torch.device | str = "cpu") -> None:
        format = None if numbers == "float32" else read_format(numbers)
        if not (format is None or (isinstance(format, Fixed) and format.bits <= 31)):
            raise BadInput(f"a state is rounded to fixed:W.F with W + F at most 30, or left as float32; not {numbers}")
        self.format = format
        self.numbers = numbers
        self.dtype = torch.float32 if self.format is None else torch.float64
        self.device = torch.device(device)
        self.block = BLOCK if self.device.type == "cpu" else 1 << 16
        self.model: Any = copy.deepcopy(model).to(self.device, self.dtype).eval().requires_grad_(requires_grad=False)
        self._slack = torch.tensor(torch.inf, dtype=torch.float64, device=self.device)
        with torch.inference_mode():
            self._learn_layout(model)
            self.width = self.start().shape[1]

    @property
    def slack(self) -> float:
        """The least distance of a carried number so far from where its rounding would change (fixed point only)."""
        return float(self._slack)

    @property
    def code_dtype(self) -> torch.dtype:
        """The smallest that serves; in a fixed-point format its least number is the code of NaN."""
        return torch.int16 if self.format and self.format.bits <= 15 else torch.int32

    def _learn_layout(self, model: nn.Module) -> None:
        if not isinstance(model, Causal):
            raise NotCarried("the model has no `step`, so its state cannot be carried")
        leaves, self._tree = pytree.tree_flatten(self.model.initial_state(1))
        token = torch.ones(1, dtype=torch.int64, device=self.device)
        _, successor = self.model.step(token, self.model.initial_state(1))
        if [leaf.shape for leaf in pytree.tree_leaves(successor)] != [leaf.shape for leaf in leaves]:
            raise NotCarried("the state of the model grows with the input")
        if isinstance(model, Model) and model.positions is not None:
            raise NotCarried("the model counts positions, which grow with the input")
        # The position of a model without position encodings is never read.
        built_in = isinstance(model, Model)
        self._unread = [built_in and i == 0 and not leaf.is_floating_point() for i, leaf in enumerate(leaves)]
        for leaf, unread in zip(leaves, self._unread, strict=True):
            is_number = (torch.view_as_real(leaf) if leaf.is_complex() else leaf).dtype == self.dtype
            if not unread and not (is_number and leaf.ndim and len(leaf) == 1):
                raise NotCarried(f"the state of the model has a part that is not a row of {self.dtype} numbers")
        self._leaves = leaves

    # -- states as codes -----------------------------------------------------------------------------------------------

    def start(self) -> Int[Tensor, "1 numbers"]:
        return self.codes(self._flat(self.model.initial_state(1), 1))

    def _flat(self, state: Any, rows: int) -> Float[Tensor, "rows numbers"]:
        parts = []
        for leaf, unread in zip(pytree.tree_leaves(state), self._unread, strict=True):
            if not unread:
                parts.append((torch.view_as_real(leaf) if leaf.is_complex() else leaf).reshape(rows, -1))
        return torch.cat(parts, dim=1)

    def codes(self, x: Tensor) -> Int[Tensor, "rows numbers"]:
        """Rounded numbers as integers."""
        if self.format is None:
            return x.contiguous().view(self.code_dtype)
        end = 2.0 ** (self.format.whole + self.format.fraction)
        scaled = x * 2.0**self.format.fraction
        nearest = scaled.round().clamp_(-end, end - 1)
        error = (scaled - nearest).abs()
        distance = torch.where(error <= 0.5, 0.5 - error, torch.inf).min()  # what saturates has no boundary near
        self._slack = torch.minimum(self._slack, distance * 2.0**-self.format.fraction)
        return torch.where(nearest.isnan(), torch.iinfo(self.code_dtype).min, nearest).to(self.code_dtype)

    def values(self, codes: Int[Tensor, "rows numbers"]) -> Float[Tensor, "rows numbers"]:
        """The numbers of codes."""
        if self.format is None:
            return codes.view(self.dtype)
        numbers = codes.to(self.dtype) * 2.0**-self.format.fraction
        return numbers.masked_fill_(codes == torch.iinfo(self.code_dtype).min, torch.nan)

    def _state(self, numbers: Float[Tensor, "rows numbers"]) -> Any:
        leaves, place = [], 0
        for leaf, unread in zip(self._leaves, self._unread, strict=True):
            if unread:
                leaves.append(leaf)
                continue
            size = leaf[0].numel() * (2 if leaf.is_complex() else 1)
            part, place = numbers[:, place : place + size], place + size
            if leaf.is_complex():
                leaves.append(torch.view_as_complex(part.reshape(-1, *leaf.shape[1:], 2).contiguous()))
            else:
                leaves.append(part.reshape(-1, *leaf.shape[1:]))
        return pytree.tree_unflatten(leaves, self._tree)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, codes: Int[Tensor, "rows numbers"], tokens: Int[Tensor, "rows"]) -> tuple[Tensor, Tensor]:
        """Logits and codes after one token, in blocks of a fixed number of rows."""
        logits, successors = [], []
        with torch.inference_mode():
            for block, token in zip(codes.split(self.block), tokens.split(self.block), strict=True):
                rows = len(block)
                if rows < self.block and self.device.type == "cpu":
                    block, token = (_padded(x, self.block) for x in (block, token))
                y, numbers = self.unrounded_step(self.values(block), token)
                logits.append(y[:rows])
                successors.append(self.codes(numbers)[:rows])
        return torch.cat(logits), torch.cat(successors)

    def unrounded_step(
        self, numbers: Float[Tensor, "rows numbers"], tokens: Int[Tensor, "rows"]
    ) -> tuple[Tensor, Float[Tensor, "rows numbers"]]:
        """Logits and the numbers of the state after one token, before they are rounded."""
        with torch.inference_mode():
            logits, state = self.model.step(tokens, self._state(numbers))
            return logits, self._flat(state, len(numbers))

    def require_independent_rows(self, symbols: int) -> None:
        """Raise BadInput unless a row's result is the same in other company and at another place of its block."""
        rng = Rng.seeded(0, "certify", "rows").rows(self.block)
        slack, codes = self._slack, self.start().expand(self.block, -1)
        tokens = (rng.integers(8, symbols) + 1).to(self.device)
        for token in tokens.T[:-1]:
            _, codes = self.step(codes, token)
        token, order = tokens[:, -1], Rng.seeded(0, "certify", "order").order(self.block)
        batch, permutation = self.step(codes, token), self.step(codes[order], token[order])
        repeated = [self.step(codes[i : i + 1].expand(self.block, -1), token[i].expand(self.block)) for i in (0, 1)]
        pairs = [(permutation[part], batch[part][order]) for part in (0, 1)]
        for i, rows in enumerate(repeated):
            pairs += [(rows[part], batch[part][i].expand_as(rows[part])) for part in (0, 1)]
        self._slack = slack  # strings of this test are not part of a proof
        if not all(self._same(a, b) for a, b in pairs):
            raise BadInput(
                "the step of the model depends on its batch: a row's result changes with the other rows; "
                "compute each row from itself alone (no norm over the batch)"
            )

    def _same(self, a: Shaped[Tensor, "..."], b: Shaped[Tensor, "..."]) -> bool:
        if a.is_floating_point() and self.dtype == torch.float64:
            return torch.allclose(a, b, rtol=CLOSE, atol=CLOSE, equal_nan=True)
        return torch.equal(a.nan_to_num(), b.nan_to_num()) if a.is_floating_point() else torch.equal(a, b)


class PrefixMachine:
    """A model without a state of fixed size, a Transformer for example: the state is the input so far."""

    merges = False
    slack = float("inf")
    numbers, dtype = "float32", torch.float32
    width = 0
    code_dtype = torch.uint8

    def __init__(self, model: nn.Module, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.model = copy.deepcopy(model).to(self.device).eval().requires_grad_(requires_grad=False)
        self.block = BLOCK

    def start(self) -> Int[Tensor, "1 0"]:
        return torch.zeros(1, 0, dtype=self.code_dtype, device=self.device)

    def step(self, codes: Int[Tensor, "rows time"], tokens: Int[Tensor, "rows"]) -> tuple[Tensor, Tensor]:
        prefixes = torch.cat([codes, tokens[:, None].to(self.code_dtype)], dim=1)
        logits = []
        with torch.inference_mode():
            for block in prefixes.split(self.block):
                y = self.model(_padded(block, self.block).long())
                y = y[0] if isinstance(y, tuple) else y
                logits.append(y[: len(block), -1])
        return torch.cat(logits), prefixes

    def require_independent_rows(self, symbols: int) -> None:
        """The lab has tested the whole module; a prefix's logits are those that its test sees."""


def machine_of(model: nn.Module, numbers: str, device: torch.device | str = "cpu") -> StateMachine | PrefixMachine:
    """The machine that carries a state, else the one that reads every prefix anew."""
    try:
        return StateMachine(model, numbers, device)
    except NotCarried:
        if numbers != "float32":
            raise
        return PrefixMachine(model, device)


def _padded(x: Tensor, rows: int) -> Tensor:
    return torch.cat([x, x[-1:].expand(rows - len(x), *x.shape[1:])]) if len(x) < rows else x


def wrong(logits: Tensor, answers: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
    """Where an answer is demanded and is not the only largest logit, or a logit is NaN or infinite."""
    demanded = answers != IGNORE
    place = answers.clamp(min=0)[:, None]
    others = logits.scatter(1, place, -torch.inf).amax(1)
    right = (logits.gather(1, place)[:, 0] > others) & logits.isfinite().all(1)
    return demanded & ~right
