"""The page of an extraction: the automaton of a network, how it differs from the task's own, and an SRWM's programs."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from assay.analysis.titles import MODELS as MODEL_TITLES
from assay.analysis.titles import task_title
from assay.errors import BadInput
from assay.extract.graphs import graph_of, programs_graph
from assay.extract.learned import Learned
from assay.extract.machines import difference, named, outside_state, table
from assay.extract.picture import Graph, draw, png
from assay.extract.programs import PARTS, SelfModifying
from assay.models.registry import MODELS
from assay.record import Record
from assay.report.page import Page
from assay.tasks.automaton import Dfa, Machine
from assay.tasks.task import Task
from assay.tasks.words import readable

MOST_ROWS = 64  # states or programs of a table on the page; table.json has all
ABOUT = (
    "The network is asked for its answers to words, and active learning (the algorithm L*, with the Wp-method as its "
    "equivalence test) gives the automaton that answers them in the same way. What follows holds for the words that "
    "were asked; nothing here is proved for all."
)
PROGRAMS = (
    "The state of an SRWM is its weight matrix W, which is also its program: with W held fixed, each symbol has one "
    "answer. Reading a symbol changes W. Matrices are clustered by single linkage, with the largest "
    "threshold at which every cluster, a program, has one answer and one successor for each symbol. An arrow "
    "`symbol / answer` leads to the program that the symbol turns it into."
)


@dataclass(frozen=True)
class Extraction:
    """All that was extracted from one run."""

    record: Record
    learned: Learned
    programs: SelfModifying | None  # of an SRWM
    command: str

    @property
    def title(self) -> str:
        record = self.record
        model = MODEL_TITLES.get(record.model, record.model).removeprefix("the ")
        return f"The automaton of {model} on {task_title(record.spec['task'])}, seed {record.seed}"

    @property
    def folder(self) -> str:
        """A name for the folder of its page, valid on every file system."""
        record = self.record
        return f"automaton-{record.task}-{record.model}-{record.seed}".replace(":", "-")

    @property
    def run_task(self) -> str | None:
        """The command that trains the same model on the learned automaton; None if that is not a task."""
        dfa, model = own_task(self.learned), self.record.model.removesuffix("-repaired")
        return None if dfa is None else run_command(dfa, model if model in MODELS.entries or ":" in model else "MODEL")

    def plain(self) -> dict[str, Any]:
        dfa = own_task(self.learned)
        return {
            "run": self.record.digest,
            "automaton": self.learned.plain(),
            "self_modifying": self.programs and self.programs.plain(),
            "task": dfa and dfa.plain(),
            "run_task": self.run_task,
        }


def own_task(learned: Learned) -> Dfa | None:
    """The learned machine as a task: its language is the words with the answer 1, or else the last answer but dead.

    A symbol of several letters becomes a letter of its own. None if no state has that answer.
    """
    task, machine = learned.task, learned.machine
    accept = [q for q, answer in enumerate(machine.outputs.tolist()) if answer == accepted(task)]
    alphabet = "".join(task.symbols)
    if len(alphabet) != len(task.symbols):
        alphabet = ascii_lowercase[: len(task.symbols)]
    if not accept or len(alphabet) != len(task.symbols):
        return None
    return Dfa(alphabet=alphabet, table=tuple(map(tuple, machine.moves.tolist())), accept=tuple(accept))


def accepted(task: Task) -> int:
    """The answer that the task of a learned machine accepts."""
    return task.answers.index("1") if "1" in task.answers else len([a for a in task.answers if a != "dead"]) - 1


def run_command(task: Dfa, model: str) -> str:
    """The command that trains a model on this task."""
    options = {"alphabet": task.alphabet, "table": task.table, "accept": task.accept}
    pairs = [f"--set {shlex.quote(f'task.{name}={json.dumps(value)}')}" for name, value in options.items()]
    return f"assay run dfa {' '.join(pairs)} --model {model}"


def write(extraction: Extraction, folder: Path) -> list[Path]:
    """Write the page, pictures, tables and the task; returns the files."""
    learned, task = extraction.learned, extraction.learned.task
    page = Page(extraction.title, ABOUT)
    page.facts(_facts(extraction))
    wrong = learned.difference.word if learned.difference else ()
    _picture(
        page,
        "picture",
        lambda: graph_of(learned.machine, task, wrong),
        "The network's automaton",
        f"States with their answers, on {learned.domain}."
        + (f" Red: the wrong word {readable(wrong, task.symbols)}." if wrong else ""),
    )
    page.table("", *_states(learned.machine, task))
    _target(page, learned)
    if extraction.programs is not None:
        _programs(page, extraction.programs)
    dfa = own_task(learned)
    if dfa is not None:
        answer = task.answers[accepted(task)]
        text = f"Its language is the words with the answer {answer}: {extraction.run_task}"
        page.words("The automaton as a task", text)
        page.files["task.json"] = json.dumps(dfa.plain(), indent=1)
    page.files["table.json"] = json.dumps(extraction.plain(), indent=1)
    page.files["table.csv"] = _csv(*_states(learned.machine, task, most=None))
    if extraction.programs is not None:
        page.files["programs.csv"] = _csv(*_program_rows(extraction.programs, most=None))
    return page.save(folder)


def _facts(extraction: Extraction) -> list[str]:
    learned, record = extraction.learned, extraction.record
    facts = [f"The network: {learned.statement}."]
    if learned.limit:
        facts.append(f"The search ended early: {learned.limit}. The picture shows the last machine before that.")
    if extraction.programs is not None:
        facts.append(f"Self-modifying automaton: {extraction.programs.statement}.")
    facts.append(
        f"Run {record.digest}: {record.verdict} after {record.steps:,} steps, {record.parameters:,} parameters."
    )
    return [*facts, f"Made by: {extraction.command}"]


def _picture(page: Page, name: str, graph: Callable[[], Graph], heading: str, text: str) -> None:
    """A picture, or in its place why there is none."""
    try:
        svg = draw(graph())
    except BadInput as error:
        page.words(heading, f"{text} No picture: {error}.")
    else:
        page.picture(name, svg, png(svg), heading, text)


def _target(page: Page, learned: Learned) -> None:
    task, target = learned.task, learned.target
    heading = f"The automaton of {task_title(task.plain())} itself"
    if target is None:
        page.words(heading, "The task has none: every longer word can need a new state.")
    elif difference(learned.machine, target) is None:
        page.words(heading, f"It is the same: {len(target.moves)} states.")
    else:
        _picture(page, "task", lambda: graph_of(target, task), heading, "What the network should compute.")


def _states(machine: Machine, task: Task, most: int | None = MOST_ROWS) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a machine's table."""
    plain, outside = table(machine, task), outside_state(machine)
    name = {state: f"q{i}" for i, state in enumerate(q for q in range(len(machine.moves)) if q != outside)}
    rows = [
        [name[state], plain["answers"][state] or "-", *(name.get(successor, "outside") for successor in moves)]
        for state, moves in enumerate(plain["moves"])
        if state != outside
    ]
    return ["state", "answer", *task.symbols], rows[:most]


