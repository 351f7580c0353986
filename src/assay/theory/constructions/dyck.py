"""Bounded Dyck languages, by a recurrent network with a stack of bits and by two layers of attention."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from assay.models.attention import Attention
from assay.models.rnn import Elman
from assay.models.skeleton import Model, Stack
from assay.tasks.bounded_dyck import BoundedDyck
from assay.theory.claim import Construction
from assay.theory.codes import binary_digits
from assay.theory.constructions.recall import EXACT, parabola, previous
from assay.theory.subspaces import Map, Relus, Space, attend, average, blank, embed, place, say


class DyckRnn(Construction):
    """A ReLU network with (2 D + 1) ceil(1 + log2 k) + 2 units, all but one of them 0 or 1, recognises Dyck-(k, D)
    among all strings, at every length.

    Its state is the stack, top first. A slot is a 1 and the bits of a bracket's type, or zeros if it is empty. An
    opening bracket moves every slot down; a closing bracket is compared with the top and moves every slot up.
    [a and not b] is relu(a - b). A slot may be filled from above or from below, so it is the sum of two units.
    """

    source: ClassVar[str] = "own, for a remark of Bhattamishra et al. 2024"
    length: ClassVar[int] = 100
    largest: ClassVar[int] = 1000
    any_string: ClassVar[bool] = True

    def __init__(self, k: int = 2, depth: int = 2) -> None:
        self.k, self.depth = k, depth
        self.task(0)  # raises BadInput if k or depth is not valid
        self.small = tuple(n for n in range(1, 9) if (2 * k) ** n <= 1 << 16)  # type: ignore[misc]
        self.types = torch.cat([torch.ones(k, 1), binary_digits(k)[:, : (k - 1).bit_length()]], dim=1)

    def task(self, length: int) -> BoundedDyck:
        return BoundedDyck(k=self.k, depth=self.depth)

    def state_bits(self) -> int:
        """All units are 0 or 1 but the last, which holds how many bits differed at the first mistake."""
        bits = self.types.shape[1]
        return self.space().width - 1 + math.ceil(math.log2(bits + 1))

    def space(self) -> Space:
        bits, D = self.types.shape[1], self.depth
        slots = {f"pushed {s}": bits for s in range(1, D + 1)} | {f"popped {s}": bits for s in range(1, D)}
        return Space(**slots, missing=bits, surplus=bits, overflow=1, past=1)

    def build(self, length: int) -> Model:
        state, bits, D = self.space(), self.types.shape[1], self.depth
        token = Space(opens=bits, closes=bits, unused=state.width - 2 * bits)
        stack = Stack(name="dyck", mixers=(Elman(activation="relu"),), width=state.width, ff=0, norm="none",
                      residual=False)  # fmt: skip
        model = blank(stack, self.task(length))
        brackets = [token.vector(opens=self.types), token.vector(closes=self.types)]
        embed(model, torch.stack(brackets, dim=1).flatten(0, 1))
        mixer: Any = model.blocks[0].mixer

        def unit(name: str, of_state: Map, of_token: Map) -> None:
            mixer.R[0, 0, state.slices[name]] = of_state
            mixer.project.weight[state.slices[name]] = of_token

        def slot(s: int) -> Map:
            return state.read(f"pushed {s}") + (state.read(f"popped {s}") if s < D else 0)

        opens, closes = token.read("opens"), token.read("closes")
        is_open, is_closed, nothing = opens[:1], closes[:1], torch.zeros(1, state.width)
        top, wrong = slot(1), state.read("missing", "surplus", "overflow", "past").sum(0, keepdim=True)
        unit("pushed 1", nothing, opens)
        for s in range(1, D):
            unit(f"pushed {s + 1}", slot(s), -is_closed)
            unit(f"popped {s}", slot(s + 1), -is_open)
        unit("missing", -top - wrong, closes)  # only the first mistake counts, so no number grows
        unit("surplus", top - wrong, -closes - is_open)
        unit("overflow", slot(D)[:1] - wrong, -is_closed)
        unit("past", wrong, nothing)
        say(model, torch.cat([top[:1] + wrong, -top[:1] - wrong]), torch.tensor([-0.5, 0.5]))
        return model


class DyckTwoLayers(Construction):
    """A two-layer Transformer of width 12 recognises Dyck-(2, 2) among all strings up to length N.

    Until the first mistake the depth before an even position is 1. Before an odd position it is 2 if the previous token
    opens a bracket, and 0 otherwise. So at an odd position the token must close the previous bracket if that opens, and
    open a bracket otherwise. At an even position any bracket may open; a closing bracket must have the type of the
    latest bracket that was opened at an odd position, the only open one. There are no other mistakes before the end,
    and the last token must close a bracket at an even position. Beyond N = 4096 the machine is in float64, since
    float32 has too few bits for the logits 2 (i - 1) j - j^2.
    """

    source: ClassVar[str] = "own; what one layer needs: Bhattamishra et al. 2024, Theorem 5"
    length: ClassVar[int] = 64
    largest: ClassVar[int] = 256
    small: ClassVar[tuple[int, ...]] = (1, 2, 3, 4, 5, 6, 7, 8)
    any_string: ClassVar[bool] = True
    sharp: ClassVar[float] = 4.0

    def task(self, length: int) -> BoundedDyck:
        return BoundedDyck(k=2, depth=2)

    def build(self, length: int) -> Model:
        stream = Space(opens=1, type=1, odd=1, first=1, j=1, j_squared=1, one=1, last_opens=1, last_type=1, base_type=1,
                       mistake=1, mistakes=1)  # fmt: skip
        stack = Stack(name="dyck-2-2", mixers=(Attention(heads=2), Attention(heads=1)), width=stream.width, ff=1,
                      norm="none", positions="learned", longest=length)  # fmt: skip
        model = blank(stack, self.task(length))
        brackets = torch.tensor([(1.0, 1.0), (0, 1), (1, -1), (0, -1)])
        embed(model, stream.vector(opens=brackets[:, :1], type=brackets[:, 1:]))
        counted = torch.arange(1.0, length + 1)[:, None]
        place(model, parabola(stream, length) + stream.vector(odd=counted % 2, first=counted == 1))
        self.see(model, stream, length)
        self.judge(model, stream)
        self.remember(model, stream, length)
        return model if length <= EXACT else model.double()

    def see(self, model: Model, stream: Space, length: int) -> None:
        """Copy the previous token, and the type of the latest bracket opened at an odd position (logit j + 2 N
        flags)."""
        opens, odd, one = stream.read("opens"), stream.read("odd"), stream.read("one")
        query, key = previous(stream, self.sharp)
        attend(model, 0, query, key, value=stream.read("opens", "type"), into=stream.write("last_opens", "last_type"))
        query = self.sharp / 2 * torch.cat([one, 2 * length * one])  # odd positions are 2 apart
        key = torch.cat([stream.read("j"), odd + opens])
        attend(model, 0, query, key, value=stream.read("type"), into=stream.write("base_type"), head=1)

    def judge(self, model: Model, stream: Space) -> None:
        """Six units, one for each kind of mistake: 1/2 before the ReLU if it is made, and at most -1/2 otherwise."""
        opens, odd, last_opens = (stream.read(name) for name in ("opens", "odd", "last_opens"))
        mistakes, into = Relus(model, 0), 2 * stream.write("mistake")
        mistakes.unit(odd - opens - last_opens, -0.5, into)  # closes at depth 0
        mistakes.unit(odd + opens + last_opens - 2 * stream.read("first"), -2.5, into)  # opens at depth 2
        for sign in (0.5, -0.5):
            to_last = sign * (stream.read("type") - stream.read("last_type"))
            to_base = sign * (stream.read("type") - stream.read("base_type"))
            mistakes.unit(odd - opens + last_opens + to_last, -2.5, into)  # closes another type at depth 2
            mistakes.unit(-odd - opens + to_base, -0.5, into)  # closes another type at depth 1

    def remember(self, model: Model, stream: Space, length: int) -> None:
        """Detect any mistake so far by the mean over all positions, where one mistake counts 1 / N or more."""
        into = stream.write("mistakes")
        average(model, 1, value=stream.read("mistake"), into=into)
        any_mistake = Relus(model, 1)
        any_mistake.between(stream.read("mistakes"), 0.25 / length, into, high=0.75 / length)
        any_mistake.clear(stream.read("mistakes"), into)
        rejects = stream.read("opens") + stream.read("odd") + stream.read("mistakes")
        say(model, torch.cat([rejects, -rejects]), torch.tensor([-0.5, 0.5]))
