"""Any finite automaton from its transition table, as a ReLU network and as one self-referential weight matrix."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assay.errors import BadInput
from assay.models.rnn import Elman
from assay.models.skeleton import Model, Stack
from assay.models.srwm import Srwm
from assay.rng import Rng
from assay.tasks import read_task
from assay.tasks.automaton import Dfa, RegularTask
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.groups import WordProblem
from assay.tasks.regular import ModularArithmetic
from assay.theory.claim import Recurrent
from assay.theory.subspaces import Relus, Space, blank, embed, say

Automaton = RegularTask | WordProblem | BoundedDyck | ModularArithmetic  # the tasks with a finite automaton


def machine_of(task: Automaton | str | dict[str, Any]) -> Automaton:
    """A task with a finite automaton, given as a task, by name, or as plain data with its options."""
    read = read_task({"kind": task} if isinstance(task, str) else task)
    if not isinstance(read, Automaton):
        raise BadInput(f"{getattr(read, 'kind', read)} has no table of a finite automaton")
    return read


def random_dfa(states: int, rng: Rng) -> Dfa:
    """A random automaton. `a` leads through all states in a random order, so every state is reachable; `b` is
    random."""
    order, anywhere = rng.child("a").order(states).tolist(), rng.child("b").integers(states, states).tolist()
    follows = dict(zip(order, [*order[1:], order[0]], strict=True))
    accept = rng.child("accept").order(states)[: states // 2].sort().values.tolist()
    return Dfa(alphabet="ab", table=tuple((follows[q], anywhere[q]) for q in range(states)), accept=tuple(accept))


class FromTable(Recurrent):
    """A machine with one coordinate for each pair of a state and the symbol that is read in it."""

    states: ClassVar[int] = 8  # of the random automaton that is used if no task is given

    def __init__(self, task: Automaton | str | dict[str, Any] | None = None) -> None:
        random = random_dfa(self.states, Rng.seeded(0, "random automaton"))
        self.automaton = random if task is None else machine_of(task)

    def task(self, length: int) -> Automaton:
        return self.automaton

    @property
    def with_state(self) -> Float[Tensor, "states pairs"]:
        """1 at every pair with this state."""
        states, symbols = self.automaton.machine.moves.shape
        return torch.eye(states).repeat_interleave(symbols, 1)

    @property
    def with_symbol(self) -> Float[Tensor, "symbols pairs"]:
        """1 at every pair with this symbol."""
        states, symbols = self.automaton.machine.moves.shape
        return torch.eye(symbols).repeat(1, states)

    @property
    def after(self) -> Int[Tensor, "pairs"]:
        """The next state of each pair."""
        return self.automaton.machine.moves.flatten()

    @property
    def answer(self) -> Float[Tensor, "answers pairs"]:
        """1 at every pair whose next state gives this answer."""
        answers = torch.arange(len(self.automaton.answers))
        return (self.automaton.machine.outputs[self.after] == answers[:, None]).float()


class DfaRnn(FromTable):
    """A ReLU network with |Q||S| units computes any finite automaton with states Q and symbols S, exactly and at every
    length.

    h = relu(W e_s + R h - 1) is the indicator of the current pair: the symbol contributes 1 and the state before it
    contributes 1. Before the first symbol h = 0, so the start state contributes through a bias, which every pair
    cancels.
    """

    source: ClassVar[str] = "own; after Minsky 1967"
    length: ClassVar[int] = 200
    largest: ClassVar[int] = 100_000

    def build(self, length: int) -> Model:
        start = self.with_state[self.automaton.machine.start]
        stack = Stack(name="dfa-rnn", mixers=(Elman(activation="relu"),), width=len(start), ff=0, norm="none",
                      residual=False)  # fmt: skip
        model = blank(stack, self.automaton)
        rnn: Any = model.blocks[0].mixer
        embed(model, self.with_symbol)
        rnn.project.weight.copy_(torch.eye(len(start)))
        rnn.project.bias.copy_(start - 1)
        rnn.R[0, 0] = self.with_state[self.after].T - start[:, None]
        say(model, self.answer)
        return model


class DfaSrwm(FromTable):
    """One self-referential weight matrix (SRWM) with |Q||S| + |S| + 1 rows computes any finite automaton with states Q
    and symbols S: where softmax and sigmoid saturate, its update copies one of its rows onto another.

    The input is e_s + e_pointer, and the row of the pointer holds the current state. The logits of q are largest at the
    pair of this state and symbol, k is the pointer, and beta = 1. So W' = W + k^T (q W - k W) copies the row of the
    pair, which holds the next state, onto the row of the pointer. y is read before the write, as published, so the
    feed-forward part selects the pair from y as softmax does from q.
    """

    source: ClassVar[str] = "own; after Irie et al. 2022"
    length: ClassVar[int] = 40
    largest: ClassVar[int] = 5000
    states: ClassVar[int] = 24
    saturation: ClassVar[float] = (
        100.0  # other rows get at most exp(-87) in float32, too little to add up over e^70 steps
    )

    def build(self, length: int) -> Model:
        pairs, far = len(self.after), self.saturation
        stream = Space(pair=pairs, symbol=len(self.automaton.symbols), pointer=1)
        stack = Stack(name="dfa-srwm", mixers=(Srwm(heads=1),), width=stream.width, ff=2, norm="none")
        model = blank(stack, self.automaton)
        srwm: Any = model.blocks[0].mixer
        embed(model, stream.vector(symbol=torch.eye(len(self.automaton.symbols)), pointer=1.0))
        pointing = self.with_state[
            [*self.after.tolist(), self.automaton.machine.start]
        ]  # the state that each row holds
        rows = stream.write("pair", "pointer")
        srwm.W_y[0, 0] = (rows @ pointing + stream.write("symbol") @ self.with_symbol) @ stream.read("pair")
        srwm.W_q[0, 0] = far * srwm.W_y[0, 0]
        srwm.W_k[0, 0] = far * rows.sum(1, keepdim=True) @ stream.read("pointer")
        srwm.w_b[0, 0] = far * rows.sum(1, keepdim=True)
        srwm.out.weight.copy_(torch.eye(stream.width))
        both = Relus(model, 0)
        both.unit(stream.read("pair"), -1.0, stream.write("pair"))
        both.unit(stream.read("pair"), 0.0, -stream.write("pair"))
        say(model, self.answer @ stream.read("pair"))
        return model