def _programs(page: Page, automaton: SelfModifying) -> None:
    _picture(page, "programs", lambda: programs_graph(automaton), "The self-modifying automaton", PROGRAMS)
    behaviours = automaton.behaviours
    note = f" Strings tell {behaviours} of them apart." if behaviours is not None else ""
    page.table(
        "Programs",
        *_program_rows(automaton),
        f"{automaton.statement}. The matrices of all {automaton.matrices:,} strings up to length "
        f"{automaton.clustered_to} ({automaton.domain}) make {len(automaton.programs)} programs; the threshold is "
        f"{automaton.threshold:.2f}, and the two nearest programs are {_number(automaton.gap)} apart.{note} After "
        f"{100 * automaton.followed:.0f} % of the longest strings, the network's matrix is nearest to the program that "
        "the automaton is in. Changed: the distance from the initial matrix, as a share of its norm. Spread: the mean "
        "distance of its matrices from their mean.",
    )
    if 1 < len(automaton.programs) <= 12:
        names = [f"W{i}" for i in range(len(automaton.programs))]
        page.table(
            "Distances between programs",
            ["", *names],
            [[name, *(f"{x:.2f}" for x in row)] for name, row in zip(names, automaton.distances.tolist(), strict=True)],
            "Between the mean matrices.",
        )
    page.table(
        "Programs by length",
        ["length", "strings", "programs"],
        [[str(n), f"{strings:,}", str(programs)] for n, strings, programs in automaton.growth],
        "How many programs the strings up to each length need, from these strings alone.",
    )


def _number(value: float) -> str:
    return f"{value:.2f}" if value < float("inf") else "-"


def _program_rows(automaton: SelfModifying, most: int | None = MOST_ROWS) -> tuple[list[str], list[list[str]]]:
    task = automaton.task
    rows = []
    for number, program in enumerate(automaton.programs[:most]):
        cells = [
            "?" if move is None else f"{'' if answer is None else named(answer, task)} -> W{move}"
            for move, answer in zip(program.moves, program.answers, strict=True)
        ]
        changed = [f"{100 * program.changed[part]:.1f} %" for part in PARTS]
        word = readable(program.word, task.symbols) or "(empty)"
        rows.append([f"W{number}", word, f"{program.strings:,}", *cells, *changed, f"{program.spread:.2f}"])
    moves = [f"{symbol}: answer, next" for symbol in task.symbols]
    return ["program", "shortest string", "strings", *moves, *(f"{part} changed" for part in PARTS), "spread"], rows


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()
