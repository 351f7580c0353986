"""Claims about finite memories: automata, the accuracy of a memory that is too small, and the state as a message."""

from __future__ import annotations

import math
import time
from typing import ClassVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.models import MODELS, named_model
from assay.models.causal import State, state_bits
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.groups import A5
from assay.tasks.index_lookup import IndexLookup
from assay.tasks.regular import Parity
from assay.theory.bounds.claims import LowerBound
from assay.theory.bounds.information import best_accuracy
from assay.theory.bounds.residuals import automaton
from assay.theory.bounds.tables import Form, answers, inferred, prefixes_told_apart
from assay.theory.claim import NOTHING, CheckResult, Claim, Examined, strings


class AutomatonBits(LowerBound):
    """A recurrent machine with the same update at every step that computes a minimal automaton of n states carries at
    least log2 n bits; here the automaton of A_5, with 60 states.

    The automaton is inferred from the oracle alone: any two of its states get different answers after some suffix.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Lemma 4"
    length: ClassVar[int] = 100
    largest: ClassVar[int] = 10_000
    small: ClassVar[tuple[int, ...]] = (3,)
    suffixes: ClassVar[int] = 1  # symbols that suffice to tell any two states apart

    def task(self, length: int) -> A5 | BoundedDyck:
        return A5()

    def states(self, length: int) -> int:
        return automaton(self.task(length)).minimal[0]

    def mistakes(self, length: int) -> list[str]:
        count, states = len(inferred(self.task(length), self.suffixes).words), self.states(length)
        return [] if count == states else [f"there are {count} states, not {states}"]

    def examine(self, length: int, rng: Rng, inputs: int) -> Examined:
        """The automaton answers random strings, drawn by the task and uniform: no more states are needed."""
        task, seen = self.task(length), NOTHING
        small = inferred(task, self.suffixes)
        for first in range(0, inputs, 1000):
            rows = rng.rows(min(1000, inputs - first), first)
            half = len(rows.keys) // 2
            drawn = task.inputs(torch.full((len(rows.keys),), length), rows.child("drawn"))
            drawn[:half] = rows.child("any").integers(length, len(task.symbols))[:half] + 1
            wrong = (small.answer(drawn)[:, -1] != task.solve(drawn)[:, -1]).sum()
            seen += Examined(len(drawn), int(wrong), math.inf)
        return seen


class DyckBits(AutomatonBits):
    """A recurrent machine needs 3 bits for Dyck-(2,2), and 3 bits are enough: there are 7 stacks, and rejection.

    This holds even if updates may depend on the time: after an even number of tokens 6 of the 8 are told apart.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Lemma 4"
    length: ClassVar[int] = 200
    largest: ClassVar[int] = 4000
    small: ClassVar[tuple[int, ...]] = (4, 6)
    suffixes: ClassVar[int] = 2

    def task(self, length: int) -> BoundedDyck:
        return BoundedDyck(k=2, depth=2)

    def states(self, length: int) -> int:
        return 8

    def mistakes(self, length: int) -> list[str]:
        counted = prefixes_told_apart(self.task(length), Form.any_string(self.task(length), length))
        less = [] if counted.bits == 3 else [f"{counted.states} prefixes are told apart"]
        return super().mistakes(length) + less


class LookupAccuracy(LowerBound):
    """With fewer than N log2 |S| bits, a recurrent machine answers at most the share of uniform index lookups that
    Fano's inequality allows.

    At small lengths every possible memory is tried, and none does better. At the length of the check, a memory that
    keeps the first symbols and guesses the others does not do better.
    """

    source: ClassVar[str] = "own"
    length: ClassVar[int] = 400
    largest: ClassVar[int] = 4000
    small: ClassVar[tuple[int, ...]] = (2, 3)

    def task(self, length: int) -> IndexLookup:
        return IndexLookup(alphabet=64 if length > max(self.small) else 2, positions=length)

    def states(self, length: int) -> int:
        return int(self.task(length).alphabet ** length)

    def ceiling(self, length: int, bits: float) -> float:
        return best_accuracy(length, self.task(length).alphabet, bits)

    def mistakes(self, length: int) -> list[str]:
        wrong = []
        for bits in range(1, length):
            best, most = best_of_all_memories(self.task(length), length, bits), self.ceiling(length, bits)
            if best > most:
                wrong.append(f"a memory of {bits} bits answers {best:.3f}, more than {most:.3f}")
        return wrong

    def examine(self, length: int, rng: Rng, inputs: int) -> Examined:
        task = self.task(length)
        drawn = task.inputs(torch.full((inputs,), length + 1), rng.rows(inputs))
        right, index = task.solve(drawn)[:, -1], drawn[:, -1] - task.alphabet - 1
        symbol_bits = math.log2(task.alphabet)
        wrong = 0
        for share in (0.25, 0.5, 0.75):
            kept = int(share * length)
            answer = torch.where(index < kept, drawn.gather(1, index[:, None])[:, 0] - 1, 0)
            wrong += float((answer == right).double().mean()) > self.ceiling(length, kept * symbol_bits)
        return Examined(inputs, wrong, math.inf)

    def note(self, length: int) -> str:
        shares = ((bits, self.ceiling(length, bits)) for bits in (100, 500, 1000, 2000))
        return "at most " + ", ".join(f"{share:.3f} with {bits:,} bits" for bits, share in shares)


