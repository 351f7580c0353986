"""The independent checker of certificates: it shares no code with the prover but the model's own step."""

from __future__ import annotations

import hashlib
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.models import read_model
from assay.rng import Rng
from assay.tasks import read_task


def check(statement: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Why the statement of a certificate does not hold; nothing, if it holds."""
    with torch.inference_mode():
        claim = _Claim(statement, tensors)
        return claim.table() or (claim.word() if statement["outcome"] == "refuted" else claim.closure())


class _Claim:
    """A model, its numbers, and a table. `table`, `word` and `closure` return what is wrong with them, or nothing."""

    def __init__(self, statement: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.moves, self.answers = tensors.pop("moves").numpy(), tensors.pop("answers").numpy()
        self.statement, self.block, self.length = statement, statement["block"], statement["length"]
        self.fixed: list[int] = statement["fixed"]  # bits before and after the point; none: float32, not rounded
        dtype = torch.float64 if self.fixed else torch.float32
        self.model: Any = read_model(statement["model"]).build(*statement["shape"], Rng.seeded(0)).to(dtype).eval()
        self.model.load_state_dict({name.removeprefix("weights."): value for name, value in tensors.items()})
        self.start = np.pad(self.codes(self.model.initial_state(1)), ((0, 0), (0, 1)))  # the task's state is last

    def table(self) -> str:
        """Compare the table with the task's oracle on all words, up to 12 tokens or 4,096 words of one length."""
        task, symbols = read_task(self.statement["task"]), self.moves.shape[1]
        for length in (n for n in range(1, 13) if symbols**n <= 4096):
            words = torch.tensor(list(product(range(1, symbols + 1), repeat=length)))
            right, q = task.solve(words)[:, -1].numpy(), np.zeros(len(words), np.int64)
            for token in words.T.numpy():
                q = np.where(q < 0, -1, self.moves[q, token - 1])
            dead = np.array([answer >= 0 and task.answers[answer] == "dead" for answer in right])
            right = right if task.answer_positions == "everywhere" or task.fits(length) else -100
            if np.where(q < 0, ~dead, self.answers[q] != right).any():
                return f"the table is not that of {task.kind}"
        return ""

    def codes(self, state: Any) -> np.ndarray:
        x, end = torch.cat([part.flatten(1) for part in _parts(state)], 1).numpy(), 2.0 ** sum(self.fixed)
        digits = np.clip(np.rint(x * 2.0 ** self.fixed[1]), -end, end - 1) if self.fixed else x
        return np.where(np.isnan(x), -(2**31), digits).astype(np.int32) if self.fixed else x.view(np.int32)

    def step(self, pairs: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Model states after one token, and whether an answer is wrong. A block is padded with its last row."""
        rows, at = np.minimum(np.arange(self.block), len(tokens) - 1), 0
        codes, answers = pairs[rows, :-1], self.answers[pairs[:, -1]]
        x = np.where(codes == -(2**31), np.nan, codes / 2.0 ** self.fixed[1]) if self.fixed else codes.view(np.float32)
        state = pytree.tree_map(torch.clone, self.model.initial_state(len(rows)))
        for part in _parts(state):
            part.copy_(torch.from_numpy(x[:, at : (at := at + part[0].numel())]).reshape(part.shape))
        logits, state = self.model.step(torch.from_numpy(tokens[rows]), state)
        y, place = logits.numpy()[: len(tokens)], np.maximum(answers, 0)[:, None]
        right = ((y >= np.take_along_axis(y, place, 1)).sum(1) == 1) & np.isfinite(y).all(1)
        return np.hstack([self.codes(state)[: len(tokens)], pairs[:, -1:]]), ~right & (answers != -100)

    def word(self) -> str:
        pairs, wrong = self.start, np.array([False])
        for token in self.statement["word"]:
            pairs[0, -1] = self.moves[pairs[0, -1], token - 1] if pairs[0, -1] >= 0 else -1
            pairs, wrong = self.step(pairs, np.array([token]))
        return "" if wrong[0] and pairs[0, -1] >= 0 else "the word is answered rightly, or is not an input of the task"

    def closure(self) -> str:
        """Visit every pair of model state and task state with a plain set, words of a length before longer ones."""
        symbols, length, pairs, visited = self.moves.shape[1], 0, self.start, {self.start.tobytes()}
        while len(pairs) and (self.length is None or length < self.length):
            tokens, pairs, length = np.tile(np.arange(symbols), len(pairs)) + 1, pairs.repeat(symbols, 0), length + 1
            pairs[:, -1] = self.moves[pairs[:, -1], tokens - 1]
            inside, new = np.flatnonzero(pairs[:, -1] >= 0), dict[bytes, np.ndarray]()
            for rows in (inside[i : i + self.block] for i in range(0, len(inside), self.block)):
                successors, wrong = self.step(pairs[rows], tokens[rows])
                if wrong.any():
                    return f"a word of {length} tokens is answered wrongly"
                new |= {key: pair for pair in successors if (key := pair.tobytes()) not in visited}
            visited |= new.keys()
            pairs = np.array(list(new.values()), np.int32).reshape(-1, self.start.shape[1])
        reached = len(visited), hashlib.sha256(b"".join(sorted(visited))).hexdigest()
        stated = self.statement["pairs"], self.statement["pairs_sha256"]
        if self.length is None and reached != stated:
            return f"its pairs are not the {len(visited):,} that are reached"
        return ""


def _parts(state: Any) -> list[Tensor]:  # the position of a model, a tensor without axes, is never read
    return [torch.view_as_real(x) if x.is_complex() else x for x in pytree.tree_leaves(state) if x.ndim]
