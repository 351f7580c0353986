"""Lower bounds as claims: a closed form, a witness that the oracle confirms, and at small lengths the whole table."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from assay.errors import BadInput
from assay.models.attention import Attention
from assay.models.skeleton import Model, Norm, Stack
from assay.rng import Rng
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.equality import Disjointness, EqualityRandom
from assay.tasks.index_lookup import IndexLookup
from assay.tasks.neighbour import NearestNeighbour
from assay.tasks.recall import MultiQueryRecall, Recall
from assay.tasks.task import Task
from assay.theory.bounds import protocol, witnesses
from assay.theory.bounds.information import bits_for, one_layer
from assay.theory.bounds.protocol import Outcome, Scales
from assay.theory.bounds.tables import Form, prefixes_told_apart, ranks
from assay.theory.bounds.witnesses import Fooling, Prefixes, Witness
from assay.theory.claim import RANDOM, CheckResult, Claim, Examined
from assay.theory.codes import trace_code
from assay.theory.constructions.equality import EqualityOneLayer

PRECISION = 16  # bits of a number, for bounds on a width
PROTOCOL_INPUTS = 16  # on which the protocol is run with each layer
SHARP = 4.0  # the factor of the queries of random layers, whose attention is nearly uniform otherwise


class LowerBound(Claim):
    """A number of states that no machine may confuse: it needs log2 of this number of bits."""

    small: ClassVar[tuple[int, ...]]  # lengths at which the whole table is checked
    even: ClassVar[bool] = False  # whether lengths must be even

    @abstractmethod
    def task(self, length: int) -> Task: ...

    @abstractmethod
    def states(self, length: int) -> int:
        """The number of states, in closed form."""

    @abstractmethod
    def mistakes(self, length: int) -> list[str]:
        """Errors of the closed form at a small length, in words."""

    @abstractmethod
    def examine(self, length: int, rng: Rng, inputs: int) -> Examined: ...

    def note(self, length: int) -> str:
        return ""

    def check_length(self, length: int) -> None:
        least = min(self.small)
        if length < least or (self.even and length % 2):
            raise BadInput(f"{self.name} has no length {length}: {'even, and ' if self.even else ''}at least {least}")

    def check(self, length: int | None = None, rng: Rng | None = None, inputs: int = RANDOM) -> CheckResult:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        small = [n for n in self.small if n <= length]
        wrong = [f"at length {n} {mistake}" for n in small for mistake in self.mistakes(n)]
        seen = self.examine(length, rng, inputs)
        if seen.wrong:
            wrong.append(f"{seen.wrong:,} of {seen.inputs:,} random ones fail")
        return CheckResult(
            claim=self.name,
            length=length,
            holds=not wrong,
            checked=f"all of {small[0]} to {small[-1]}, random" if len(small) > 1 else f"all of {small[0]}, random",
            inputs=seen.inputs,
            bits=bits_for(self.states(length)),
            seconds=time.perf_counter() - begin,
            note="; ".join(wrong) or self.note(length),
        )


class Witnessed(LowerBound):
    """A bound whose closed form must equal the size of a witness and the count in the table of all answers."""

    @abstractmethod
    def witness(self, length: int) -> Witness: ...

    @abstractmethod
    def form(self, length: int) -> Form:
        """The inputs of the table of all answers."""

    @abstractmethod
    def counted(self, length: int) -> int:
        """The number of states that the table shows."""

    def mistakes(self, length: int) -> list[str]:
        states, witness = self.states(length), self.witness(length)
        counts = {"in the table": self.counted(length), "in the witness": witness.size}
        wrong = [f"there are {count:,} {where}, not {states:,}" for where, count in counts.items() if count != states]
        confused = witness.check_all().wrong
        return wrong + ([f"{confused:,} pairs could be confused"] if confused else [])

    def examine(self, length: int, rng: Rng, inputs: int) -> Examined:
        witness = self.witness(length)
        seen = witness.check(rng, inputs)
        return seen if witness.size == self.states(length) else seen._replace(wrong=seen.inputs)


# -- recurrent machines --------------------------------------------------------------------------------------------


class RecurrentBound(Witnessed):
    """The states are prefixes of one length that suffixes tell apart."""

    @abstractmethod
    def witness(self, length: int) -> Prefixes: ...

    def counted(self, length: int) -> int:
        return prefixes_told_apart(self.task(length), self.form(length)).states


class LookupBits(RecurrentBound):
    """A recurrent machine that solves index lookup over N symbols of an alphabet S carries at least N log2 |S| bits."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 3"
    length: ClassVar[int] = 400
    largest: ClassVar[int] = 16_000
    small: ClassVar[tuple[int, ...]] = (2, 3, 4)

    def task(self, length: int) -> IndexLookup:
        return IndexLookup(alphabet=64 if length > max(self.small) else 4, positions=length)

    def states(self, length: int) -> int:
        return int(self.task(length).alphabet ** length)

    def witness(self, length: int) -> Prefixes:
        return witnesses.strings_looked_up(self.task(length), length)

    def form(self, length: int) -> Form:
        symbols, index = torch.arange(1, self.task(length).alphabet + 1), torch.arange(1, length + 1)
        return Form((symbols,) * length + (len(symbols) + index,))


