"""Linear and softmax Transformers of the same size: one task for each that the other cannot solve."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor, nn

from assay.errors import BadInput
from assay.models.attention import Attention, AttentionLayer
from assay.models.causal import state_bits
from assay.models.linear_attention import LinearAttention
from assay.models.mixer import split_heads
from assay.models.skeleton import Model, Stack
from assay.numbers import Fixed
from assay.rng import Rng
from assay.tasks.task import IGNORE, Task
from assay.theory.bounds.claims import LookupBits
from assay.theory.bounds.information import best_accuracy, bits_for
from assay.theory.bounds.memories import RecurrentProtocol, message_of
from assay.theory.claim import CheckResult, Claim, compared
from assay.theory.constructions.counters import add_up
from assay.theory.constructions.index_lookup import QuadraticLookup
from assay.theory.rounding import Rounded
from assay.theory.subspaces import Space, blank, embed, say

# -- what a sum does and a mean does not -------------------------------------------------------------------------------


class Lead(Task):
    """# and then letters: by how many the a lead the b. There is no question after a prefix whose lead is beyond +-K.

    >>> Lead(most=2).explain("#aabba")
    '012101'
    """

    kind: ClassVar[str] = "lead"
    symbols: ClassVar[tuple[str, ...]] = ("#", "a", "b")
    most: Annotated[int, Field(ge=1)] = 6

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(map(str, range(-self.most, self.most + 1)))

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        lead = ((inputs == 2).long() - (inputs == 3).long()).cumsum(1)
        within = (lead.abs() <= self.most).long().cummin(1).values == 1
        return (lead + self.most).where(within, IGNORE)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        """A random walk that is reflected at K and -K."""
        K, steps = self.most, 2 * rng.integers(width, 2) - 1
        steps[:, 0] = 0  # the #
        lead = ((steps.cumsum(1) + K) % (4 * K) - 2 * K).abs() - K
        return torch.where(lead.diff(dim=1, prepend=lead[:, :1]) == 1, 2, 3).index_fill(1, torch.tensor(0), 1)


class Confusion(NamedTuple):
    """What the rounded outputs of a layer say about words with different leads."""

    classes: int  # of leads that the outputs tell apart
    spread: float  # the largest difference of a number before it is rounded, in units of the format


class LinearNotSoftmax(Claim):
    """In fixed-point numbers of p >= 7 bits, one layer of linear attention of width 4 gives the lead of a over b,
    between -6 and 6, in words of every length; one layer of softmax attention of width 4 without positions does so at
    no length from 6 x 2^p on, for any weights and any function of its heads' outputs, rounded to p bits.

    Words are # and then letters, and their lead never leaves -K to K, K = 6. The p of the check is the largest for its
    length.

    Linear: the state is a sum, the lead itself. The check follows all reachable states of the machine whose every
    number is rounded, and finds 2 K + 1 of them, each with the right answer. So it is right at every length.

    Softmax: take words of T letters that end in a, with leads -K + 2, -K + 4, ..., K, one after another (the check has
    even T; for odd T, leads from -K + 1 to K - 1). Without positions a head's output depends on the numbers of a and b
    alone, and each of its d coordinates is monotone in the lead, as a quotient of two linear functions. From the first
    of these words to the last, at most K / T of the attention moves from one symbol to another: the odds of a, and of
    b, change by a factor of at most ((T + K) / (T - K))^2. Values of p bits differ by less than 2^p units, so for T >=
    K 2^p a coordinate changes by less than a unit, and its rounded value at most once. So d coordinates tell at most d
    + 1 leads apart, and there are K = d + 2. The check runs random layers, one that tells d + 1 leads apart, and one
    whose coordinates change the most.

    Attention weights are not rounded. Nothing is claimed about softmax attention with positions, with several layers,
    or with floating-point outputs, which are finer near 0.
    """

    source: ClassVar[str] = "own; a question of Irie et al. 2023"
    width: ClassVar[int] = 4
    most: ClassVar[int] = 6
    whole: ClassVar[int] = 6  # bits before the point
    length: ClassVar[int] = 6 << 8
    largest: ClassVar[int] = 6 << 12
    layers: ClassVar[int] = 60  # random ones
    inputs: ClassVar[int] = 64

    def precision(self, length: int) -> int:
        """The most bits p such that K 2^p letters are no more than these."""
        return bits_for(length // self.most + 1) - 1

    def check_length(self, length: int) -> None:
        least = self.most << self.whole + 1
        if length < least or length % 2:
            raise BadInput(f"{self.name} has no length {length}: even, and at least {least}")

    def check(self, length: int | None = None, rng: Rng | None = None) -> CheckResult:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        p, task = self.precision(length), Lead(most=self.most)
        format = Fixed(self.whole, p - 1 - self.whole)
        machine = Rounded(self.linear(task), format)
        wrong = self.wrong_states(machine, task)
        words = task.inputs(torch.full((self.inputs,), length + 1), rng.child("words").rows(self.inputs))
        seen = compared(machine(words)[0], task.solve(words))
        if seen.wrong:
            wrong.append(f"the linear layer is wrong on {seen.wrong} of {seen.inputs} words")
        explicit = self.best_layer(format), self.extreme_layer(format)
        layers = [*explicit, *self.random_layers(format, rng.child("layers"))]
        confusions = [self.confusion(layer, length, format) for layer in layers]
        most, spread = (max(column) for column in zip(*confusions, strict=True))
        if most > self.width + 1 or not spread < 1:
            wrong.append(
                f"a softmax layer tells {most} of {self.most} leads apart, with a spread of {spread:.3f} units"
            )
        if confusions[0].classes != self.width + 1:
            wrong.append(f"the best softmax layer tells {confusions[0].classes} leads apart, not {self.width + 1}")
        return CheckResult(
            claim=self.name,
            length=length,
            holds=not wrong,
            checked=f"all states; {len(layers)} layers",
            inputs=seen.inputs + len(layers) * self.most,
            width=self.width,
            bits=p,
            margin=seen.margin,
            seconds=time.perf_counter() - begin,
            note="; ".join(wrong) or f"softmax tells at most {most} of {self.most} leads apart",
        )

    # -- the linear Transformer ----------------------------------------------------------------------------------------

    def linear(self, task: Task) -> Model:
        """It adds up the steps; the logit of lead k is 2 k x - k^2, which is largest for the k nearest to x."""
        stream = Space(step=1, one=1, lead=1, unused=self.width - 3)
        mixers = (LinearAttention(heads=1, features="elu"),)
        model = blank(Stack(name="lead", mixers=mixers, width=self.width, ff=0, norm="none"), task)
        embed(model, stream.vector(step=[[0.0], [1.0], [-1.0]], one=1.0))
        add_up(model, 0, stream, stream.read("step"), stream.write("lead"))
        leads = torch.arange(-self.most, self.most + 1.0)
        say(model, 2 * leads[:, None] * stream.read("lead"), -(leads**2))
        return model

    def wrong_states(self, machine: Rounded, task: Task) -> list[str]:
        """Follow the machine from each state that it can reach, with every letter that stays within the leads."""
        _, first = machine.step(torch.tensor([1]), machine.initial_state(1))
        waiting, reached = [(first, 0)], {(message_of(first), 0)}
        while waiting:
            state, lead = waiting.pop()
            for token, step in ((2, 1), (3, -1)):
                following = lead + step
                if abs(following) > self.most:
                    continue
                logits, after = machine.step(torch.tensor([token]), state)
                if compared(logits[:, None], torch.tensor([[following + self.most]])).wrong:
                    return [f"the linear layer does not say {following}"]
                if (key := (message_of(after), following)) not in reached:
                    reached.add(key)
                    waiting.append((after, following))
            if len(reached) > len(task.answers):
                return [f"the linear layer has more than {len(task.answers)} states"]
        return []

    # -- softmax attention ---------------------------------------------------------------------------------------------

    def words(self, letters: int) -> Int[Tensor, "leads tokens"]:
        """Words with leads -K + 2, ..., K that end in a: # b^i (ba)^n, or # (ba)^n a^i."""
        leads = range(2 - self.most, self.most + 1, 2)
        parts = (([3] * -lead, [2] * lead, (letters - abs(lead)) // 2) for lead in leads)
        return torch.tensor([[1, *before, *([3, 2] * pairs), *after] for before, after, pairs in parts])

    def layer(self, heads: int, rng: Rng) -> AttentionLayer:
        """A layer whose output is that of its heads."""
        layer = Attention(heads=heads).build(self.width, rng).double().requires_grad_(requires_grad=False)
        layer.out.weight.copy_(torch.eye(self.width))
        return layer

    def random_layers(self, format: Fixed, rng: Rng) -> Iterator[AttentionLayer]:
        """Logits and values of many sizes; the vectors of symbols are one-hot, so a value is a column of weights."""
        for number in range(self.layers):
            draws = rng.child(number)
            layer = self.layer((1, 2, 4)[number % 3], draws)
            scores, values = layer.project.weight.split((2 * self.width, self.width))
            scores *= 4.0 ** (number % 5 - 1)
            values.copy_(format.round(values * 4.0 ** (number % 7 - 3)))
            yield layer

    def best_layer(self, format: Fixed) -> AttentionLayer:
        """It tells d + 1 leads apart: every logit is 0, and a coordinate is near the middle of two numbers.

        With the values v of #, 1 of a and 0 of b, in units, it is above 1/2 if and only if the lead is above 1 - 2 v.
        """
        layer, unit = self.layer(1, Rng.seeded(0)), 2.0**-format.fraction
        layer.project.weight.zero_()
        values = layer.project.weight[-self.width :]
        values[:, 0] = unit * (torch.arange(self.width) - (self.width - 1) // 2)
        values[:, 1] = unit
        return layer

    def extreme_layer(self, format: Fixed) -> AttentionLayer:
        """Its mean changes the most: every logit is 0, and the values of a and b are the largest and the smallest."""
        layer = self.layer(1, Rng.seeded(0))
        layer.project.weight.zero_()
        layer.project.weight[-self.width :, 1:3] = format.round(torch.tensor([1e9, -1e9], dtype=torch.float64))
        return layer

    def confusion(self, layer: AttentionLayer, letters: int, format: Fixed) -> Confusion:
        """Run a layer at the last token of each word."""
        x = nn.functional.one_hot(self.words(letters) - 1, self.width).double()
        _, k, v = (split_heads(part, layer.heads) for part in layer.project(x[:, :-1]).chunk(3, -1))
        outputs = layer.mix(x[:, -1:], (k, v), "reference")[0][:, 0]
        spread = float((outputs.amax(0) - outputs.amin(0)).max()) * 2.0**format.fraction
        return Confusion(len(format.round(outputs).unique(dim=0)), spread)


# -- what a cache does and a state of fixed size does not --------------------------------------------------------------


class SoftmaxNotLinear(Claim):
    """One layer of softmax attention of width 10 in float32 solves index lookup among N symbols of an alphabet of 64,
    up to N = 2,048; no linear Transformer of width 10 in float32 with L layers does if 3,200 L < 6 N: from N = 534 on,
    none with one layer, which has as many parameters.

    Softmax: `lookup-quadratic`. Linear: a layer's state has at most 10 x 10 numbers (with one head; fewer with more) of
    32 bits each. Two strings that lead to the same state get the same answers, and some index tells any two of the 64^N
    strings apart. The check counts the bits of the state in the class that is trained, sends it as a message at every
    cut of short inputs, and asks the oracle about pairs of strings. The linear Transformer may have any positions.
    """

    source: ClassVar[str] = "own; a question of Irie et al. 2023; after Bhattamishra et al. 2024, Theorems 1 and 3"
    length: ClassVar[int] = 1024
    largest: ClassVar[int] = 2048
    inputs: ClassVar[int] = 2000
    softmax: ClassVar[QuadraticLookup] = QuadraticLookup()
    needs: ClassVar[LookupBits] = LookupBits()

    def check_length(self, length: int) -> None:
        if not 534 <= length <= self.largest:
            raise BadInput(f"{self.name} has no length {length}: 534 to {self.largest}")

    def linear(self, length: int) -> Model:
        """The softmax Transformer of the construction with linear attention in its place, and other weights."""
        stack = Stack(name="linear", mixers=(LinearAttention(heads=1),), width=self.size(length), ff=4, norm="none",
                      positions="learned", longest=length + 1)  # fmt: skip
        return stack.build(*self.softmax.task(length).shape, Rng.seeded(0))

    def size(self, length: int) -> int:
        return self.softmax.build(length).read_out.in_features

    def check(self, length: int | None = None, rng: Rng | None = None) -> CheckResult:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        solved = self.softmax.check(length, rng, inputs=self.inputs)
        needed = self.needs.check(length, rng, inputs=self.inputs)
        one, other = (self.linear(length).double().eval() for _ in range(2))
        assert needed.bits is not None
        assert solved.bits is not None
        has = state_bits(one, length, precision=int(solved.bits))
        tokens = rng.child("tokens").rows(4).integers(8, self.softmax.task(length).alphabet) + 1
        conditions = {
            f"softmax fails: {solved.note}": solved.holds,
            f"the bound fails: {needed.note}": needed.holds,
            f"a state of {has:,} bits is large enough for {needed.bits:,}": has < needed.bits,
            "more than the state crosses a cut": not RecurrentProtocol().wrong_cuts(one, other, tokens),
            "the two have different numbers of parameters": parameters(one) == parameters(self.softmax.build(length)),
        }
        wrong = [failure for failure, holds in conditions.items() if not holds]
        share = best_accuracy(length, self.softmax.task(length).alphabet, has)
        note = (
            f"linear: {has:,} bits a layer, {needed.bits:,} needed: too few up to L = {(int(needed.bits) - 1) // has}; "
            f"one layer answers at most {share:.1%}"
        )
        return CheckResult(
            claim=self.name,
            length=length,
            holds=not wrong,
            checked="random; pairs of strings",
            inputs=solved.inputs + needed.inputs,
            width=solved.width,
            bits=solved.bits,
            margin=solved.margin,
            seconds=time.perf_counter() - begin,
            note="; ".join(wrong) or note,
        )


def parameters(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())
