"""What the weights of a study's runs show: where attention looks, and what a state of fixed size carries.

One run speaks for each variant, length, width and format of the state: the first seed with weights, at the rate that
validation chose, or else at any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from assay.analysis.inspections import PARTS
from assay.analysis.lengths import Lengths, SizedCell, accuracy, state_bits
from assay.errors import BadInput
from assay.extract.attention_focus import focus
from assay.extract.state_use import state_use
from assay.findings import Separations
from assay.lab.weights import load_model
from assay.models.attention import AttentionLayer
from assay.models.skeleton import Model
from assay.record import Record
from assay.rng import Rng
from assay.spec import RunSpec
from assay.store import Store
from assay.tasks.index_lookup import IndexLookup
from assay.theory.constructions.index_lookup import Lookup, RandomLookup, TraceLookup

EXPLICIT: dict[str, type[Lookup]] = {"lookup-trace": TraceLookup, "lookup-random": RandomLookup}
WIDEST = 512  # explicit weights that are wider are not built: the published vectors of a long string


def inspect(
    separations: Separations, lengths: Lengths, command: str, on_run: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """The inspection of all machines of the study's lookup task whose weights were kept, as plain data."""
    attention, states, asked = [], [], set[tuple[int, int]]()
    for cell, record in runs_with_weights(separations.lookup, lengths):
        task, model = RunSpec(**record.spec).task, load_model(record)
        if not (isinstance(task, IndexLookup) and isinstance(model, Model)):
            continue
        place = cell.place
        on_run(f"{cell.variant}, width {place.width}, N = {place.length}")
        row = {"variant": cell.variant, **place._asdict(), "seed": record.seed, "digest": record.digest}
        row |= {"right": round(accuracy(record), 4), "parameters": record.parameters}
        rng = Rng.seeded(0, "inspection")
        if any(isinstance(layer, AttentionLayer) for layer in model.modules()):
            attention.append(row | focus(model, task, place.length, rng))
            asked.add((place.length, task.alphabet))
        elif (bits := state_bits(record)) is not None:
            row |= {"floats": record.state_floats, "bits": bits}
            states.append(row | state_use(model, task, place.length, place.numbers, rng))
    if not attention and not states:
        raise BadInput(f"no run of {separations.lookup} has weights here; make them with: --weights all --again")
    explicit = [row for n, s in sorted(asked) for row in explicit_focus(n, s)]
    data = {"study": separations.title, "command": command, "attention": attention, "explicit": explicit}
    assert set(data) | {"states"} == PARTS
    return data | {"states": states}


def explicit_focus(length: int, alphabet: int) -> Iterator[dict[str, Any]]:
    """Where the explicit weights of the theorem look, at the same length and with as many symbols."""
    for name, construction in EXPLICIT.items():
        lookup = construction(alphabet)
        model, task = lookup.build(length), lookup.task(length)
        width = model.read_out.in_features
        if width <= WIDEST:
            yield {"claim": name, "length": length, "width": width} | focus(
                model, task, length, Rng.seeded(0, "inspection")
            )


def runs_with_weights(task: str, lengths: Lengths) -> Iterator[tuple[SizedCell, Record]]:
    """For each cell of a task with kept weights, the run that speaks."""
    for cell in lengths.cells.values():
        if cell.place.task != task:
            continue
        candidates = [*cell.seeds, *sorted(cell.records, key=lambda record: (-accuracy(record), record.seed))]
        record = next((record for record in candidates if _has_weights(record)), None)
        if record is not None:
            yield cell, record


def _has_weights(record: Record) -> bool:
    return bool(record.origin and Store.open(record.origin).weights_file(record.digest))