class RecallBits(RecurrentBound):
    """A recurrent machine that recalls the value of one of N keys carries at least N bits; with V values, N log2 V."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Proposition 9"
    length: ClassVar[int] = 200
    largest: ClassVar[int] = 8000
    small: ClassVar[tuple[int, ...]] = (2, 3)

    def task(self, length: int) -> Recall | MultiQueryRecall:
        return Recall(vocabulary=self.vocabulary(length))

    def vocabulary(self, length: int) -> int:
        return max(512, 2 * (length + 1)) if length > max(self.small) else 8

    def pairs(self, length: int) -> int:
        return length

    def states(self, length: int) -> int:
        return int(self.task(length).keys ** self.pairs(length))

    def witness(self, length: int) -> Prefixes:
        return witnesses.values_recalled(self.task(length), self.pairs(length))

    def form(self, length: int) -> Form:
        keys = torch.arange(1, self.pairs(length) + 1)
        values = torch.arange(1, self.task(length).keys + 1) + self.task(length).keys
        return Form((*(choice for key in keys for choice in (key[None], values)), keys))


class MqarBits(RecallBits):
    """A recurrent machine that solves multi-query recall over N/2 pairs carries at least N/2 bits; with V values,
    (N/2) log2 V."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 8"
    length: ClassVar[int] = 400
    largest: ClassVar[int] = 16_000
    small: ClassVar[tuple[int, ...]] = (4, 6)
    even: ClassVar[bool] = True

    def task(self, length: int) -> MultiQueryRecall:
        return MultiQueryRecall(vocabulary=self.vocabulary(length), pairs_bound=self.pairs(length))

    def pairs(self, length: int) -> int:
        return length // 2


