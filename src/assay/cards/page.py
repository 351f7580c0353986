"""The page of a card: verdicts, the matrix of tasks and lengths, tables, bounds and costs, and files beside it."""

from __future__ import annotations

from assay.cards import figures, files
from assay.cards.results import Card, Entry, sizes
from assay.cards.verdicts import headline, sentences
from assay.report.page import STYLE, Page, Shaded
from assay.report.provenance import provenance
from assay.report.text import or_dash, percent

CARD_STYLE = """
table.matrix th,table.matrix td{text-align:center;padding:.25rem .45rem}
table.matrix th:first-child,table.matrix td:first-child{text-align:left}
table.matrix td{font-size:12.5px;line-height:1.35}
table.long td{white-space:normal;text-align:left;vertical-align:top}
"""
MATRIX = (
    "A square of the chart shows how many seeds are right on every random test input up to this length; its shade is "
    "the share of right sequences in this bin. 1x has the training lengths; 2x, 4x and 10x go up to 2, 4 and 10 times "
    "the longest of them. In the table, a dash means that the task has no inputs of these lengths. Validation chose "
    'the learning rate of each row, and all seeds at this rate count. The table "Every task" has the shares of the '
    "references."
)
BESIDE = (
    "Each row is a task, with the kind of computation that it stands for. Each cell has the number of seeds that are "
    "right on every random input of all lengths, and below it the number of those that are also right on every probe "
    "(short patterns that repeat, long runs of one symbol, extreme positions). The darker a cell, the more seeds pass "
    "the probes."
)
NOTE = "validation chooses the learning rate, and all seeds at this rate count"


def render(card: Card) -> Page:
    page = Page(f"Card of {card.subject.title}", headline(card), STYLE + CARD_STYLE)
    page.words("Architecture and protocol", f"{card.subject.name}: {card.subject.description}. {_battery(card)}")
    page.words("Verdicts", "")
    page.facts(sentences(card))
    if card.examination.checks:
        header = ["examined before training", "outcome", "detail"]
        page.table("Examination", header, [list(check) for check in card.examination.checks], kind="long")
    if card.examination.shortened:
        page.facts([f"{card.titles[task]}: {remark}." for task, remark in card.examination.shortened.items()])
    _beside(page, card)
    page.chart("lengths", figures.lengths(card), "Right sequences by length", MATRIX)
    _matrix(page, card)
    _details(page, card)
    _sizes(page, card)
    _bounds(page, card)
    if card.costs:
        page.chart("cost", figures.cost(card), "Cost against length", COST)
        _costs(page, card)
    records = [record for records in card.records.values() for record in records]
    page.facts([*_missing(card), *provenance(records, 0, NOTE, card.titles), files.BESIDE])
    page.files |= files.files_of(card)
    return page


COST = (
    "Microseconds per token of a forward pass over 8 rows with one CPU thread, the best of three passes. They were "
    "measured on the machine that made this page, while it made the page, so only compare these rows with each other."
)


def _battery(card: Card) -> str:
    scale = card.scale
    rates = ", ".join(f"{rate:g}" for rate in scale.rates)
    return (
        f"The battery has {len(scale.questions)} tasks; each is trained at {len(scale.rates)} learning rates ({rates}) "
        f"from {scale.seeds} seeds for at most {scale.steps:,} steps. References have {scale.layers} layers of width "
        f"{scale.width} in the same skeleton."
    )


def _beside(page: Page, card: Card) -> None:
    """Tasks down, architectures across: random verdicts and probed ones."""
    header = ["task", *(card.title(name) for name in card.architectures)]
    rows: list[list[str | Shaded]] = []
    for question in card.scale.questions:
        entries = [card.entry(name, question.task) for name in card.architectures]
        task = f"{card.titles[question.task]}\n{question.stands_for}"
        rows.append([task, *map(_both_verdicts, entries)])
    page.table("Compared with the references", header, rows, BESIDE, kind="matrix")


def _both_verdicts(entry: Entry | None) -> str | Shaded:
    if entry is None:
        return "-"
    random, probed = len(entry.cell.right_on_random), len(entry.cell.solved)
    return Shaded(f"{random} of {entry.seeds}\n{probed} on probes", probed / entry.seeds)


def _matrix(page: Page, card: Card) -> None:
    """The subject alone: tasks down, lengths across."""
    rows: list[list[str | Shaded]] = [
        [card.titles[entry.question.task], *(_at_length(entry, bin_) for bin_ in card.columns)] for entry in card.own
    ]
    page.table(f"{card.subject.title} alone", ["task", *card.columns], rows, kind="matrix")


