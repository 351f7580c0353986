"""The page of a study that repeats a paper: every figure on it is recomputed from plain records by other code."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from assay.analysis.summary import summarize
from assay.cli_records import report
from assay.errors import BadInput
from assay.findings import Comparison, Expectation, Finding, Outcome
from assay.record import Record
from assay.report.paper_page import headline
from assay.store import Store
from assay.studies import Study
from tests.report.paper_study import failed, load_study, made_up, page
from tests.report.recomputed import (
    FINDINGS,
    Cells,
    Plain,
    busy,
    csv_rows,
    device_minutes,
    evidence,
    interval,
    learned,
    named_task,
    named_variant,
    recomputed,
    status,
    tables,
)

ROOT = Path(__file__).parent.parent.parent


def test_every_table_is_recomputed_from_the_records(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    shown, expected = tables(page(study, records, tmp_path)), recomputed(study, records)
    assert list(shown) == list(expected), "a table that nobody recomputes, or out of order"
    for name, table in expected.items():
        assert shown[name] == table, name
    web = Cells()
    web.feed((tmp_path / "index.html").read_text())
    assert web.tables == list(shown.values()), "both pages say the same"


def test_the_made_up_records_show_every_case(study: Study, records: list[Record]):
    text, plain = json.dumps(recomputed(study, records)), Plain(study, records)
    for case in ("not all runs", "diverged", "collapsed", " steps", "expected: ", "0 of 4", " perfect"):
        assert case in text, case
    statuses = {(status(plain, finding), status(plain, finding, 1)) for finding in study.findings}
    assert {usual for usual, _ in statuses} == {"holds", "does not hold", "in part", "under way", "not tested"}
    assert any(usual != perfect for usual, perfect in statuses)
    assert {r.verdict for r in records} == {"solved", "partly solved", "collapsed", "diverged", "censored"}
    first, last = min(busy(plain.all)), max(busy(plain.all))
    assert len(busy(plain.all)) < 0.9 * (last - first), "from the first beginning to the last end is another measure"


def test_in_short_counts_the_findings_and_gives_the_numbers_against_them(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    plain, expected = Plain(study, records), []
    counted = {"holds": ("holds", "hold"), "does not hold": ("does not hold", "do not hold")}
    counted["not tested"] = ("is not tested yet", "are not tested yet")
    explained = {"in part": ("Holds in part", "Against it"), "under way": ("Under way", "Against it so far")}
    for ours, origin in ((False, "5 findings of the paper"), (True, "1 findings added by this study")):
        for result in ("holds", "does not hold", "in part", "under way", "not tested"):
            group = [f for f in study.findings if (f.asked_here, status(plain, f)) == (ours, result)]
            names = "; ".join(finding.name for finding in group)
            if result in counted and group:
                expected.append(f"- {len(group)} of {origin} {counted[result][len(group) > 1]}: {names}.")
            for finding in group if result in explained else ():
                head, against = explained[result]
                numbers = against_it(plain, finding)
                expected.append(f"- {head}: {finding.name}." + (f" {against}: {numbers}." if numbers else ""))
    short = section(page(study, records, tmp_path), "In short")
    assert short.splitlines()[:-1] == expected
    assert {finding.asked_here for finding in study.findings} == {True, False}
    assert "Against it: " in short


def against_it(plain: Plain, finding: Finding) -> str:
    """The numbers of the expectations that are not met, all of one variant."""
    (variant,) = {e.variant for e in finding.expects}
    counts = []
    for e in finding.expects:
        k, n, met, _ = evidence(plain, e)
        if met in ("not met", "neither"):
            counts.append(f"{named_task(e.task)} in {k} of {n}")
    verb, unit = ("learns", "seeds") if e.outcome in ("learns", "fails") else (f"{e.outcome} on", "runs")
    return f"{named_variant(variant)} {verb} {' and '.join(counts)} {unit}" if counts else ""


def test_the_numbers_against_a_finding_are_gathered_by_variant(study: Study, tmp_path: Path, undrawn: None):
    records = [made_up(run) for run in study.runs]
    plain = Plain(study, records)

    def expect(met: bool, variant: str, task: str) -> Expectation:
        """Met or not, as the records have it."""
        both: tuple[Outcome, ...] = ("learns", "fails")
        either = [Expectation(variant=variant, task=task, outcome=outcome) for outcome in both]
        return next(e for e in either if (evidence(plain, e)[2] == "met") == met)

    def counts(variant: str, task: str) -> str:
        return f"{len(learned(plain.chosen(variant, task), 'Bin1'))} of 4"

    pairs = [("gru", "parity"), ("elman", "parity"), ("gru", "dyck-1")]
    expects = (expect(True, "elman", "dyck-1"), *(expect(False, *pair) for pair in pairs))
    finding = Finding(name="three", says="", source="", expects=expects)
    parity, elman, dyck = (counts(*pair) for pair in pairs)
    assert section(page(replace(study, findings=[finding]), records, tmp_path), "In short").splitlines()[0] == (
        f"- Holds in part: three. Against it: the GRU learns parity in {parity} and Dyck-1 in {dyck} seeds; "
        f"the Elman network learns parity in {elman} seeds."
    )


def test_how_long_and_at_which_rates_is_said_of_every_comparison(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    folder = page(study, records, tmp_path)
    assert " Trained at most: parity, Dyck-1: 1,000 steps at lr 0.001, 0.01.\n" in section(folder, "Depth")
    assert " Trained at most: Dyck-1: 1,000 steps at lr 0.001, 0.01.\n" in section(folder, "One task"), "elman: not run"
    whole = page(study, [made_up(run) for run in study.runs], tmp_path / "whole")
    assert " Trained at most: Dyck-1: 1,000-2,000 steps at lr 0.001, 0.01.\n" in section(whole, "One task")


def test_cells_are_as_dark_as_the_lower_end_of_their_interval(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    web, plain = (page(study, records, tmp_path) / "index.html").read_text(), Plain(study, records)
    first = web.split("<h2>The first, in numbers</h2>")[1].split("</table>")[0]
    shown = [re.search(r"rgba\(66,146,198,([0-9.]+)\)", cell) for cell in re.findall(r"<td class=lines[^>]*>", first)]
    places = [(variant, task) for variant in ("gru", "elman") for task in ("parity", "dyck-1")]
    shares = [interval(len(learned(plain.chosen(*p), "Bin1")), 4)[0] for p in places if plain.chosen(*p)]
    assert [float(dark[1]) if dark else 0 for dark in shown] == [
        pytest.approx(0.6 * share, abs=0.01) for share in shares
    ]
    assert len(set(shares)) > 1


def section(folder: Path, heading: str) -> str:
    """The text of a section of the Markdown page, up to the next."""
    return (folder / "index.md").read_text().split(f"## {heading}\n\n")[1].split("\n## ")[0].rstrip()


def test_numbers_in_the_text_are_recomputed(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    plain, folder = Plain(study, records), page(study, records, tmp_path)
    took = f"{len(busy(plain.all)) / 60:.1f} minutes of device time"
    assert section(folder, "In short").endswith(f"\n- 32 of 40 runs, {took}.")
    text = (folder / "index.md").read_text()
    assert f"\n- 32 runs, {took} in all; shares" in text
    assert sum(device_minutes(plain, piece) for piece in plain.pieces) == pytest.approx(len(busy(plain.all)) / 60)
    assert "\n- 8 runs of the study are not in the store yet.\n" in text
    assert "solved.\n" not in text, "what the other page says of its columns"
    counts = Counter(
        variant
        for variant, task in plain.runs
        if variant in study.comparisons[0].variants
        for run in plain.pooled(variant, task)
        if run["verdict"] == "diverged"
    )
    told = ", ".join(f"{variant} {counts[variant]}" for variant in ("gru", "elman") if counts[variant])
    assert f"Runs that diverged, at all learning rates and on all tasks above: {told}. The training" in text
    assert "Made by `assay study mine.py`, and this page by `assay report mine.py`." in text


def test_where_no_end_is_recorded_work_is_counted(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    old = [r.model_copy(update={"ended": ""}) for r in records[:3]]
    folder, rest = page(study, [*old, *records[3:]], tmp_path), Plain(study, records[3:])
    worked = sum(sum(record.seconds.values()) for record in old) / 60
    took = f"{len(busy(rest.all)) / 60:.1f} minutes of device time and {worked:.1f} minutes of work"
    assert section(folder, "In short").endswith(f"32 of 40 runs, {took}.")
    assert f"- 32 runs, {took} in all" in (folder / "index.md").read_text()
    (_, one, other) = tables(folder)["Cost"]
    assert float(one[2]) == pytest.approx(device_minutes(rest, "whole") + worked, abs=0.051)
    assert float(other[2]) == pytest.approx(device_minutes(rest, "deep"), abs=0.051)


def test_an_error_is_no_evidence(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    """One seed of the rate that validation did not choose has failed: the whole place is under way."""
    best = Plain(study, records).rate("gru", "parity")
    which = next(r for r in records if r.digest in gru_on_parity(study) and r.spec["training"]["lr"] != best)
    mine = [failed(r) if r is which else r for r in records]
    shown = tables(page(study, mine, tmp_path))
    assert shown == recomputed(study, mine)
    assert [
        shown[name][1][1] for name in ("The first, in numbers", "At the longest lengths", "Robustness", "Depth")
    ] == [""] * 4
    assert "- the GRU on parity: not all runs have finished" in shown[FINDINGS][1][-1]
    assert not [row for row in csv_rows(tmp_path / "cells.csv") if (row["variant"], row["task"]) == ("gru", "parity")]
    text = (tmp_path / "index.md").read_text()
    assert "- 32 of 40 runs (1 failed), " in text
    assert f"- Failed: parity gru seed {which.seed}: RuntimeError: &lt;b>no luck&lt;/b>" in text


def gru_on_parity(study: Study) -> set[str]:
    return {run.digest for run in study.variants["gru"] if run.task.kind == "parity"}


def test_what_differs_is_told_where_a_finding_does_not_hold(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    findings = tables(page(study, records, tmp_path))[FINDINGS]
    told, plain = {row[0].split("\n")[0]: row for row in findings}, Plain(study, records)
    stated = {finding.name: (status(plain, finding), finding.differs) for finding in study.findings if finding.differs}
    assert {result == "holds" for result, _ in stated.values()} == {True, False}
    for name, (result, differs) in stated.items():
        assert told[name][-1].endswith("\n" + differs) == (result != "holds")


def test_names_are_no_markup(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    named = [Comparison("a <b> & c*", "d <e>", ("gru", "<i>")), Comparison("<u>", "", ("none",))]
    variants = {"gru": study.variants["gru"], "<i>": study.variants["elman"], "none": []}
    page(replace(study, comparisons=named, named_variants=variants, findings=[]), records, tmp_path)
    text, web = ((tmp_path / name).read_text() for name in ("index.md", "index.html"))
    for said in ("## a &lt;b> & c\\*\n", "\nd &lt;e> Upper chart", "| &lt;i> |", "Not run yet: &lt;u>."):
        assert said in text, said
    for said in ("<h2>a &lt;b&gt; &amp; c*</h2>", "d &lt;e&gt; Upper chart", "<td>&lt;i&gt;</td>", "yet: &lt;u&gt;."):
        assert said in web, said


@pytest.mark.parametrize("which", ["chosen", "not chosen", "another variant"])
def test_one_record_changes_what_depends_on_it_and_nothing_else(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None, which: str
):
    plain = Plain(study, records)
    variant = "gru_2, deep" if which == "another variant" else "gru"
    best = plain.rate(variant, "parity")
    assert best is not None
    lr = best if which != "not chosen" else next(lr for lr in plain.runs[variant, "parity"] if lr != best)
    digest = next(run["digest"] for run in plain.runs[variant, "parity"][lr] if run["scores"])
    changed = [flipped(record) if record.digest == digest else record for record in records]
    before, after = (page(study, some, tmp_path / name) for name, some in (("a", records), ("b", changed)))
    moved = {
        (name, row[0], table[0][i] if table[0][0] == "" else "")
        for name, table in tables(before).items()
        for row, other in zip(table, tables(after)[name], strict=True)
        for i in range(len(row))
        if row[i] != other[i]
    }
    expected = {("Depth", variant, "parity")} if which != "not chosen" else set()
    if variant == "gru":
        expected |= {("Robustness", "gru", "parity")}
    if which == "chosen":
        expected |= {("The first, in numbers", "gru", "parity"), ("At the longest lengths", "gru", "parity")}
        expected |= {(FINDINGS, "gates\nA GRU learns. (p. 1)", "")}
    assert moved == expected
    rows = zip(csv_rows(before / "cells.csv"), csv_rows(after / "cells.csv"), strict=True)
    (only,) = [row for row, other in rows if row != other]
    assert (only["variant"], only["task"], only["setting"]) == (variant, "parity", f"lr={lr}")
    assert tables(after) == recomputed(study, changed)


def flipped(record: Record) -> Record:
    """Wrong where it had learned up to Bin1, right where it had not."""
    to = 0.0 if all(score.sequences >= 0.95 for score in record.scores[:2]) else 1.0
    scores = tuple(score.model_copy(update={"sequences": to}) for score in record.scores)
    return record.model_copy(update={"scores": scores})


def test_a_variant_without_runs_has_empty_cells(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    mine = [record for record in records if record.model != "elman"]
    shown = tables(page(study, mine, tmp_path))
    for name in ("The first, in numbers", "At the longest lengths", "Robustness"):
        assert shown[name][2] == ["elman", "", ""], name
    assert "elman" not in (tmp_path / "cells.csv").read_text()
    told = {row["finding"]: row["status"] for row in csv_rows(tmp_path / "findings.csv")}
    assert (told["no gates"], told["elsewhere"]) == ("not tested", "not tested")
    assert headline(summarize(study), mine)[2] == ["elman", "", ""]


def test_what_is_under_way_looks_better_than_it_is_and_is_not_shown(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    mine = [record for record in records if (record.task, record.seed, record.model) != ("parity", 0, "elman")]
    shown = tables(page(study, mine, tmp_path))
    assert shown["The first, in numbers"][2] == ["elman", "", ""]
    assert "- the Elman network on parity: not all runs have finished" in shown[FINDINGS][2][-1]
    assert shown["Cost"][1][1] == "22 of 32"
    assert shown == recomputed(study, mine)


def test_comparisons_of_which_nothing_was_run_are_one_line(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    mine = [record for record in records if len(record.spec["model"]["mixers"]) == 1]
    alone = replace(study, comparisons=[*study.comparisons, Comparison("Deep", "", ("gru_2, deep",))])
    folder = page(alone, mine, tmp_path)
    assert tables(folder) == recomputed(study, mine)
    assert "\n\nNot run yet: Deep.\n\n" in (folder / "index.md").read_text()
    assert "<h2>Deep</h2>" not in (folder / "index.html").read_text()


def test_a_page_can_be_made_before_the_first_comparison_is_run(study: Study, records: list[Record], tmp_path: Path):
    mine = [record for record in records if len(record.spec["model"]["mixers"]) == 3]
    folder = page(study, mine, tmp_path)
    assert tables(folder) == recomputed(study, mine)
    assert "Not run yet: The first; One task.\n" in (folder / "index.md").read_text()
    assert not list(folder.glob("*.png"))


def test_the_headline_is_the_first_table_in_short(study: Study, records: list[Record]):
    first = recomputed(study, records)["The first, in numbers"]
    short = [[(value.split("\n")[1:] or [value])[0].split(" (")[0] for value in row] for row in first]
    assert headline(summarize(study), records) == short


def test_pages_are_whole_and_the_same_for_the_same_records(study: Study, records: list[Record], tmp_path: Path):
    one, two = page(study, records, tmp_path / "a"), page(study, records[::-1], tmp_path / "b")
    names = sorted(path.name for path in one.iterdir())
    assert {"index.html", "index.md", "cells.csv", "findings.csv", "table.tex"} <= set(names)
    assert names == sorted(path.name for path in two.iterdir())
    for name in names:
        mine, other = ((folder / name).read_bytes().split(b"\n") for folder in (one, two))
        assert mine == other, name
    assert tables(one) == tables(two)
    web = (one / "index.html").read_text()
    assert web.count("<svg") == 4
    assert not re.search(r'(src|href)="?http', web), "nothing is fetched from elsewhere"


def test_where_nothing_diverged_the_page_says_so(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    calm = [r.model_copy(update={"verdict": "censored"}) if r.verdict == "diverged" else r for r in records]
    text = (page(study, calm, tmp_path / "a") / "index.md").read_text()
    assert "None of the runs above diverged. The training loss" in text
    text = (page(replace(study, findings=[]), calm, tmp_path / "b") / "index.md").read_text()
    assert "None of the runs above diverged.\n" in text
    assert "divergence.png" not in text


def test_a_comparison_of_what_is_no_variant(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    with pytest.raises(BadInput, match="'grue', which is not a variant; did you mean 'gru'"):
        page(replace(study, comparisons=[Comparison("", "", ("grue",))]), records, tmp_path)
    first = study.comparisons[0]
    for wrong, said in (
        (Comparison("", "", ("grue",), ("parity",)), "'grue', which is not a variant; did you mean 'gru'"),
        (
            Comparison("", "", ("gru",), ("partiy",)),
            "'partiy', which none of its variants was run on; did you mean 'parity'",
        ),
    ):
        with pytest.raises(BadInput, match=said):
            page(replace(study, comparisons=[first, wrong]), records, tmp_path)


def test_the_first_comparison_is_of_all_tasks(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    with pytest.raises(BadInput, match="the first comparison, 'Some', covers all tasks of its variants"):
        page(replace(study, comparisons=[Comparison("Some", "", ("gru",), ("parity",))]), records, tmp_path)


def test_the_command_makes_the_page(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    load_study(tmp_path)
    store = Store.create(tmp_path / "store")
    store.add(*records)
    report(str(tmp_path / "mine.py"), store=tmp_path / "store", out=tmp_path / "out")
    shown = tables(tmp_path / "out")
    assert shown["The first, in numbers"] == recomputed(study, records)["The first, in numbers"]
    assert "8 runs of the study are not in the store yet" in (tmp_path / "out" / "index.md").read_text()


def test_a_packed_file_of_another_study_is_not_to_be_written_to(records: list[Record], tmp_path: Path):
    load_study(tmp_path)
    store = Store.create(tmp_path / "store")
    store.pack(tmp_path / "empty.jsonl.xz")
    for path, advice in ((store.path, f" --store {store.path}"), (tmp_path / "empty.jsonl.xz", "")):
        with pytest.raises(BadInput) as caught:
            report(str(tmp_path / "mine.py"), store=path, out=tmp_path / "out")
        assert str(caught.value).endswith(f"make them with: assay study {tmp_path / 'mine.py'}{advice}")
