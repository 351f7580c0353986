"""How large a model must be for a task: the bits it needs, its least width, and known explicit weights."""

from __future__ import annotations

import inspect
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import torch

from assay.errors import BadInput
from assay.models import MODELS, named_model
from assay.models.mixer import Mixer, MixerLayer
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.task import Task
from assay.theory.bounds.information import ANY_STRING, Need, Split, one_layer, one_way, two_way
from assay.theory.bounds.tables import Form, every_other, prefixes_told_apart, ranks
from assay.theory.claim import Construction
from assay.theory.registry import CLAIMS, named_claim

TABLE = 1 << 12  # inputs of a table that is computed in a moment
ENTRIES = 1 << 10  # of the table of an automaton whose weights are built in a moment
BUILT = 4096  # the N up to which weights are built in a moment, even if checking them takes long


@dataclass(frozen=True)
class Size:
    """One model: the bits that it must have, its least width with this many, and the size of explicit weights."""

    model: str
    layers: int
    bits: int | None  # that it must carry; for one layer of attention, that it must pass on
    width: int | None  # the least with this many bits
    claim: str | None  # the narrowest construction, its width, its layers, and the bits of its numbers
    claim_width: int | None
    claim_layers: int | None
    claim_precision: int | None
    known: str

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def sizes(task: Task, length: int, precision: int = 32) -> list[Size]:
    """A row for every model with its usual layers and heads; the length N is counted as in `Need`."""
    need = needed(task, length)
    built = list(constructions(task, length if need is None else need.tokens))
    rows = [_one_layer(two_way(task, length) or small_split(task, length), need, precision, built)]
    for name in MODELS.entries:
        recipe = Recipe(name)
        rows.append((_growing if recipe.grows else _recurrent)(recipe, need, precision, built))
    return rows


def curves(task: str | Task, lengths: Iterable[int], precision: int = 32) -> list[dict[str, Any]]:
    """The bits that a task needs and the bits that every model has at its usual size, as plain data."""
    task = named_task(task) if isinstance(task, str) else task
    machines = {name: Recipe(name).parts() for name in MODELS.entries}
    rows = []
    for length in lengths:
        need = needed(task, length)
        if need is not None:
            bits = max(need.bits, need.invariant)
            for name, parts in machines.items():
                has = precision * sum(part.state_floats(need.cut) for part in parts)
                rows.append({"task": task.kind, "length": length, "model": name, "needed": bits, "available": has})
    return rows


def needed(task: Task, length: int) -> Need | None:
    """The bits needed: in closed form, or from the table of a shorter length; None for real inputs without either."""
    if length < 1:
        raise BadInput(f"{task.kind} has no length {length}: at least 1")
    need = one_way(task, length)
    if need is not None or task.features:
        return need
    fits = [n for n in range(1, length + 1) if len(task.symbols) ** n <= TABLE][-2:]  # some tasks need an even length
    if not fits:  # too many symbols for a table of any length
        return None
    counted = {n: prefixes_told_apart(task, Form.any_string(task, n)) for n in fits}
    n, most = max(counted.items(), key=lambda item: (item[1].states, item[0]))
    more = "" if n == length else "; at N it may be more"
    return Need(most.bits, most.cut, n, ANY_STRING, f"the whole table of length {n}{more}")