def _at_length(entry: Entry, bin_: str) -> str | Shaded:
    accuracy = entry.cell.accuracy(bin_) if bin_ in entry.bins else None
    if accuracy is None:
        return "-"
    return Shaded(f"{entry.right(bin_)} of {entry.seeds}\n{percent(accuracy)} %", accuracy)


def _details(page: Page, card: Card) -> None:
    header = ["task", "architecture", "rate", *card.columns, "random", "on probes"]
    header += ["shortest wrong input", "steps", "verdicts"]
    rows: list[list[str | Shaded]] = [
        [
            card.titles[entry.question.task],
            card.title(name),
            f"{entry.rate:g}",
            *(_share_at(entry, bin_) for bin_ in card.columns),
            f"{len(entry.cell.right_on_random)} of {entry.seeds}",
            f"{len(entry.cell.solved)} of {entry.seeds}",
            entry.word,
            or_dash(entry.cell.steps_to_solve),
            entry.cell.verdicts,
        ]
        for question in card.scale.questions
        for name in card.architectures
        if (entry := card.entry(name, question.task))
    ]
    text = (
        "1x to 10x: the share of right sequences in %. Random: seeds that are right on every random input. On probes: "
        "seeds that are also right on every probe. Steps: the median over the seeds that solve the task. A verdict "
        "says proved if the record has a certificate."
    )
    page.table("Every task", header, rows, text)


def _share_at(entry: Entry, bin_: str) -> str | Shaded:
    accuracy = entry.cell.accuracy(bin_) if bin_ in entry.bins else None
    return "-" if accuracy is None else Shaded(percent(accuracy), accuracy)


def _sizes(page: Page, card: Card) -> None:
    rows = []
    for name, records in card.records.items():
        size = sizes(records)
        bits = size["state_bits"]
        state = "unknown" if bits is None else f"{bits:,}"
        rows.append([card.title(name), or_dash(size["parameters"]), state, f"{len(card.solved_by(name))}"])
    text = (
        "Each number is the largest one over the tasks. For a module of your own or of another package the state is "
        "unknown, because Assay only calls it on whole inputs."
    )
    header = ["architecture", "parameters", "bits of state", "tasks solved by some seed"]
    page.table("Sizes", header, rows, text)


def _bounds(page: Page, card: Card) -> None:
    """What the tasks need, and whether the states of this page have it."""
    rows = [
        [
            card.titles[bound.task],
            f"{bound.length:,}",
            or_dash(bound.bits),
            "-" if bound.ceiling is None else f"{percent(bound.ceiling)} %",
            bound.source,
        ]
        for bound in card.bounds
    ]
    header = ["task", "longest input", "bits needed", "best accuracy with half of them", "inputs and source"]
    page.table("What theory says", header, rows, _enough(card), kind="long")


def _enough(card: Card) -> str:
    most = max((bound.bits for bound in card.bounds if bound.bits), default=0)
    known = {name: bits for name, records in card.records.items() if (bits := sizes(records)["state_bits"])}
    text = (
        "The number of bits that the state of any recurrent model must have if it is right on all inputs of the "
        "longest tested length; for index lookup also the best share of right answers with half of these bits. Theorem "
        "numbers are those of Bhattamishra et al. 2024 (docs/theory.md)."
    )
    own = known.get(card.subject.name)
    if known and min(known.values()) >= most:
        least = f"at least {min(known.values()):,} bits, and no task here needs more than {most:,}"
        text += f" Every known state on this page has {least}: none of their failures follows from too small a state."
    if own is None:
        text += f" The number of bits in the state of {card.subject.title} is unknown."
    return text


def _costs(page: Page, card: Card) -> None:
    lengths = sorted({cost.length for cost in card.costs})
    by_key = {(cost.architecture, cost.length): cost.microseconds for cost in card.costs}
    rows = [
        [card.title(name), *(_microseconds(by_key.get((name, length))) for length in lengths)]
        for name in card.architectures
    ]
    page.table("", ["architecture", *(f"{length:,} tokens" for length in lengths)], rows)


def _microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} µs"


def _missing(card: Card) -> list[str]:
    """The references and tasks without records, and how to make them."""
    lines = []
    if card.missing:
        how = "`assay card NAME` makes the records of one architecture"
        if card.scale_name != "laptop":
            how = f"Assay has none at this scale; `assay study card-{card.scale_name}` makes those of all references"
        lines.append(f"Without records: {', '.join(map(card.title, card.missing))}; {how}.")
    for name in card.architectures[1:]:
        tasks = card.tasks_of(name)
        absent = [card.titles[question.task] for question in card.scale.questions if question.task not in tasks]
        if absent:
            lines.append(f"{card.title(name)} has no complete records on {', '.join(absent)}.")
    return lines
