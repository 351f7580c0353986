"""A study as its page needs it: how its tasks are set up, and which runs make up its variants and pieces."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.analysis.lengths import Lengths, Place, place_of
from assay.analysis.titles import task_titles
from assay.findings import Comparison, Finding, Replication, Separations, Tracking
from assay.record import Record
from assay.studies import Study
from assay.tasks import TASKS
from assay.tasks.predictions import Prediction, predictions_for

if TYPE_CHECKING:
    from assay.spec import RunSpec

Span = tuple[int, int]  # least and most


@dataclass(frozen=True)
class TaskSetup:
    """A task in words, and the lengths, steps and batch sizes of its runs."""

    summary: str
    trained: Span
    bins: Sequence[Span]
    validated: int
    steps: Span
    batch: Span


@dataclass(frozen=True)
class StudySummary:
    """What a page says that no record does.

    Runs are named by their digests: `variants` has them by variant and task, `pieces` by piece. `places` has the length
    and the width of each run, for a study that has separations; `predicted` has what theory says of classes of models,
    by task, for a study that has tracking.
    """

    title: str
    question: str
    name: str
    findings: Sequence[Finding] = ()
    comparisons: Sequence[Comparison] = ()
    replication: Replication | None = None
    separations: Separations | None = None
    tracking: Tracking | None = None
    variants: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    pieces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tasks: Mapping[str, TaskSetup] = field(default_factory=dict)
    task_titles: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    predicted: Mapping[str, Mapping[str, Prediction]] = field(default_factory=dict)

    def task(self, kind: str) -> str:
        """The name of a task on the page."""
        return self.task_titles.get(kind, kind)

    @property
    def study_command(self) -> str:
        return f"assay study {shlex.quote(self.name)}"

    @property
    def report_command(self) -> str:
        return f"assay report {shlex.quote(self.name)}"

    @property
    def made_by(self) -> str:
        return f"Made by `{self.study_command}`, and this page by `{self.report_command}`."


def summarize(study: Study) -> StudySummary:
    digests = {id(run): run.digest for runs in (study.runs, *study.variants.values()) for run in runs}
    variants: dict[str, dict[str, list[str]]] = {}
    for variant, runs in study.variants.items():
        tasks = variants.setdefault(variant, {})
        for run in runs:
            tasks.setdefault(run.task.kind, []).append(digests[id(run)])
    tasks_by_data = {run.task: run.task.plain() for runs in study.variants.values() for run in runs}
    return StudySummary(
        study.title,
        study.about,
        study.name,
        study.findings,
        study.comparisons,
        study.replication,
        study.separations,
        study.tracking,
        variants,
        {piece: [run.digest for run in runs] for piece, runs in study.pieces.items()},
        _setups(study),
        task_titles(tasks_by_data.values()),
        _places(study, digests),
        predictions_for({task.kind: task for task in tasks_by_data}.values()) if study.tracking else {},
    )


def _places(study: Study, digests: Mapping[int, str]) -> dict[str, Place]:
    """The place of each run of a variant; runs that differ in the seed alone share the work."""
    if study.separations is None:
        return {}
    settings: dict[tuple[str, str], Place] = {}
    places = {}
    for run in (run for runs in study.variants.values() for run in runs):
        if run.around_seed not in settings:
            settings[run.around_seed] = place_of(run.plain())
        places[digests[id(run)]] = settings[run.around_seed]
    return places


def lengths_of(summary: StudySummary, records: Sequence[Record]) -> Lengths:
    """The cells of a study that has separations."""
    return Lengths(summary.variants, summary.places, summary.pieces, records)


def piece_sizes(study: Study) -> dict[str, int]:
    """The number of runs of each piece."""
    return {piece: len(runs) for piece, runs in study.pieces.items()}


def _setups(study: Study) -> dict[str, TaskSetup]:
    """How the tasks of the first comparison are set up; its variants may differ in steps and batch size."""
    by_task: dict[str, list[RunSpec]] = {}
    for variant in study.comparisons[0].variants if study.comparisons else ():
        for run in study.variants.get(variant, ()):
            by_task.setdefault(run.task.kind, []).append(run)
    return {task: _setup(task, runs) for task, runs in by_task.items()}


def _setup(task: str, runs: Sequence[RunSpec]) -> TaskSetup:
    training, steps, batches = runs[0].training, {r.training.steps for r in runs}, {r.training.batch for r in runs}
    return TaskSetup(
        TASKS.entries[task].summary if task in TASKS.entries else "",
        training.lengths,
        sorted(((bin_.low, bin_.high) for bin_ in runs[0].testing.bins), key=lambda span: span[1]),
        max(bin_.high for bin_ in training.validation),
        (min(steps), max(steps)),
        (min(batches), max(batches)),
    )
