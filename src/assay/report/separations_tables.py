"""The sections of a page about separations after its first screen, and the files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.analysis.bounds import bounds_of, state_points, task_bounds
from assay.analysis.cells import Cell
from assay.analysis.growth import Growth, Smallest, Standard, growth
from assay.analysis.lengths import (
    FLOAT32,
    LengthCell,
    LengthJudgement,
    Lengths,
    accuracy,
    state_bits,
)
from assay.analysis.refutations import GENERAL_FORM, refutations
from assay.analysis.rules import SHARES
from assay.analysis.settings import LEARNED
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title
from assay.findings import Separations
from assay.record import Record
from assay.report import separations_figures as figures
from assay.report.files import as_csv, escaped, title_tex
from assay.report.findings import LEARNED_IN_PERCENT, holds_for
from assay.report.page import Page, Shaded
from assay.report.text import in_percent, or_dash, percent

LINES = (
    "Filled marks: the smallest tried width at which some run solves N; with more steps a smaller one might. Hollow: "
    "no tried width solves N; drawn at the largest one. Dashed: explicit weights that solve N. Dotted, where there is "
    "one: a lower bound for the width, with 32 bits per number."
)
SOLVED_BY: dict[Standard, str] = {"reachable": "some run", "reliable": "most seeds"}


def examples(lengths: Lengths) -> dict[tuple[str, str], Record]:
    """A record of each variant on each task, from which theory takes the architecture and the task."""
    found: dict[tuple[str, str], Record] = {}
    for (variant, place), cell in lengths.cells.items():
        if cell.records:
            found.setdefault((variant, place.task), cell.records[0])
    return found


# -- sizes -------------------------------------------------------------------------------------------------------------


def sizes(page: Page, summary: StudySummary, lengths: Lengths, growths: Sequence[Growth]) -> None:
    reachable = [one for one in growths if one.standard == "reachable"]
    page.chart("sizes", figures.sizes(reachable, examples(lengths), summary), "Which width solves N?", LINES)
    rows = [_growth_row(one, summary) for one in growths if one.points]
    every = sorted({point.length for one in growths for point in one.points})
    page.table(
        "",
        ("task", "model", "solved by", "grows like", "exponent c of N^c", *(f"N = {n}" for n in every)),
        [[*row[:5], *(row[5].get(n, "") for n in every)] for row in rows],
        "The last columns have the smallest tried width that solves N: by some run of any rate, or by most seeds of "
        "the rate that validation chose. '> 64': no tried width up to 64 does. 'At most 8': narrower ones have runs "
        "that are not finished. Growth: both forms, a + b log N and a + b N, are fitted 1,000 times to the smallest "
        "widths. Each time the seeds are drawn again, with replacement, and each smallest width is drawn between the "
        "one in the table and the next narrower one that was tried and fails. A form is named if it fits better in at "
        "least 95 % of these fits, if the exponent agrees (below 1 for log N, above 1/2 for N), and if all widths up "
        "to the smallest have finished. Exponent: median and 95 % interval. Empty: fewer than three lengths are "
        "solved.",
    )


def _growth_row(one: Growth, summary: StudySummary) -> tuple[str, str, str, str, str, dict[int, str]]:
    nearer = ", ".join(f"{form} {100 * share:.0f} %" for form, share in one.nearer.items())
    form = f"{one.decision or 'undecided'} ({nearer})" if one.nearer else ""
    exponent = f"{one.exponent[0]:.2f} ({one.exponent[1]:.2f} to {one.exponent[2]:.2f})" if one.exponent else ""
    widths = {point.length: _width(point) for point in one.points}
    return summary.task(one.task), row_title(one.variant), SOLVED_BY[one.standard], form, exponent, widths


def _width(point: Smallest) -> str:
    if point.width is None:
        return f"> {point.tried}"
    return f"{point.width}" if point.complete else f"at most {point.width}"


def depths(page: Page, summary: StudySummary, lengths: Lengths) -> None:
    """One layer against more: the smallest widths of each, beside the bounds."""
    separations = summary.separations
    assert separations is not None
    pairs = [(v, task) for task in separations.depth_tasks for group in separations.depths for v in group]
    growths = [growth(lengths, v, task, "reachable") for v, task in pairs if lengths.lengths(v, task)]
    growths = [one for one in growths if one.points]
    if not growths:
        return
    known = examples(lengths)
    page.chart("depths", figures.sizes(growths, known, summary), "One layer or more?", LINES)
    rows = []
    for one in growths:
        for point in one.points:
            bounds = bounds_of(known[one.variant, one.task], point.length)
            explicit = f"{bounds.explicit} ({bounds.claim})" if bounds.explicit else ""
            size = or_dash(point.parameters)
            least = str(bounds.least or "")
            row = [summary.task(one.task), row_title(one.variant), str(point.length), _width(point), size]
            rows.append([*row, explicit, least])
    header = ["task", "model", "N", "smallest width", "parameters", "explicit weights", "lower bound"]
    bounded = any(row[-1] for row in rows)
    if not bounded:
        header, rows = header[:-1], [row[:-1] for row in rows]
    protocol = "The lower bound for one layer is that of the lean protocol (docs/theory.md)."
    unbounded = "The lean protocol (docs/theory.md) gives no bound for one layer at these sizes."
    more = "For more layers, the communication argument gives no bound."
    page.table("", header, rows, f"{protocol if bounded else unbounded} {more}")


# -- tasks -------------------------------------------------------------------------------------------------------------


def tasks(page: Page, summary: StudySummary, lengths: Lengths) -> None:
    """The accuracy of each variant over N, in a panel for each task."""
    page.chart(
        "over-lengths",
        figures.over_lengths(lengths, summary),
        "Accuracy over N, by task",
        "The mean share of right sequences at length N, over the seeds of the width and the rate that validation "
        "chose. This width may differ between the points of a line; the tables in the appendices have it. Models are "
        "trained and tested up to the same N.",
    )


def cells(page: Page, summary: StudySummary, lengths: Lengths) -> None:
    """A table for each task: variants down, lengths across."""
    for task in lengths.tasks():
        every = sorted({n for v in lengths.variants for n in lengths.lengths(v, task)})
        rows: list[list[str | Shaded]] = []
        for variant in lengths.variants:
            at = [lengths.pair(variant, task, n) for n in every]
            if any(cell.seeds for cell in at):
                rows.append([row_title(variant), *map(_at_length, at)])
        if rows:
            header = ["right at N in %\nseeds that solve N\nwidth, rate", *(f"N = {n}" for n in every)]
            name = summary.task(task)
            text = "An exclamation mark: the chosen rate is the lowest or the highest that was tried at this width."
            page.table(f"{name[0].upper()}{name[1:]}", header, rows, text, "grid")


def _at_length(cell: LengthCell) -> Shaded | str:
    """Accuracy, seeds and setting; as dark as the lower end of the interval."""
    chosen = cell.chosen
    if chosen is None:
        return ""
    seeds, first = cell.learned(), cell.seeds[0]
    mean = sum(map(accuracy, cell.seeds)) / len(cell.seeds)
    numbers = "" if chosen.place.numbers == FLOAT32 else f", {chosen.place.numbers}"
    rate = f"{first.rate:g}{' !' * chosen.is_at_an_edge}"
    lines = (percent(mean), f"{seeds.learned} of {seeds.seeds}", f"{chosen.place.width}, {rate}{numbers}")
    return Shaded("\n".join(lines), seeds.interval[0])


def inside(page: Page, summary: StudySummary, inspection: Mapping[str, Any] | None) -> None:
    """What kept weights show; nothing without an inspection."""
    if inspection is None:
        command = f"assay inspect {summary.name}"
        page.words("Inside the machines", f"Not inspected yet: `{command}` reads the weights that were kept.")
        return
    attention, explicit, states = inspection["attention"], inspection["explicit"], inspection["states"]
    page.chart(
        "focus",
        figures.focus(attention, explicit),
        "How does attention find the position?",
        "Left: the attention weight on the right position when each position is asked for, in the one head that puts "
        "most weight there on average (other heads may find other positions), at the longest N, in the most accurate "
        "trained width (its first seed) and in explicit weights. Right: cosines between the keys of two positions in "
        "that head. The less blue there is beside the diagonal, the easier it is to attend to one position only; red "
        "does no harm. Colours are cut at 0.5.",
    )
    rows = [
        [str(row["length"]), row_title(row.get("variant", "")) or f"explicit: {row['claim']}", str(row["width"]),
         percent(row["right"]) if "right" in row else "", *(f"{row[key]:.2f}".replace("-0.00", "0.00") for key in
         ("weight", "least", "overlap", "largest_overlap"))]
        for row in (*sorted(attention, key=lambda row: (row["length"], row["width"])), *explicit)
    ]  # fmt: skip
    header = (
        "N",
        "weights of",
        "width",
        "right in %",
        "mean weight",
        "least weight",
        "mean |cosine|",
        "largest cosine",
    )
    if rows:
        text = "Of one seed of each width: weight on the right position, mean and least over the positions asked for."
        page.table("", header, rows, text)
    page.chart(
        "state-use",
        figures.state_use(states),
        "How much of its input does a state carry?",
        "Before the index is known, a recurrent state must carry what any index may ask for. Bits of the string that "
        "decoders read from the final state: a lower bound on what it carries, estimated from "
        "some positions. Red: what it must carry for the accuracy that the machine reaches (Fano). Where "
        "more is found than needed, the machine keeps more than it can look up. The chart has the most accurate "
        "width of each architecture; the table has one seed of every width, also with states that are rounded. Without "
        "a blue mark, or with '-': the decoder found nothing.",
    )
    rows = [_state_row(row) for row in sorted(states, key=lambda row: (row["length"], row["variant"], row["width"]))]
    counts = any("distinct" in row for row in states)
    columns = ("N", "model", "width", "numbers", "bits of state", "right in %", "bits needed", "found, linear decoder",
               "found, small network", "bits of the string",
               *(["different states", "bits of values"] if counts else []))  # fmt: skip
    if rows:
        note = (
            "Different states: counted exactly over the drawn strings; bits of values: the sum over the numbers of the "
            "state of log2 of how many values each took." if counts else ""
        )  # fmt: skip
        page.table("", columns, [row[: len(columns)] for row in rows], note)
    page.words("", f"Made by `{inspection['command']}`.")


def _state_row(row: Mapping[str, Any]) -> list[str]:
    keys = ("needed", "linear", "nonlinear", "input_bits")
    bits = [f"{row[key]:,.0f}" if row[key] or key == "needed" else "-" for key in keys]
    counts = ["", ""]
    if "distinct" in row:
        counts = [f"{row['distinct']:,} of {row['strings']:,}", f"{row['coordinate_bits']:,.0f}"]
    place = [str(row["length"]), row_title(row["variant"]), str(row["width"]), row["numbers"], f"{row['bits']:,}"]
    return [*place, percent(row["accuracy"]), *bits, *counts]


# -- appendices --------------------------------------------------------------------------------------------------------


def states(page: Page, separations: Separations, lengths: Lengths) -> None:
    """Every dot of the first picture."""
    every = sorted({n for v in separations.recurrent for n in lengths.lengths(v, separations.lookup)})
    rows = []
    for n in every:
        for point in state_points(lengths, separations.recurrent, separations.lookup, n):
            place, cell = point.cell.place, point.cell
            bits = [f"{point.bits:,}", or_dash(task_bounds(cell.records[0], n).bits)]
            best = [percent(point.accuracy), percent(point.ceiling), percent(cell.accuracy)]
            seeds = cell.learned()
            count = f"{seeds.learned} of {seeds.seeds} ({in_percent(seeds.interval)})"
            rows.append([str(n), row_title(cell.variant), str(place.width), place.numbers, *bits, *best, count])
    header = ("N", "model", "width", "numbers", "bits of state", "needed", "best run", "ceiling", "mean", "seeds")
    if rows:
        text = "Right symbols at N in %. Mean and seeds that solve N (95 % interval in %): at the chosen rate."
        page.table("Accuracy and bits of state", header, rows, text)


def harder_strings(page: Page, summary: StudySummary, lengths: Lengths) -> None:
    """Scores on the other distributions of inputs that tasks have, as count-balanced negatives of bounded Dyck."""
    rows = []
    for task in lengths.tasks():
        for variant in lengths.variants:
            for n in lengths.lengths(variant, task):
                seeds = lengths.pair(variant, task, n).seeds
                for probe in dict.fromkeys(score.probe for record in seeds for score in record.scores if score.probe):
                    shares = [_lowest(record, probe) for record in seeds]
                    ours = [_lowest(record, "") for record in seeds]
                    means = [percent(sum(values) / len(values)) for values in (ours, shares)]
                    count = f"{sum(share >= LEARNED for share in shares)} of {len(seeds)}"
                    rows.append([summary.task(task), row_title(variant), str(n), probe, *means, count])
    if rows:
        header = ("task", "model", "N", "strings", "own strings", "these strings", "seeds")
        text = f"Right sequences in %, means over the chosen seeds, and seeds with {LEARNED_IN_PERCENT} of them."
        page.table("Other strings", header, rows, text)


def _lowest(record: Record, probe: str) -> float:
    longest = int(record.spec["training"]["lengths"][1])
    within = {str(b["name"]) for b in record.spec["testing"]["bins"] if int(b["high"]) <= longest} or {record.bins[0]}
    return min((s.sequences for s in record.scores if s.probe == probe and s.bin in within), default=0.0)


def probes(page: Page, summary: StudySummary, lengths: Lengths) -> None:
    """Of the runs that are right on every random test input, those that a probe refutes."""
    rows = []
    for task in lengths.tasks():
        for variant in lengths.variants:
            at = [lengths.pair(variant, task, n) for n in lengths.lengths(variant, task)]
            found = refutations(Cell(task, variant, "", tuple(record for cell in at for record in cell.records)))
            if found.right_on_random:
                counts = [str(found.runs), str(found.right_on_random), str(found.solved), str(found.refuted)]
                median = or_dash(found.median_length)
                rows.append([summary.task(task), row_title(variant), *counts, median, found.commonest_word])
    header = ("task", "model", "runs", "right on random inputs", "also on every probe", "refuted",
              "median length of the shortest wrong probe", "most common wrong probe")  # fmt: skip
    if rows:
        text = f"All finished runs of all sizes, rates and N count. {GENERAL_FORM}"
        page.table("What probes refute", header, rows, text, "words")


def thresholds(page: Page, findings: Sequence[LengthJudgement]) -> None:
    rows = []
    for one in findings:
        counts = []
        for share in SHARES:
            known = [met is not None for met in one.reachable(share)]
            counts.append(f"{holds_for(one.reachable(share), known)}\n{holds_for(one.reliable(share), one.judged)}")
        rows.append([one.finding.says, *counts])
    page.table(
        "Would another threshold change the verdicts?",
        ("claim", *(f"{100 * share:.0f} %" for share in SHARES)),
        rows,
        "As in the first table, reachable above and reliable below, if a run solves N from this share of right test "
        "strings on.",
        "words",
    )


# -- files -------------------------------------------------------------------------------------------------------------


def files(summary: StudySummary, lengths: Lengths, growths: Sequence[Growth]) -> dict[str, str | bytes]:
    return {
        "cells.csv": as_csv(list(_cells(lengths))),
        "sizes.csv": as_csv(list(_sizes(lengths, growths))),
        "sizes.tex": _sizes_tex(summary, growths),
    }


def _cells(lengths: Lengths) -> Iterator[dict[str, Any]]:
    for (variant, place), cell in lengths.cells.items():
        seeds = cell.learned()
        row: dict[str, Any] = {"variant": variant, "task": place.task, "N": place.length, "width": place.width}
        row |= {"numbers": place.numbers, "planned": cell.planned}
        row |= {"finished": len(cell.records), "waiting": cell.waiting}
        first = cell.records[0] if cell.records else None
        row |= {"parameters": first and first.parameters, "state floats": first and first.state_floats}
        row |= {"state bits": state_bits(first) if first else None, "rate": cell.rate}
        row |= {"seeds": seeds.seeds if cell.seeds else None}
        for share in SHARES:
            row[f"seeds {100 * share:.0f} %"] = cell.learned(share).learned if cell.seeds else None
            row[f"reached {100 * share:.0f} %"] = {True: "yes", False: "no", None: ""}[cell.reached(share)]
        best = accuracy(cell.best) if cell.best else None
        yield row | {"mean": cell.accuracy, "best": best, "best run": cell.best.digest if cell.best else ""}


def _sizes(lengths: Lengths, growths: Sequence[Growth]) -> Iterator[dict[str, Any]]:
    known = examples(lengths)
    for one in growths:
        for point in one.points:
            bounds = bounds_of(known[one.variant, one.task], point.length)
            row = {"variant": one.variant, "task": one.task, "standard": one.standard} | point._asdict()
            yield row | {"explicit": bounds.explicit, "claim": bounds.claim, "least": bounds.least}


def _sizes_tex(summary: StudySummary, growths: Sequence[Growth]) -> str:
    """The smallest widths as a tabular for \\input."""
    every = sorted({point.length for one in growths for point in one.points})
    lines = [
        "% The smallest tried width that solves N (docs/protocol.md says when a run does).",
        f"% Made by: {summary.report_command}",
        f"\\begin{{tabular}}{{lll{'r' * len(every)}}}",
        r"\hline",
        f"{' & '.join(['', '', '$N$', *map(str, every)])} \\\\",
        r"\hline",
    ]
    for one in growths:
        widths = {point.length: _width(point).replace("> ", "$>$") for point in one.points}
        cells = [title_tex(summary.task(one.task)), escaped(one.variant), one.standard]
        lines.append(f"{' & '.join([*cells, *(widths.get(n, '') for n in every)])} \\\\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])
