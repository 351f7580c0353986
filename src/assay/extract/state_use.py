"""How many bits of its input the state of a recurrent machine carries, as far as decoders can read them.

A decoder is trained to read the symbol at a position from the final state. By the data processing inequality
log2 |S| minus its cross-entropy in bits, on strings that it has not seen, is a lower bound on the information that the
state has about this symbol (Barber and Agakov 2003). Symbols of uniform strings are independent, so the sum over all
positions is a lower bound on the information about the string. Few positions are decoded, and their mean stands for
all: the sum is an estimate of this bound. What no decoder of this kind finds in so many strings is not counted.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.models.skeleton import Model
from assay.numbers import read_format
from assay.rng import Rng
from assay.tasks.index_lookup import IndexLookup
from assay.theory.bounds.information import bits_at_error

MOST_STRINGS, FEWEST_STRINGS = 16384, 2048
WORK, NUMBERS = 2e11, 1 << 28  # at most so many multiplications for all states, and so many numbers in them
DECODED = 8  # positions
WIDE, COMPONENTS, HIDDEN = 2048, 512, 256
STEPS, BATCH, EVERY = 400, 512, 20
RATE, SLOWER, DECAY = 2e-2, 3e-3, 1e-1  # rates fall to 0 in a straight line; large states need the slower one
CHUNK = 1 << 21  # numbers of the states of one pass


class Parts(NamedTuple):
    """Strings and states for training a decoder, for choosing when it stops, and for the reported bits."""

    training: slice
    validation: slice
    testing: slice


@torch.no_grad()
def final_states(model: Model, prefixes: Int[Tensor, "strings length"]) -> Float[Tensor, "strings floats"]:
    """All numbers of the state after each string."""
    model.eval()
    rows = max(1, CHUNK // max(model.state_floats(1), prefixes.shape[1] * model.read_out.in_features))
    states = []
    for part in prefixes.split(rows):
        leaves = pytree.tree_leaves(model(part)[1][1])
        real = [torch.view_as_real(x) if x.is_complex() else x for x in leaves]
        states.append(torch.cat([x.float().reshape(len(part), -1) for x in real if x.is_floating_point()], 1))
    return torch.cat(states)


def state_use(model: Model, task: IndexLookup, length: int, numbers: str, rng: Rng) -> dict[str, Any]:
    """What the state after N symbols carries, and what it must carry for the accuracy that the machine reaches."""
    count = _strings(model, length)
    prefixes = rng.rows(count).child("symbols").integers(length, task.alphabet) + 1
    states = final_states(model, prefixes)
    right = accuracy(model, task, prefixes[count * 7 // 8 :], rng.child("queries"))
    positions = strata(length, DECODED)
    symbols = prefixes[:, positions] - 1
    linear, both = decoded_bits(states, symbols, task.alphabet, rng.child("decoders"))
    use: dict[str, Any] = {
        "strings": count,
        "accuracy": round(right, 4),
        "needed": round(must_carry(length, task.alphabet, right), 1),
        "input_bits": round(length * math.log2(task.alphabet), 1),
        "positions": [p + 1 for p in positions],
    }
    for name, bits in (("linear", linear), ("nonlinear", both)):
        use[name] = round(max(0.0, sum(bits) * length / len(positions)), 1)
        use[f"{name}_by_position"] = [round(x, 3) for x in bits]
    return use | (counts(states, numbers) if numbers != "float32" else {})


def must_carry(length: int, alphabet: int, right: float) -> float:
    """The least bits of a state with which this share of the answers can be right (Fano); none below guessing.

    >>> round(must_carry(400, 64, 1.0)), must_carry(400, 64, 1 / 64)
    (2400, 0.0)
    """
    return bits_at_error(length, alphabet, 1 - right) if right > 1 / alphabet else 0.0


def counts(states: Float[Tensor, "strings floats"], numbers: str) -> dict[str, Any]:
    """Exact counts of a rounded state over the strings that were drawn.

    `coordinate_bits` adds log2 of the number of values of each number of the state: the states that occurred cannot
    be told apart by more bits.
    """
    values = [len(column.unique()) for column in states.T]
    return {
        "distinct": len(states.unique(dim=0)),
        "coordinate_bits": round(sum(map(math.log2, values)), 1),
        "state_bits": states.shape[1] * read_format(numbers).bits,
    }


@torch.no_grad()
def accuracy(model: Model, task: IndexLookup, prefixes: Int[Tensor, "strings length"], rng: Rng) -> float:
    """The share of right answers to one random index after each string."""
    index = rng.integers(len(prefixes), prefixes.shape[1]) + task.alphabet + 1
    inputs = torch.cat([prefixes, index[:, None]], 1)
    rows = max(1, CHUNK // (inputs.shape[1] * model.read_out.in_features))
    answers = torch.cat([model(part)[0][:, -1].argmax(-1) for part in inputs.split(rows)])
    return float((answers == task.solve(inputs)[:, -1]).double().mean())


def strata(length: int, most: int) -> list[int]:
    """The middles of equal parts of the positions.

    >>> strata(3, 5), strata(100, 4)
    ([0, 1, 2], [12, 37, 62, 87])
    """
    count = min(length, most)
    return [math.floor((i + 0.5) * length / count) for i in range(count)]


def _strings(model: Model, length: int) -> int:
    parameters = sum(p.numel() for p in model.parameters())
    count = min(WORK / (parameters * length), NUMBERS / model.state_floats(length))
    return 8 * (int(min(MOST_STRINGS, max(FEWEST_STRINGS, count))) // 8)


# -- decoders ----------------------------------------------------------------------------------------------------------


def decoded_bits(
    states: Float[Tensor, "strings floats"], symbols: Int[Tensor, "strings positions"], alphabet: int, rng: Rng
) -> tuple[list[float], list[float]]:
    """For each position, log2 |S| minus the cross-entropy in bits on strings that were not trained on: of two decoders.

    Both read the largest principal components of the states. One is linear; the other begins as this one, and has relus
    beside. They stop where strings kept for this purpose say. One that was not trained at all has 0 bits.
    """
    count = len(states)
    parts = Parts(slice(0, count * 3 // 4), slice(count * 3 // 4, count * 7 // 8), slice(count * 7 // 8, count))
    x = components(states, parts.training)
    nothing = [0.0] * symbols.shape[1]
    if not x.shape[1]:  # all states are equal
        return nothing, nothing
    decoder = Decoder(x.shape[1], symbols.shape[1] * alphabet, rng)
    data = x, symbols, parts, alphabet
    linear_parameters = [decoder.bias, decoder.direct]
    _trained(decoder, linear_parameters, RATE, data, rng.child("linear"))
    linear = _trained(decoder, linear_parameters, SLOWER, data, rng.child("slower"))
    both = _trained(decoder, list(decoder.parameters()), SLOWER, data, rng.child("both"))
    return linear, both


def _trained(
    decoder: Decoder, parameters: list[nn.Parameter], rate: float, data: tuple[Tensor, Tensor, Parts, int], rng: Rng
) -> list[float]:
    """Train some parameters, leave the decoder in its best state by validation, and return its bits by position."""
    x, symbols, parts, alphabet = data
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    best, kept = -math.inf, decoder.state_dict()
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            with torch.no_grad():
                now = float(_bits(decoder, x[parts.validation], symbols[parts.validation], alphabet).sum())
            if now > best:
                best, kept = now, {name: value.clone() for name, value in decoder.state_dict().items()}
        rows = rng.child(step).integers(BATCH, parts.training.stop)
        loss = -_bits(decoder, x[rows], symbols[rows], alphabet).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    decoder.load_state_dict(kept)
    with torch.no_grad():
        bits: list[float] = _bits(decoder, x[parts.testing], symbols[parts.testing], alphabet).tolist()
    return bits


def components(states: Float[Tensor, "strings floats"], training: slice) -> Float[Tensor, "strings components"]:
    """The largest principal components, each with variance 1 over the training strings.

    A very large state is first multiplied by a matrix of random signs, to fewer numbers.
    """
    if states.shape[1] > WIDE:
        bits = Rng.seeded(0, "signs").rows(states.shape[1]).integers(WIDE, 2)
        states = states @ (2.0 * bits - 1).float() / WIDE**0.5
    centred = (states - states[training].mean(0)).double()
    covariance = centred[training].T @ centred[training] / training.stop
    values, vectors = torch.linalg.eigh(covariance)
    kept = values.flip(0)[:COMPONENTS] > 1e-9 * values[-1].clamp(min=1e-30)
    vectors = vectors.flip(1)[:, :COMPONENTS][:, kept]
    scaled: Tensor = centred @ vectors / values.flip(0)[:COMPONENTS][kept].sqrt()
    return scaled.float()


class Decoder(nn.Module):
    """A linear map, and relus whose outputs are added. It begins at 0: every symbol is equally likely."""

    def __init__(self, inputs: int, outputs: int, rng: Rng) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.direct = nn.Parameter(torch.zeros(outputs, inputs))
        self.first = nn.Parameter(rng.child("hidden").rows(HIDDEN).normal(inputs) / inputs**0.5)
        self.second = nn.Parameter(torch.zeros(outputs, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.direct, self.bias)
        return y + nn.functional.linear(nn.functional.linear(x, self.first).relu(), self.second)


def _bits(decoder: nn.Module, x: Tensor, symbols: Int[Tensor, "strings positions"], alphabet: int) -> Tensor:
    logits = decoder(x).view(-1, alphabet)
    losses = nn.functional.cross_entropy(logits, symbols.flatten(), reduction="none").view(symbols.shape)
    bits: Tensor = math.log2(alphabet) - losses.mean(0) / math.log(2)
    return bits
