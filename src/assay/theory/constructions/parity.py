"""Parity, exact at every length, by five recurrent machines."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch

from assay.models.delta_rule import DeltaRule
from assay.models.mixer import Mixer
from assay.models.recurrent_delta import RecurrentDelta
from assay.models.rnn import Elman, Lstm
from assay.models.skeleton import Model, Stack
from assay.tasks.regular import Parity
from assay.theory.claim import Recurrent
from assay.theory.constructions.automata import DfaSrwm
from assay.theory.subspaces import FAR, Map, Space, blank, embed, program, say

ONE = torch.ones(1, 1)  # the only map of a stream with one coordinate


class ParityMachine(Recurrent):
    """One layer and a linear read-out, without residual, norm or feed-forward part."""

    length: ClassVar[int] = 1000
    largest: ClassVar[int] = 100_000

    def task(self, length: int) -> Parity:
        return Parity()

    def bare(self, mixer: Mixer, width: int) -> Model:
        stack = Stack(name="parity", mixers=(mixer,), width=width, ff=0, norm="none", residual=False)
        return blank(stack, Parity())


def say_parity(model: Model, odd: Map) -> None:
    """Answer odd if `odd` x = 1, and even if it is 0."""
    say(model, torch.cat([odd, -odd]), torch.tensor([0.0, 1.0]))


class DeltaNetParity(ParityMachine):
    """DeltaNet with beta up to 2 computes parity at every length: with beta = 2 a write is a reflection, which reflects
    one number about 1, from 0 to 2 and back."""

    source: ClassVar[str] = "own; after Grazzi et al. 2024"
    reach: ClassVar[Literal[1, 2]] = 2  # the largest beta

    def build(self, length: int) -> Model:
        stream = Space(one=1, bit=1)
        model, one = self.bare(DeltaRule(heads=1, features="unit", beta=self.reach), stream.width), stream.read("one")
        embed(model, stream.vector(one=1.0, bit=[[-1.0], [1.0]]))
        program(model, 0, one, [(one, one, FAR * stream.read("bit"))], into=one.T)
        say_parity(model, one / 2)
        return model


class LstmParity(ParityMachine):
    """One LSTM unit computes parity at every length.

    The cell c is 0 or 1. A bit of 0 keeps it (f = 1, i = 0). A bit of 1 forgets it (f = 0), and writes a 1 (i = 1,
    g = 1) only if h = tanh(c) was 0.
    """

    source: ClassVar[str] = "own"
    saturation: ClassVar[float] = FAR

    def build(self, length: int) -> Model:
        model, far = self.bare(Lstm(), width=1), self.saturation
        embed(model, torch.tensor([[0.0], [1.0]]))
        lstm: Any = model.blocks[0].mixer
        i, f, g, o = range(4)
        lstm.project.weight[[i, f]] = far * torch.tensor([[2.0], [-2.0]])
        lstm.project.bias[[i, f, g, o]] = far * torch.tensor([-1.0, 1.0, 1.0, 1.0])
        lstm.R[0, 0, i] = -2 * far
        say_parity(model, ONE / math.tanh(1))
        return model


class RecurrentDeltaParity(ParityMachine):
    """One head of size 1 of the recurrent delta rule computes parity at every length: its last output flips the value
    that it writes.

    W is 0 or c. A bit of 0 writes nothing (beta = 0); a bit of 1 replaces W by c - c tanh(W) / tanh(c). Two such writes
    multiply a small error by (c / sinh(c))^2 < 1, so errors die out.
    """

    source: ClassVar[str] = "own"
    c: ClassVar[float] = 2.0

    def build(self, length: int) -> Model:
        model = self.bare(RecurrentDelta(heads=1), width=1)
        embed(model, torch.tensor([[-1.0], [1.0]]))
        mixer: Any = model.blocks[0].mixer
        _, _, v = mixer.project.weight.split(1)
        v.fill_(self.c)
        mixer.R_v[0, 0] = -self.c / math.tanh(self.c)
        mixer.beta.weight.fill_(FAR)
        mixer.out.weight.copy_(ONE)
        say_parity(model, ONE / self.c)
        return model


class SrwmParity(DfaSrwm):
    """One self-referential weight matrix with 7 rows computes parity at every length, as a special case of automata."""

    source: ClassVar[str] = "own"
    length: ClassVar[int] = 500
    largest: ClassVar[int] = 20_000

    def __init__(self) -> None:
        super().__init__(Parity())


class ElmanParity(ParityMachine):
    """A ReLU network with two units computes parity at every length: odd' = |bit - odd| = relu(bit - odd) +
    relu(odd - bit)."""

    source: ClassVar[str] = "own"

    def build(self, length: int) -> Model:
        model = self.bare(Elman(activation="relu"), width=2)
        embed(model, torch.tensor([[0.0, 0.0], [1.0, -1.0]]))
        rnn: Any = model.blocks[0].mixer
        rnn.project.weight.copy_(torch.eye(2))
        odd = torch.tensor([[1.0, 1.0]])  # the sum of both units
        rnn.R[0, 0] = torch.tensor([[-1.0], [1.0]]) @ odd
        say_parity(model, odd)
        return model