def small_split(task: Task, length: int) -> Split | None:
    """The bits that two parties must exchange, from the table of a short length; they hold halves or every other
    token."""
    fits = [n for n in range(2, length + 1) if len(task.symbols) ** n <= TABLE] if task.symbols else []
    if not fits or task.features:
        return None
    n = fits[-1]
    splits = []
    for parts, first in (("halves", torch.arange(n) < n // 2), ("odd and even positions", every_other(n))):
        with suppress(BadInput):  # the task does not ask at the end of each string
            total = sum(ranks(task, Form.any_string(task, n), first).values())
            splits.append(Split((total - 1).bit_length(), n, parts, f"ranks at length {n}"))
    return max(splits, key=lambda split: split.bits, default=None)


# -- the rows ------------------------------------------------------------------------------------------------------


def _recurrent(recipe: Recipe, need: Need | None, precision: int, built: list[Built]) -> Size:
    if need is None:
        return _size(recipe, None, None, built, "no bound is known for real inputs, or so many symbols")
    bits, source = need.bits, need.source
    if not recipe.timed and need.invariant > bits:
        bits, source = need.invariant, "Lemma 4, as its updates are the same at every step"
    return _size(recipe, bits, recipe.width_with(-(-bits // precision), need.cut), built, source)


def _growing(recipe: Recipe, need: Need | None, precision: int, built: list[Built]) -> Size:
    """A model with attention keeps all that it has read, so a cut demands little."""
    known = "its cache grows with N; for more than one layer communication gives no bound (Lemma 5)"
    width = None if need is None else recipe.width_with(-(-need.bits // precision), need.cut)
    return _size(recipe, None if need is None else need.bits, width, built, known)


def _one_layer(split: Split | None, need: Need | None, precision: int, built: list[Built]) -> Size:
    recipe = Recipe("transformer", layers=1)
    least = _growing(recipe, need, precision, [weights for weights in built if weights.layers == 1])
    if split is None:
        return replace(least, known="its cache grows with N; no bound on one layer is known for this task")
    size = one_layer(split.bits, split.tokens, precision, heads=recipe.step)
    width = max(least.width or 0, -(-size.lean // recipe.step) * recipe.step)
    known = f"m H >= {size.lean:,}, by the paper's constant {size.paper:,}, between {split.parts}: {split.source}"
    return replace(least, bits=split.bits, width=width, known=known)


def _size(recipe: Recipe, bits: int | None, width: int | None, built: list[Built], known: str) -> Size:
    """A row with the narrowest construction; without one it is not known whether enough bits are enough."""
    same_model = (weights for weights in built if weights.model == recipe.name)
    claim = min(same_model, key=lambda weights: weights.width, default=None)
    layers = len(recipe.stack().mixers)
    if claim is None:
        return Size(recipe.name, layers, bits, width, None, None, None, None, known)
    weights = claim.claim, claim.width, claim.layers, claim.precision
    return Size(recipe.name, layers, bits, width, *weights, known)


# -- the least width that carries enough bits ----------------------------------------------------------------------


class Recipe:
    """A named model at any width, with its usual number of layers unless given."""

    def __init__(self, name: str, layers: int | None = None) -> None:
        self.name, self.options = name, {} if layers is None else {"layers": layers}

    def stack(self, **width: int) -> Stack:
        stack = named_model(self.name, **self.options, **width)
        assert isinstance(stack, Stack)
        return stack

    def parts(self, **width: int) -> list[MixerLayer]:
        """Its mixers, which hold the whole state."""
        stack = self.stack(**width)
        return [mixer.build(stack.width, Rng.seeded(0)) for mixer in stack.mixers]

    @cached_property
    def step(self) -> int:
        """Its widths are the multiples of this: heads have equal sizes, and even sizes if they rotate."""
        mixers = self.stack().mixers
        return math.lcm(*(getattr(mixer, "heads", 1) * (2 if _turns(mixer) else 1) for mixer in mixers))

    @cached_property
    def small(self) -> list[list[MixerLayer]]:
        return [self.parts(width=steps * self.step) for steps in (1, 2, 3)]

    @property
    def grows(self) -> bool:
        return any(part.state_floats(1) != part.state_floats(2) for part in self.small[0])

    @property
    def timed(self) -> bool:
        """Whether its updates depend on the position."""
        return self.stack().positions != "none" or any(map(_turns, self.stack().mixers))

    def width_with(self, floats: int, cut: int) -> int:
        """The least width whose state has this many numbers at a cut; their number is quadratic in the width."""
        one, two, three = (sum(part.state_floats(cut) for part in parts) for parts in self.small)

        def carried(steps: int) -> int:
            n = steps - 1
            return one + n * (two - one) + n * (n - 1) // 2 * (three - 2 * two + one)

        enough = next(1 << i for i in count() if carried(1 << i) >= floats)
        return self.step * bisect_left(range(enough + 1), floats, lo=1, key=carried)


def _turns(mixer: Mixer) -> bool:
    return bool(getattr(mixer, "rotates", False))


# -- constructions -------------------------------------------------------------------------------------------------


class Built(NamedTuple):
    """The explicit weights of a claim, in a model."""

    claim: str
    model: str
    width: int
    layers: int
    precision: int  # bits of its numbers


def constructions(task: Task, tokens: int) -> Iterator[Built]:
    """The constructions for this task at this length."""
    for name in CLAIMS.entries:
        for claim in _versions(name, task):
            length = _length(claim, task, tokens)
            if length is not None:
                model = claim.build(length)
                bits = torch.finfo(model.read_out.weight.dtype).bits
                yield Built(name, architecture(model), model.read_out.in_features, len(model.blocks), bits)
                break


def _versions(name: str, task: Task) -> Iterator[Construction]:
    """A construction with its default options, with the alphabet of the task, and with the task if it is small."""
    kind = CLAIMS.load(name)
    if not issubclass(kind, Construction):
        return
    yield named_claim(name)  # type: ignore[misc]
    alphabet = getattr(task, "alphabet", None)
    if alphabet is not None and "alphabet" in inspect.signature(kind).parameters:
        with suppress(BadInput):
            yield named_claim(name, alphabet=alphabet)  # type: ignore[misc]
    machine = getattr(task, "machine", None)
    if machine is not None and machine.moves.numel() <= ENTRIES:
        for option in {"task", "group"} & set(inspect.signature(kind).parameters):
            with suppress(BadInput):
                yield named_claim(name, **{option: task})  # type: ignore[misc]


def _length(claim: Construction, task: Task, tokens: int) -> int | None:
    """The least N at which a construction reads this many tokens of this task; None if there is none."""
    if claim.task(claim.length).kind != task.kind:
        return None
    for length in range(1, max(BUILT, claim.largest) + 1):
        if claim.tokens(length) >= tokens:
            with suppress(BadInput):  # the claim may not have this length
                claim.check_length(length)
                return length if _same(claim, task, length) else None
    return None


def _same(claim: Construction, task: Task, length: int) -> bool:
    """Whether a construction is for this task: all options are equal but those that grow with the length."""
    own, longer, other = (a_task.plain() for a_task in (claim.task(length), claim.task(2 * length), task))
    return all(own[field] == other[field] for field in own if own[field] == longer[field])


def architecture(model: Model) -> str:
    """The named model with the same mixers."""
    mixers = {_rule(block.mixer) for block in model.blocks}
    named = (name for name in MODELS.entries if {_rule(part) for part in Recipe(name).small[0]} == mixers)
    return next(named, "hybrid")


def _rule(part: Any) -> tuple[type, int, bool, int]:
    """What distinguishes the mixers of different models; several models share the class of a delta rule."""
    return type(part), getattr(part, "beta_range", 1), getattr(part, "steps", 1) > 1, getattr(part, "gates", 1)
