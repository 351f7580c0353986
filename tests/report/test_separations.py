"""The page about separations, from made-up records: its numbers, its fits, and what is missing."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.analysis.bounds import bounds_of, state_points, task_bounds
from assay.analysis.growth import RESAMPLES, Growth, Smallest, compared, growth, smallest
from assay.analysis.inspections import inspection_file, read_inspection
from assay.analysis.lengths import Lengths, judge_lengths, solves
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import lengths_of, summarize
from assay.errors import BadInput
from assay.findings import Expectation, Finding
from assay.record import Record
from assay.report import figures, separations_figures, separations_page, separations_tables, write_page
from assay.report.page import Page
from assay.studies import Study
from assay.theory.bounds.information import best_accuracy
from tests.report.separations_study import load_study, made_up, place

ONE, TWO = "transformer, 1 layer", "transformer, 2 layers"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return load_study(tmp_path_factory.mktemp("apart"))


@pytest.fixture(scope="module")
def records(study: Study) -> list[Record]:
    return [made_up(run) for run in study.runs]


@pytest.fixture(scope="module")
def lengths(study: Study, records: list[Record]) -> Lengths:
    return lengths_of(summarize(study), records)


# -- the fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "slope"), [("log N", 0.3), ("N", 1.0)])
def test_the_fit_recovers_how_widths_grow(form: str, slope: float):
    lengths = np.array([20.0, 50, 100, 200, 400])
    widths = 4 + 8 * np.log2(lengths) if form == "log N" else 4 + lengths / 2
    noise = np.exp(0.03 * np.random.default_rng(0).normal(size=(RESAMPLES, 5)))
    nearer, exponent = compared(lengths, widths * noise, widths)
    assert nearer[form] > 0.95  # type: ignore[index]
    assert exponent is not None
    assert exponent[1] < exponent[0] < exponent[2]
    assert exponent[0] == pytest.approx(slope, abs=0.15)


def test_a_length_that_no_width_solves_speaks_against_slow_growth():
    """Widths of three short lengths grow like log N as well as like N, but 64 is too small for the longest."""
    lengths = np.array([8.0, 16, 32, 64])
    widths = np.tile([8.0, 16, 32, np.nan], (RESAMPLES, 1))
    nearer, _ = compared(lengths, widths, np.array([64.0] * 4))
    assert nearer == {"log N": 0, "N": 1}
    flat, _ = compared(lengths, np.tile([16.0, 16, 16, 16], (RESAMPLES, 1)), np.array([64.0] * 4))
    assert flat == {"log N": 0, "N": 0}, "both forms fit"
    assert compared(lengths[:2], widths[:, :2], np.array([64.0] * 2)) == ({}, None), "too few lengths"


def test_the_smallest_size_is_known_within_the_widths_that_were_tried(lengths: Lengths):
    at = {n: smallest(lengths.at("lstm", "index-lookup", n), "reliable") for n in (8, 16, 32)}
    assert [(p.width, p.failed, p.tried) for p in at.values() if p] == [(8, 0, 32), (16, 8, 32), (32, 16, 32)]
    one = growth(lengths, ONE, "index-lookup", "reachable")
    assert [point.width for point in one.points] == [8, 16, 16]
    assert one.decision is None, "the data do not decide"
    assert one == growth(lengths, ONE, "index-lookup", "reachable"), "resamples repeat"
    (unsolved,) = {p.width for p in growth(lengths, ONE, "bounded-dyck", "reachable").points}
    assert unsolved is None


# -- theory ------------------------------------------------------------------------------------------------------------


def test_no_made_up_machine_is_above_the_ceiling_and_the_ceiling_is_that_of_theory(lengths: Lengths):
    rounded = "lstm, rounded"
    points = [point for n in (8, 16, 32) for point in state_points(lengths, ("lstm", rounded), "index-lookup", n)]
    assert len(points) == 3 * (3 + 6)
    for point in points:
        place = point.cell.place
        per_number = 32 if point.cell.variant == "lstm" else int(place.numbers[-1]) + 1
        assert point.bits == 2 * place.width * per_number
        assert point.ceiling == best_accuracy(place.length, 16, point.bits)
        assert point.accuracy <= point.ceiling
    assert [round(best_accuracy(400, 64, bits), 3) for bits in (100, 500, 1000, 2000)] == [0.132, 0.364, 0.579, 0.907]


def test_bounds_and_explicit_weights_are_those_of_assay_size(lengths: Lengths):
    at = {variant: lengths.at(variant, "index-lookup", 32)[0].records[0] for variant in (ONE, "lstm")}
    assert task_bounds(at["lstm"], 32).bits == 32 * 4
    assert bounds_of(at["lstm"], 32).least == 2, "4 numbers of 32 bits, 2 of each channel"
    assert bounds_of(at[ONE], 32)[1:] == (4 + 4, "lookup-quadratic")
    dyck = lengths.at(TWO, "bounded-dyck", 32)[0].records[0]
    balanced = dyck.model_copy(
        update={"spec": dyck.spec | {"task": dyck.spec["task"] | {"negatives": "count-balanced"}}}
    )
    for record in (dyck, balanced):
        assert bounds_of(record, 32) == (None, 12, "dyck-two-layers")


# -- the page ----------------------------------------------------------------------------------------------------------


def written(study: Study, records: list[Record], folder: Path, store: str = "store") -> str:
    write_page(StudyRecords(study, folder / store, records), folder)
    return (folder / "index.md").read_text()


def rows(page: str, heading: str) -> list[list[str]]:
    lines = page.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def test_the_first_screen(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    page = written(study, records, tmp_path)
    assert (
        "At N = 32 and in at most 100 steps, the Transformer (1 layer) of width 16 gives the right symbol for 100 % of "
        "the test strings in its best run; at width 16, which validation chose, 5 of 5 seeds solve this length. Of the "
        "recurrent machines run there (width 8, 16 and 32), the best is the LSTM with 2,048 bits of state: 100 %. "
    ) in page
    assert rows(page, "Do the claims hold?") == [
        ["“One layer does, &lt;a state> does not.” (p. 1)", "3 of 4", "3 of 4", "all 3"],
        ["One layer fails on Dyck. (expected from theory)", "all 6", "all 6", "all 3"],
    ]
    assert "- Solved by some run, though it should fail: LSTM on index lookup at N = 32." in page
    assert "planned runs" not in page
    (dyck,) = [row for row in rows(page, "Other strings") if row[1:3] == ["LSTM", "8"]]
    assert dyck == ["Dyck-(2, 2)", "LSTM", "8", "count-balanced", "99.6", "49.8", "0 of 5"]
    probed = {(row[0], row[1]): row[2:6] for row in rows(page, "What probes refute")}
    assert probed["index lookup", "Transformer (1 layer)"] == ["90", "21", "14", "7"]
    assert rows(page, "Would another threshold change the verdicts?")[0][1:] == [
        "3 of 4<br>3 of 4", "3 of 4<br>3 of 4", "3 of 4<br>3 of 4", "3 of 4<br>none of 4, 4 undecided",
    ]  # fmt: skip
    assert "How wide must a state be?" in page
    sizes = list(csv.DictReader((tmp_path / "sizes.csv").open()))
    assert [row["width"] for row in sizes if row["variant"] == "lstm"] == ["8", "16", "32"] * 2
    cells = list(csv.DictReader((tmp_path / "cells.csv").open()))
    assert len(cells) == 27 + 18 + 18 + 18
    assert "$N$ & 8 & 16 & 32" in (tmp_path / "sizes.tex").read_text()


def test_a_machine_above_the_ceiling_is_an_error_in_the_records(study: Study, records: list[Record], undrawn: None):
    page = separations_page.render(summarize(study), records, 0)
    assert "Above the ceiling" not in "\n".join(page.markdown)
    wrong = [r for r in records if place(r.spec)[2:4] == (32, 8) and place(r.spec)[5] == "fixed:0.0" and r.seed == 4]
    right = {r.digest: [s.model_copy(update={"sequences": 0.9, "lengths": ()}) for s in r.scores] for r in wrong}
    changed = [r.model_copy(update={"scores": tuple(right.get(r.digest, r.scores))}) for r in records]
    page = separations_page.render(summarize(study), changed, 0)
    assert "cannot be right: LSTM (rounded) with 16 bits at N = 32." in "\n".join(page.markdown)


def test_no_claim_rests_on_cells_that_are_not_finished(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    partial = [r for r in records if r.model == "transformer" and r.spec["training"]["lengths"][1] < 33]
    removed = {(r.rate, place(r.spec)): r for r in partial if place(r.spec)[:3] == ("transformer", "index-lookup", 16)}
    partial = [r for r in partial if r not in removed.values()]
    page = written(study, partial, tmp_path)
    assert f"Of {len(records)} planned runs, {len(partial)} have finished." in page
    assert "state-bits.png" not in page, "no recurrent machine has finished"
    first, second = rows(page, "Do the claims hold?")
    assert first[1] == "2 of 4, 2 not finished yet", "a run that solves N is enough"
    assert first[2:] == ["1 of 4, 3 not finished yet", "1 of 3, 2 not finished yet"]
    assert second[1] == second[2] == "3 of 6, 3 not finished yet"
    lookup = [row for row in rows(page, "Index lookup") if row[0] == "Transformer (1 layer)"]
    assert lookup[0][1] != ""
    assert lookup[0][2:] == ["", ""]
    few = written(study, partial[:3], tmp_path / "few")
    assert len(rows(few, "Do the claims hold?")) == 1
    assert "- Nothing is known yet of 1 more claim." in few


def test_the_charts_are_drawn(study: Study, records: list[Record], tmp_path: Path):
    written(study, records, tmp_path)
    for name in ("state-bits", "sizes", "depths", "over-lengths"):
        svg = (tmp_path / f"{name}.svg").read_text()
        assert "NaN" not in svg
        assert svg.count("<path") > 20


def inspection() -> dict[str, Any]:
    place = {"variant": ONE, "length": 3, "width": 8, "right": 1.0}
    cosines = [[1.0, 0.1, 0.0], [0.1, 1.0, 0.2], [0.0, 0.2, 1.0]]
    focus = {"weight": 0.9, "least": 0.8, "overlap": 0.1, "largest_overlap": 0.2, "positions": [1, 2, 3]}
    focus |= {"weights": [0.8, 0.9, 1.0], "shown": [1, 2, 3], "overlaps": cosines}
    use = {"variant": "lstm", "length": 3, "width": 8, "numbers": "fixed:0.2", "bits": 48, "accuracy": 0.5}
    use |= {"needed": 4.0, "linear": 5.0, "nonlinear": 6.0, "input_bits": 12.0, "strings": 99, "distinct": 80}
    explicit = {"claim": "lookup-trace", "length": 3, "width": 14} | focus
    data = {"study": "apart", "command": "assay inspect apart.py", "attention": [place | focus]}
    use["coordinate_bits"] = 40.0
    exact = [use | {"numbers": "float32", "width": width, "accuracy": width / 20} for width in (8, 16, 4)]
    return data | {"explicit": [explicit], "states": [use, *exact]}


def test_an_inspection_is_shown(study: Study):
    page = Page("Inside", "")
    separations_tables.inside(page, summarize(study), inspection())
    text = "\n".join(page.markdown)
    assert "| 3 | explicit: lookup-trace | 14 |  | 0.90 | 0.80 | 0.10 | 0.20 |" in text
    assert "| 3 | LSTM | 8 | fixed:0.2 | 48 | 50.0 | 4 | 5 | 6 | 12 | 80 of 99 | 40 |" in text
    drawn = {figure.name: figure.drawn.result()[0] for figure in page.figures}
    assert drawn["focus"].startswith("<svg")
    machines = re.findall(r">(N = [^<]*)<", drawn["state-use"])
    assert machines == ["N = 3, LSTM, width 16"], "the most accurate one, and none whose state is rounded"


def test_charts_over_n_show_architectures_layers_and_kinds_of_negatives(records: list[Record]):
    def record(task: str, **options: str) -> Record:
        return records[0].model_copy(update={"spec": records[0].spec | {"task": {"kind": task, **options}}})

    dyck = record("bounded-dyck", negatives="count-balanced")
    assert separations_figures._look("transformer, hard, 2 layers", record("index-lookup")) == {
        "series": "Transformer (hard)",
        "layers": "2 layers",
    }
    assert separations_figures._look("lstm", record("index-lookup")) == {"series": "LSTM", "layers": ""}
    assert separations_figures._look("lstm, count-balanced, 1 layer", dyck)["series"] == "LSTM"
    lines, points = separations_figures._look_channels(
        [{"series": "LSTM", "layers": "1 layer"}, {"series": "LSTM", "layers": "2 layers"}]
    )
    assert lines["color"]["scale"]["domain"] == ["LSTM"]
    names = ["Mamba (1 layer)", "Mamba (wide)", "Transformer (hard)", "another"]
    assert separations_figures.colours(names)["scale"]["range"] == ["#ff7f0e", "#1f77b4", "#d62728", "#2ca02c"]
    assert points["shape"]["scale"] == {"domain": ["1 layer", "2 layers"], "range": ["circle", "square"]}


def test_growth_is_not_named_before_narrower_widths_have_finished():
    def decision(complete: bool) -> str | None:
        points = tuple(Smallest(n, n, 0, 64, 1, 1, complete or n > 8) for n in (8, 16, 32))
        return Growth("lstm", "index-lookup", "reachable", points, {"log N": 0.01, "N": 0.99}, (1.0, 0.8, 1.2)).decision

    assert decision(complete=True) == "N"
    assert decision(complete=False) is None


def test_an_inspection_is_read_from_beside_its_records(tmp_path: Path):
    assert read_inspection(tmp_path) is None
    path = inspection_file(tmp_path / "mine.jsonl.xz")
    path.write_text("{}")
    with pytest.raises(BadInput, match="is not an inspection"):
        read_inspection(tmp_path / "mine.jsonl.xz")


def test_what_a_study_must_say(study: Study, records: list[Record], lengths: Lengths):
    with pytest.raises(BadInput, match="needs SEPARATIONS"):
        separations_page.render(summarize(replace(study, separations=None)), records, 0)
    assert study.separations is not None
    wrong = replace(study, separations=study.separations._replace(main="looking"))
    with pytest.raises(BadInput, match="the main finding 'looking'"):
        separations_page.render(summarize(wrong), records, 0)
    for change, message in (
        ({"variant": "lstmm"}, "names 'lstmm', which is not a variant"),
        ({"length": 9}, "index-lookup at N = 9, which the study does not run"),
    ):
        expected = Expectation(**({"variant": "lstm", "outcome": "learns", "task": "index-lookup"} | change))
        finding = Finding(name="x", says="x", source="x", expects=(expected,))
        with pytest.raises(BadInput, match=message):
            judge_lengths([finding], lengths)


def test_a_setting_with_few_seeds_does_not_compete(study: Study, records: list[Record]):
    """Rates that were tried with one seed chose the rate for the others."""
    fewer = [r for r in records if not (r.rate == 1e-3 and r.seed)]
    kept = {record.digest for record in fewer}
    runs = [run for run in study.runs if run.digest in kept]
    variants = {name: [run for run in runs if run.digest in kept] for name, runs in study.variants.items()}
    pilot = replace(study, run_list=runs, named_variants=variants)
    cell = lengths_of(summarize(pilot), fewer).at("lstm", "index-lookup", 32)[0]
    assert cell.rate == 1e-2
    assert len(cell.seeds) == 5
    assert not cell.is_at_an_edge, "of the settings that competed there is one"
    assert lengths_of(summarize(study), records).at("lstm", "index-lookup", 32)[0].is_at_an_edge


def test_cells_do_not_wait_for_pieces_that_nobody_has_begun(study: Study, records: list[Record]):
    summary = summarize(study)
    by_rate = {r: [record for record in records if record.rate == r] for r in (1e-3, 1e-2)}
    pieces = {str(rate): [record.digest for record in group] for rate, group in by_rate.items()}
    summary = replace(summary, pieces=pieces)
    alone = lengths_of(summary, by_rate[1e-3]).at("lstm", "index-lookup", 16)
    assert [(cell.planned, cell.waiting, cell.rate) for cell in alone] == [(10, 0, 1e-3)] * 3
    begun = lengths_of(summary, [*by_rate[1e-3], by_rate[1e-2][0]]).at("lstm", "index-lookup", 16)
    assert [(cell.waiting, cell.rate, cell.reached()) for cell in begun] == [
        (5, None, None), (5, None, True), (5, None, True),
    ]  # fmt: skip


def test_a_model_fails_only_after_all_planned_runs(study: Study, records: list[Record]):
    """A claim about all widths and rates does not rest on the pieces that happened to be run."""
    summary = summarize(study)
    by_rate = {r: [record for record in records if record.rate == r] for r in (1e-3, 1e-2)}
    summary = replace(summary, pieces={str(r): [record.digest for record in group] for r, group in by_rate.items()})
    expected = {outcome: Expectation(variant="lstm", outcome=outcome, task="index-lookup", length=32)
                for outcome in ("learns", "fails")}  # fmt: skip
    findings = [Finding(name=o, says=o, source="p. 1", expects=(e,)) for o, e in expected.items()]

    def judged(some: list[Record]) -> list[tuple[list[bool | None], list[bool | None], list[bool]]]:
        return [(j.reachable(), j.reliable(), j.judged) for j in judge_lengths(findings, lengths_of(summary, some))]

    failing = [r for r in by_rate[1e-2] if place(r.spec)[2] == 32]
    assert judged(failing) == [([None], [False], [True]), ([None], [None], [False])]
    assert judged(by_rate[1e-3]) == [([True], [True], [True]), ([False], [None], [False])]
    assert judged(records)[1] == ([False], [False], [True])


def test_what_counting_symbols_nearly_solves_needs_more(records: list[Record]):
    def at(task: str, share: float, **options: str) -> bool:
        record = next(r for r in records if r.task == task)
        scores = tuple(s.model_copy(update={"sequences": share}) for s in record.scores if not s.probe)
        spec = record.spec | {"task": record.spec["task"] | options}
        return solves(record.model_copy(update={"scores": scores, "spec": spec}))

    assert [at("index-lookup", share) for share in (0.94, 0.96)] == [False, True]
    assert [at("bounded-dyck", share) for share in (0.98, 0.995)] == [False, True]
    assert at("bounded-dyck", 0.96, negatives="count-balanced")
    assert [at("equality-random", share) for share in (0.98, 0.995)] == [False, True]


def test_charts_without_any_record():
    assert separations_figures.state_bits({}, {}, ONE) is None
    assert separations_figures.focus([], []) is None
    assert separations_figures.state_use([]) is None
    assert figures.styled({})["config"]
