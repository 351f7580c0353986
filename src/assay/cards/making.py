"""Making a card: the subject is examined, its runs are carried out, and the references are read from records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from assay.cards.cost import measure_costs
from assay.cards.examination import Examination, examine_subject
from assay.cards.results import Card
from assay.cards.subject import subject_of
from assay.errors import BadInput
from assay.lab.carry_out import carry_out
from assay.lab.device import parse_device
from assay.lab.engines.choice import RunOptions, store_plan_and_engine
from assay.lab.engines.engine import OnEvent
from assay.models.skeleton import Architecture
from assay.record import Record
from assay.spec import RunSpec
from assay.store import Store
from assay.studies import RESULTS
from assay.studies.card import REFERENCES, scale_named

STORE = Path("assay-store")
ModelLike = str | Architecture | Callable[..., nn.Module]


class Making:
    """A card in the making: what it is about, what was examined, and the runs that are still to be carried out."""

    def __init__(
        self,
        model: ModelLike,
        against: Sequence[str] | None = None,
        scale: str = "laptop",
        store: Path = STORE,
        options: RunOptions | None = None,
        **model_options: Any,
    ) -> None:
        self.scale_name, self.scale, self.store = scale, scale_named(scale), store
        self.run_options = options or RunOptions()
        self.device = parse_device(self.run_options.device)
        self.subject = subject_of(model, self.scale, **model_options)
        self.examination: Examination = examine_subject(self.subject, self.scale, self.device)
        names = REFERENCES if against is None else against
        self.references = {name: subject_of(name, self.scale) for name in dict.fromkeys(names)}
        self.references.pop(self.subject.name, None)
        self.shipped = shipped_records(scale)

    @property
    def pending(self) -> list[RunSpec]:
        """The runs of the subject that do not ship."""
        return [run for run in self.examination.runs if run.digest not in self.shipped]

    def carry_out(self, on_event: OnEvent = lambda _: None) -> list[Record]:
        """Carry out the runs of the subject, except those that ship or are in the store; returns all its records."""
        pending = self.pending
        made = list[Record]()
        if pending:
            with store_plan_and_engine(pending, self.store, self.run_options) as (store, plan, engine):
                made = carry_out(plan, store, engine, on_event)
        return [*_select(self.shipped, self.examination.runs), *made]

    def card(self, records: Sequence[Record]) -> Card:
        """The card of the subject's records, beside the references that have some; costs are measured now."""
        known = Store.open(self.store) if (self.store / Store.MARK).exists() else None
        by_name: dict[str, Sequence[Record]] = {self.subject.name: records}
        missing, models = list[str](), {self.subject.name: self.subject.model}
        for name, reference in self.references.items():
            found = self._complete(self.scale.runs(reference.model), known)
            if not found:
                missing.append(name)
                continue
            by_name[name], models[name] = found, reference.model
        costs = measure_costs(models, self.device)
        return Card(self.subject, self.scale_name, self.scale, self.examination, by_name, tuple(missing), costs)

    def _complete(self, runs: Sequence[RunSpec], known: Store | None) -> list[Record]:
        """The records of a reference, for the tasks whose runs all have one: those that learn soon are stored first."""
        records = dict(self.shipped)
        if known:
            others = known.select([run.digest for run in runs if run.digest not in records])
            records |= {record.digest: record for record in others}
        without = {run.task.kind for run in runs if run.digest not in records}
        return _select(records, [run for run in runs if run.task.kind not in without])


def shipped_records(scale: str) -> Mapping[str, Record]:
    """The records of the references that come with Assay, by digest."""
    path = RESULTS / f"card-{scale}.jsonl.xz"
    return {record.digest: record for record in Store.open(path).records()} if path.exists() else {}


def _select(records: Mapping[str, Record], runs: Sequence[RunSpec]) -> list[Record]:
    return [records[run.digest] for run in runs if run.digest in records]


def card(
    model: ModelLike,
    *,
    against: Sequence[str] | None = None,
    scale: str = "laptop",
    out: Path | str | None = None,
    store: Path | str = STORE,
    device: str = "auto",
    jobs: int | None = None,
    **model_options: Any,
) -> Card:
    """Train an architecture on the battery of cards and compare it with reference architectures.

    `model` is what `assay card` takes, or a class that can be imported. With `out`, the card is written there as a page
    with its files; runs are kept in `store`.
    """
    if isinstance(against, str):
        raise BadInput(f"against = '{against}' is not valid: a list of names, as ['lstm', 'delta-net']")
    making = Making(model, against, scale, Path(store), RunOptions(device, jobs), **model_options)
    made = making.card(making.carry_out())
    if out is not None:
        from assay.cards.page import render

        render(made).save(Path(out))
    return made