def best_of_all_memories(task: IndexLookup, length: int, bits: int) -> float:
    """The best share of right answers of all maps from strings to this many bits, each with its best answers."""
    symbols, index = torch.arange(1, task.alphabet + 1), torch.arange(1, length + 1)
    targets = answers(task, Form((symbols,) * length + (task.alphabet + index,)))[:, -1].view(-1, length)
    right = torch.nn.functional.one_hot(targets.long(), task.alphabet).double()  # [strings, places, symbols]
    best = 0.0
    for maps in (strings(2**bits, len(targets)) - 1).split(1 << 13):
        carried = torch.nn.functional.one_hot(maps, 2**bits).double()  # [maps, strings, memories]
        counts = torch.einsum("msc,spa->mcpa", carried, right).amax(-1).sum((1, 2))
        best = max(best, float(counts.max()) / targets.numel())
    return best


class RecurrentProtocol(Claim):
    """The state of a recurrent machine, m numbers of p bits, is a one-way protocol at every cut of the input: one party
    reads a prefix and sends the state, and the other party reads the suffix and answers as the machine does.

    Checked with every recurrent model of the registry, at every cut. The other party has a machine of its own. From the
    message of a cut it must compute the next output and, bit for bit, the message of the next cut; so it answers every
    suffix. It goes through the cuts from last to first, so anything that its machine keeps outside the state is wrong.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 2"
    length: ClassVar[int] = 32
    largest: ClassVar[int] = 1000
    width: ClassVar[int] = 16

    def check_length(self, length: int) -> None:
        if length < 2:
            raise BadInput(f"{self.name} has no length {length}: at least 2, to be cut")

    def check(self, length: int | None = None, rng: Rng | None = None, inputs: int = 16) -> CheckResult:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        machines = {name: self.machine(name) for name in MODELS.entries}
        names = [name for name, model in machines.items() if model.state_floats(1) == model.state_floats(2)]
        tokens = rng.child("tokens").rows(inputs).integers(length, 2) + 1
        cuts = {name: self.wrong_cuts(machines[name], self.machine(name), tokens) for name in names}
        wrong = [f"{name} at {len(at)} of {length - 1} cuts" for name, at in cuts.items() if at]
        return CheckResult(
            claim=self.name,
            length=length,
            holds=not wrong,
            checked=f"{len(names)} models, all cuts",
            inputs=len(names) * inputs,
            seconds=time.perf_counter() - begin,
            note=f"not by {', '.join(wrong)}" if wrong else "",
        )

    def machine(self, name: str) -> Model:
        machine: Model = named_model(name, width=self.width).build(*Parity().shape, Rng.seeded(0))  # type: ignore[assignment]
        return machine.double().eval()

    @torch.no_grad()
    def wrong_cuts(self, sender: Model, receiver: Model, tokens: Tensor) -> list[int]:
        """The cuts at which the message has other bits than the state, or does not lead to the sender's next output and
        next message."""
        rows, length = tokens.shape
        state, outputs, messages = sender.initial_state(rows), [], []
        for token in tokens.unbind(1):  # step by step: no kernel need be compiled
            output, state = sender.step(token, state)
            outputs.append(output)
            messages.append(message_of(state))
        wrong = []
        for cut in reversed(range(1, length)):
            message = messages[cut - 1]
            enough = 8 * len(message) == rows * state_bits(receiver, cut, precision=64)
            output, state = receiver.step(tokens[:, cut], received(receiver.initial_state(rows), message, cut))
            if not (enough and torch.equal(output, outputs[cut]) and message_of(state) == messages[cut]):
                wrong.append(cut)
        return wrong


def message_of(state: State) -> bytes:
    """The numbers of a state."""
    return b"".join(leaf.contiguous().numpy().tobytes() for leaf in pytree.tree_leaves(state) if _sent(leaf))


def _sent(leaf: Tensor) -> bool:
    return leaf.is_floating_point() or leaf.is_complex()


def received(blank: State, message: bytes, cut: int) -> State:
    """A state from a message; both parties know the number of tokens read."""
    leaves, shape = pytree.tree_flatten(blank)
    numbers = bytearray(message)
    filled = []
    for leaf in leaves:
        if _sent(leaf):
            size = leaf.numel() * leaf.element_size()
            filled.append(torch.frombuffer(numbers[:size], dtype=leaf.dtype).view(leaf.shape))
            numbers = numbers[size:]
        else:
            filled.append(torch.full_like(leaf, cut))
    return pytree.tree_unflatten(filled, shape)
