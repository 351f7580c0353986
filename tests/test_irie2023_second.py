"""The runs of the second edition: the published rule beside ours, on every string and every n."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.lab.data import held_out_shape
from assay.models import named_model
from assay.spec import RunSpec
from assay.studies import study_named
from assay.studies.irie2023_second import BRACKETS, CONTESTED, LONG, ON_PUBLISHED, PARTS, RATES

STUDY = study_named("irie2023-second")


def runs(part: str, task: str) -> list[RunSpec]:
    return STUDY.pieces[f"{part}:{task}"]


def test_every_run_is_tested_in_all_states_and_no_run_is_in_two_pieces():
    assert len({run.digest for run in STUDY.runs}) == len(STUDY.runs)
    assert {run.testing.states for run in STUDY.runs} == {("best", "watched", "averaged")}
    assert {name.partition(":")[0] for name in STUDY.pieces} == set(PARTS)


def test_bracket_languages_are_tested_on_both_strings_and_trained_on_both():
    for task in BRACKETS:
        ours, published = (runs(part, task) for part in ("long", "published"))
        assert all(run.testing.both_strings for run in (*ours, *published))
        assert not any(run.task.is_published or run.training.fixed for run in ours)
        assert all(run.task.is_published and run.training.fixed == 10_000 for run in published)
        assert {run.training.steps for run in (*ours, *published)} == {94_000}
        keys = [{(r.model.name, r.training.lr, r.seed) for r in group} for group in (ours, published)]
        assert keys[0] == keys[1], "the same cells"
        assert len({run.training.lr for run in ours}) == 3, "one rate is not at an edge"
        counted = {run.task for run in runs("counting", task)}
        assert {run.task for run in ours} == counted == {run.task.other_strings() for run in published}
        assert {run.task for run in published} == {run.task.other_strings() for run in ours}


def test_counting_is_tested_on_every_n():
    run = runs("counting", "an-bn")[0]
    bins = {bin_.name: bin_ for bin_ in run.testing.bins}
    shapes = {
        name: held_out_shape(run.task, bin_, run.training.lengths, run.testing.rows, "test", True)
        for name, bin_ in bins.items()
    }
    assert shapes["Bin0"] == (50, 100)
    assert shapes["Bin1"] == (50, 200)
    assert all(bin_.high <= run.training.lengths[1] for bin_ in run.training.validation)


def test_the_table_has_every_rate_for_every_cell():
    for part, task in (("regular", "parity"), ("counting", "an-bn"), ("counting", "dyck-1")):
        cells: dict[str, set[float]] = {}
        for run in runs(part, task):
            cells.setdefault(run.model.name, set()).add(run.training.lr)
        assert len(cells) == 7
        assert all(rates >= set(RATES) for rates in cells.values())
        higher = {model for model, rates in cells.items() if max(rates) > max(RATES)}
        assert higher == (set(CONTESTED) if task == "dyck-1" else set())


@pytest.mark.parametrize("part", ["sizes", "initial"])
def test_what_a_part_varies_is_compared_with_the_default_in_the_same_part(part: str):
    for task in {name.partition(":")[2] for name in STUDY.pieces if name.startswith(f"{part}:")}:
        assert len({(run.training.steps, run.training.lr) for run in runs(part, task)}) == 1
        models = {run.model.name for run in runs(part, task)}
        assert models == {run.model.name for run in runs(part, task) if run.model == named_model(run.model.name)}


def test_every_piece_has_a_question():
    assert STUDY.replication
    assert STUDY.replication.questions.keys() == STUDY.pieces.keys()


def test_the_forecast_grows_with_steps_and_looks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    import forecast

    speeds = forecast.measured(forecast.RECORD)
    assert speeds.keys() >= {run.model.name for run in STUDY.runs}
    run = runs("long", "dyck-1")[0]
    half = run.model_copy(update={"training": run.training.model_copy(update={"steps": run.training.steps // 2})})
    unwatched = run.model_copy(update={"testing": run.testing.model_copy(update={"states": ()})})
    whole = forecast.seconds(run, speeds)
    assert whole / 2 < forecast.seconds(half, speeds) < 0.51 * whole, "tests take as long after fewer steps"
    assert forecast.seconds(unwatched, speeds) < whole
    rows = forecast.table(STUDY, speeds)
    assert [row.piece for row in rows] == list(STUDY.pieces)
    (row,) = (row for row in rows if row.piece == "long:dyck-1")
    mine = runs("long", "dyck-1")
    assert (row.runs, row.steps) == (len(mine), 94_000 * len(mine))
    begin = forecast.COMMAND + 3 * (forecast.PROGRAM + forecast.COMPILED)
    assert row.programs == 3, "one for each model"
    assert row.minutes == pytest.approx((begin + sum(forecast.seconds(run, speeds) for run in mine)) / 60)
    (alone,) = (forecast.piece_seconds([run], speeds) for run in mine[:1])
    assert alone > 94_000 * forecast.LEAST_MS / 1000, "few runs do not fill a device"
    assert row.question == PARTS["long"].question
    assert sum(row.minutes for row in rows if row.piece.partition(":")[0] in ("counting", "long", "published")) < 50


def test_every_quotation_stands_in_what_we_have_of_the_paper():
    text = " ".join((Path(__file__).parents[1] / "docs" / "papers" / "irie2023.md").read_text().split())
    quoted = [finding for finding in STUDY.findings if finding.quote]
    assert len(quoted) == 5
    assert all(finding.quote in text for finding in quoted)
    assert all(finding.source.startswith("baseline") for finding in STUDY.findings if not finding.quote)


def test_every_variant_is_a_configuration_of_its_model_and_every_contested_change_was_planned():
    replication = STUDY.replication
    assert replication
    named = [name for names in replication.configurations.values() for name in names]
    assert sorted(named) == sorted(STUDY.variants)
    for change in replication.changes:
        for model, task in replication.contested:
            assert any(run.task.kind == task for run in STUDY.variants[model + change.suffix])


def test_nothing_contested_is_out_of_reach_without_training_of_published_length():
    assert STUDY.replication
    assert set(STUDY.replication.decisive) == set(STUDY.replication.contested)
    assert STUDY.replication.decisive["srwm", "dyck-1"] == ("srwm", f"srwm, {LONG}", f"srwm, {ON_PUBLISHED}")
