"""Findings as data: what a paper found, or what we did, and which variants a study compares.

A finding is a sentence and the outcomes that it predicts: these variants learn these tasks, those fail. Study files
write findings with these classes; `assay.analysis.findings` judges them.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from pydantic import model_validator

from assay.description import Description

Outcome = Literal["learns", "fails", "diverges", "collapses"]
ABOUT_SEEDS = ("learns", "fails")  # of the chosen setting; the other outcomes are about all runs


class Expectation(Description):
    """The outcome that a finding predicts for a variant on a task.

    `up_to` is the last test bin that must be learned: Bin1 is as far as the first paper looked. A variant diverges or
    collapses if at least a tenth of all its runs do, in any setting; without a task, of its runs on all tasks.
    `length` is the N of the task (see `Separations`), where a study has a task at several lengths.
    """

    kind: ClassVar[str] = "expectation"
    added: ClassVar[tuple[str, ...]] = ("length",)
    variant: str
    outcome: Outcome
    task: str = ""
    up_to: str = "Bin1"
    length: int | None = None

    @model_validator(mode="after")
    def _needs_a_task(self) -> Expectation:
        if self.outcome in ABOUT_SEEDS and not self.task:
            raise ValueError(f"an expectation that {self.variant} {self.outcome} needs a task")
        return self


class Finding(Description):
    """An empirical statement of the paper that a study repeats, or one `asked_here`.

    `quote` is the paper's own sentence, without which a finding does not count as the paper's in a replication.
    `differs` explains the difference where the records do not support the statement.
    """

    kind: ClassVar[str] = "finding"
    name: str
    says: str
    source: str
    quote: str = ""
    asked_here: bool = False
    expects: tuple[Expectation, ...]
    differs: str = ""


class Comparison(NamedTuple):
    """Variants of a study side by side, on the named tasks or else on all tasks that any of them was run on."""

    title: str
    says: str
    variants: tuple[str, ...]
    tasks: tuple[str, ...] = ()


class Change(NamedTuple):
    """One step from our protocol towards the published one: which runs speak, and through which of their states.

    Its runs are those of the variants whose names end in `suffix` (as in `delta-net, long`): the mean over the seeds at
    the chosen rate, or the best run at any rate. They may be tested on the other strings of their task.
    """

    title: str
    says: str
    suffix: str = ""
    state: Literal["last", "best", "averaged", "watched"] = "last"
    best_run: bool = False
    other_strings: bool = False


class Choice(NamedTuple):
    """A choice of a protocol, as published and here.

    `effect` names the two changes between which only this choice differs; `see` the comparison that is about it.
    """

    name: str
    published: str
    here: str
    effect: tuple[str, str] | None = None
    see: str = ""


class Replication(NamedTuple):
    """What the page of a replication needs beside findings: a study that has one judges them by two rules.

    `configurations` says which variants are sizes, rates and ways of training of one model: by the published rule the
    best run of any of them speaks. `contested` are the models and tasks that `changes` are shown for. `main` names the
    finding that the first sentence is about, and `questions` says for each piece what it answers.
    """

    title: str
    main: str
    configurations: dict[str, tuple[str, ...]]
    changes: tuple[Change, ...]
    contested: tuple[tuple[str, str], ...]
    protocol: tuple[Choice, ...]
    questions: dict[str, str]

    @property
    def decisive(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """For each contested pair the variants that repeat published choices: without them nothing is out of reach."""
        named = {name for choice in self.protocol for name in choice.effect or ()}
        suffixes = dict.fromkeys(change.suffix for change in self.changes if change.title in named)
        return {(model, task): tuple(model + suffix for suffix in suffixes) for model, task in self.contested}


class Separations(NamedTuple):
    """What the page of a study needs that asks which size of which architecture solves a task of which length.

    A variant of such a study has all widths, rates, rounded states and seeds of one architecture with one number of
    layers, on its tasks at all lengths; the page takes the width, the state and the length N from the runs. N is that
    of the theorems: the symbols before the index, the tokens of both strings, the pairs to recall, or the length of the
    longest training input. A run solves N if it is right in the test bins that end within the training lengths.

    `main` names the finding of the first sentence. `recurrent` are the variants in the first picture, accuracy against
    bits of the state on the task `lookup`, and `attention` the one beside them, whose memory grows. `growing` are the
    pairs of variant and task whose smallest solving size is drawn over N; `depths` are those with one layer and with
    more that stand side by side, on `depth_tasks`. `questions` says for each piece what it answers.
    """

    title: str
    main: str
    recurrent: tuple[str, ...]
    attention: str
    lookup: str = "index-lookup"
    growing: tuple[tuple[str, str], ...] = ()
    depths: tuple[tuple[str, ...], ...] = ()
    depth_tasks: tuple[str, ...] = ()
    questions: dict[str, str] = {}  # noqa: RUF012 (of a NamedTuple)


class Column(NamedTuple):
    """A column of published numbers, and the task and the test bin of ours that stand beside it.

    `chance` is the accuracy of a constant answer, for numbers that are scaled to it.
    """

    task: str
    bin: str
    chance: float = 0.0


class PublishedTable(NamedTuple):
    """Numbers of a paper, in %, by variant of the study and by column.

    `measure`: accuracy is the share of right answers; scaled accuracy is 0 at chance and 100 without a mistake; error
    is the share of wrong answers. `names` are the paper's own for the variants, where they differ from ours.
    """

    title: str
    source: str
    protocol: str  # how they were made, as far as it is known, and what differs here
    measure: Literal["accuracy", "scaled accuracy", "error"]
    columns: dict[str, Column]
    numbers: dict[str, dict[str, float]]
    names: dict[str, str] = {}  # noqa: RUF012 (of a NamedTuple)


class Tracking(NamedTuple):
    """What the page of a study needs that sets many architectures beside what theory and papers say of them.

    `groups` are the variants by kind, in the order of the first picture. `classes` names for each variant the class of
    models in `assay.tasks.predictions` that it belongs to, if it belongs to one. `published` are tables of papers.
    """

    title: str
    groups: dict[str, tuple[str, ...]]
    classes: dict[str, str]
    published: tuple[PublishedTable, ...]
    questions: dict[str, str]