class NeighbourBits(RecurrentBound):
    """A recurrent machine that finds the label of the nearest of N/2 points carries at least N/2 bits: all labels."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 8"
    length: ClassVar[int] = 100
    largest: ClassVar[int] = 2000
    small: ClassVar[tuple[int, ...]] = (4, 8, 12)
    even: ClassVar[bool] = True

    def task(self, length: int) -> NearestNeighbour:
        return NearestNeighbour(dimension=trace_code(length // 2, gamma=0.9).k)

    def states(self, length: int) -> int:
        return 1 << length // 2

    def witness(self, length: int) -> Prefixes:
        return witnesses.neighbours(self.task(length), length // 2)

    def form(self, length: int) -> Form:
        prefix = self.witness(length).prefix(torch.tensor([[0] * (length // 2), [1] * (length // 2)]))
        points, labels = prefix[0, ::2], prefix[:, 1]
        return Form((*(choice for point in points for choice in (point[None], labels)), points))


class Halves(Witnessed):
    """Inputs are two strings of N/2 bits with a # between them."""

    length: ClassVar[int] = 400
    largest: ClassVar[int] = 16_000
    small: ClassVar[tuple[int, ...]] = (2, 4, 6, 8, 10)
    even: ClassVar[bool] = True

    def states(self, length: int) -> int:
        return 1 << length // 2

    def form(self, length: int) -> Form:
        bits = (torch.tensor([1, 2]),) * (length // 2)
        return Form((*bits, torch.tensor([3]), *bits))


class EqualityBits(Halves, RecurrentBound):
    """A recurrent machine that decides whether two strings of N/2 bits are equal carries at least N/2 bits."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 11"

    def task(self, length: int) -> EqualityRandom:
        return EqualityRandom()

    def witness(self, length: int) -> Prefixes:
        return witnesses.first_halves(self.task(length), length)


# -- one layer of attention ----------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """A model with one layer of attention on which the protocol is run."""

    model: Model
    precision: int
    length: int
    solves: bool  # whether its answers are those of the task


class OneLayerBound(Witnessed):
    """The states are a fooling set for a partition of the positions.

    That a layer passes on no more bits than the protocol sends is checked by running the protocol on layers of the
    class that is trained: each number of each head must be the layer's own up to the rounding of the messages, with no
    more bits than d p + H (2 m p + 4 p + 2 log2 N).
    """

    @abstractmethod
    def witness(self, length: int) -> Fooling: ...

    def counted(self, length: int) -> int:
        task, fooling = self.task(length), self.witness(length)
        return ranks(task, self.form(length), fooling.first)[task.answers[fooling.answer]]

    def note(self, length: int) -> str:
        tokens = len(self.witness(length).first)
        size = one_layer(bits_for(self.states(length)), tokens, PRECISION)
        return f"at {PRECISION} bits m H >= {size.paper:,} by the paper's constant, {size.lean:,} by the lean protocol"

    def check(self, length: int | None = None, rng: Rng | None = None, inputs: int = RANDOM) -> CheckResult:
        rng = Rng.seeded(0, "claim") if rng is None else rng
        result, begin = super().check(length, rng, inputs), time.perf_counter()
        layers = self.layers(result.length, rng.child("layers"))
        failures = [failure for layer in layers for failure in self.failures(layer, rng.child("protocol"))]
        notes = failures if result.holds and failures else [result.note, *failures]
        if result.holds and not failures:
            notes.append(f"the protocol is right on {len(layers)} layers")
        return replace(
            result,
            holds=result.holds and not failures,
            inputs=result.inputs + PROTOCOL_INPUTS * len(layers),
            seconds=result.seconds + time.perf_counter() - begin,
            note="; ".join(notes),
        )

    # -- the protocol --------------------------------------------------------------------------------------------------

    def layers(self, length: int, rng: Rng) -> list[Layer]:
        """Random layers of three sizes, with positions of their own."""
        sizes: tuple[tuple[int, int, Norm], ...] = ((1, 8, "none"), (2, 8, "pre"), (4, 16, "pre"))
        return [Layer(self.random_layer(length, *size, rng.child(*size)), PRECISION, length, False) for size in sizes]

    def random_layer(self, length: int, heads: int, width: int, norm: Norm, rng: Rng) -> Model:
        stack = Stack(name="one-layer", mixers=(Attention(heads=heads),), width=width, ff=1, norm=norm,
                      positions="learned", longest=len(self.witness(length).first))  # fmt: skip
        model = stack.build(*self.task(length).shape, rng).double().eval().requires_grad_(requires_grad=False)
        protocol.layer_of(model).project.weight[:width] *= SHARP
        return model

    def run_protocol(self, layer: Layer, tokens: Tensor, scales: Scales) -> Outcome:
        return protocol.run_protocol(layer.model, tokens, self.witness(layer.length).first, scales)

    def failures(self, layer: Layer, rng: Rng) -> list[str]:
        """What the protocol gets wrong on members of the fooling set, on exchanges of them, and on any strings."""
        task, witness, model = self.task(layer.length), self.witness(layer.length), layer.model
        count, rows = len(witness.first), rng.rows(PROTOCOL_INPUTS)
        members = witness.member(rows.child("members").integers(len(witness.bases), torch.tensor(witness.bases)))
        symbols = rows.child("symbols").integers(count, len(task.symbols)) + 1
        kind = torch.arange(PROTOCOL_INPUTS)[:, None] % 3
        exchanged = torch.where(witness.first, members, members.roll(1, 0))
        tokens = torch.where(kind == 0, members, torch.where(kind == 1, exchanged, symbols))
        scales = protocol.agree_on_scales(model, count, len(task.symbols), layer.precision)
        outcome, (heads, _) = self.run_protocol(layer, tokens, scales), protocol.direct(model, tokens)
        allowed, off = protocol.bits_allowed(model, count, layer.precision), float((outcome.heads - heads).abs().max())
        wrong = []
        if outcome.bits > allowed:
            wrong.append(f"the protocol sends {outcome.bits:,} bits, more than {allowed:,.0f}")
        if outcome.overflow or not off <= scales.rounding:
            wrong.append(f"the protocol is off by {off:.1e}, more than {scales.rounding:.1e}")
        if layer.solves and not torch.equal(outcome.logits.argmax(-1), task.solve(tokens)[:, -1]):
            wrong.append("the protocol's answers are not the task's")
        if layer.solves and outcome.bits < bits_for(self.states(layer.length)):
            wrong.append(f"{outcome.bits:,} bits solve the task: the bound is wrong")
        return wrong


class EqualityLayer(Halves, OneLayerBound):
    """One layer of attention that decides whether two strings of N/2 bits are equal must pass on at least N/2 bits.

    The protocol also runs on the layer of `equality-one-layer`, up to its largest length, and answers as the task does.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 12"
    construction: ClassVar[EqualityOneLayer] = EqualityOneLayer()

    def task(self, length: int) -> EqualityRandom:
        return EqualityRandom()

    def witness(self, length: int) -> Fooling:
        return witnesses.equal_halves(self.task(length), length)

    def layers(self, length: int, rng: Rng) -> list[Layer]:
        n = min(length, self.construction.largest)
        explicit = Layer(self.construction.build(n).double(), precision=32, length=n, solves=True)
        return [*super().layers(length, rng), explicit]


class DisjointnessLayer(Halves, OneLayerBound):
    """One layer of attention that decides whether two subsets of N/2 things are disjoint must pass on at least N/2
    bits."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 4, with Kushilevitz and Nisan 1997"

    def task(self, length: int) -> Disjointness:
        return Disjointness()

    def witness(self, length: int) -> Fooling:
        return witnesses.complements(self.task(length), length)


class DyckLayer(OneLayerBound):
    """One layer of attention that recognises Dyck-(2,2) must pass on at least N - 1 bits between the odd and the even
    positions."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 5"
    length: ClassVar[int] = 400
    largest: ClassVar[int] = 16_000
    small: ClassVar[tuple[int, ...]] = (2, 4, 6, 8)
    even: ClassVar[bool] = True

    def task(self, length: int) -> BoundedDyck:
        return BoundedDyck(k=2, depth=2)

    def states(self, length: int) -> int:
        return 1 << length - 1

    def witness(self, length: int) -> Fooling:
        return witnesses.nested(self.task(length), length)

    def form(self, length: int) -> Form:
        return Form.any_string(self.task(length), length)
