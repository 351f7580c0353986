"""The runs of `tracking2026`: pieces, sizes, bins, published numbers, and the classes that theory speaks of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from assay.lab.data import held_out
from assay.studies import Study, study_named
from assay.studies.tracking2026 import CLASSES, END, FLIP_FLOP, QUESTIONS, TRACKING, VARIANT_MODELS
from assay.tasks.predictions import CLASSES as CLASSES_OF_THEORY
from assay.tasks.task import IGNORE

PIECE = 9  # minutes on an H200 by forecast


@pytest.fixture(scope="module")
def study() -> Study:
    return study_named("tracking2026")


def test_every_run_is_in_one_piece_and_one_variant(study: Study):
    digests = [run.digest for run in study.runs]
    assert len({*digests}) == len(digests)
    assert sorted(digests) == sorted(run.digest for runs in study.variants.values() for run in runs)


def test_variants_have_one_size_and_differ_in_their_recipe(study: Study):
    for variant, runs in study.variants.items():
        models = {run.model for run in runs}
        assert len({len(model.plain()["mixers"]) for model in models}) <= 2, variant  # one layer on the flip-flop
        assert all(model.plain()["width"] == 64 for model in models)
    on_parity = [runs[0].model for runs in study.variants.values()]
    assert len({model.model_dump_json() for model in on_parity}) == len(on_parity), "no variant twice"


def test_training_ends_at_40_tokens_and_tests_at_1024(study: Study):
    for task, runs in study.pieces.items():
        run = runs[0]
        longest = max(bin_.high for bin_ in run.testing.bins)
        assert (run.training.lengths[1], longest) == ((512 if task == FLIP_FLOP else 40), 1024)
        at_end = [bin_ for bin_ in run.testing.bins if bin_.options == (("questions", "at the end"),)]
        assert [bin_.name for bin_ in at_end] == ([END] if QUESTIONS[task].at_end else [])


def test_published_numbers_are_about_variants_tasks_and_bins_of_the_study(study: Study):
    digests = {variant: {run.digest for run in runs} for variant, runs in study.variants.items()}
    for table in TRACKING.published:
        assert {*table.numbers, *table.names} <= {*study.variants}
        for variant, numbers in table.numbers.items():
            for name in numbers:
                column = table.columns[name]
                run = next(run for run in study.pieces[column.task] if run.digest in digests[variant])
                assert column.bin in {bin_.name for bin_ in run.testing.bins}
                if table.measure == "scaled accuracy":
                    assert column.chance == pytest.approx(1 / (len(run.task.answers) - ("dead" in run.task.answers)))


def test_every_run_is_tested_in_its_best_state(study: Study):
    assert {run.training.keep for run in study.runs} == {"best"}


def test_the_published_table_says_how_many_questions_the_sparse_bin_has(study: Study):
    """A share of wrong answers below one of so many cannot be seen."""
    run = study.pieces[FLIP_FLOP][0]
    (sparse,) = (bin_ for bin_ in run.testing.bins if bin_.name == "Sparse")
    rows = held_out(run.task, sparse, run.training.lengths, run.testing.rows, "test", torch.device("cpu"))
    (table,) = (table for table in TRACKING.published if table.measure == "error")
    (number,) = re.findall(r"some ([\d,]+) questions", table.protocol)
    assert int(number.replace(",", "")) == pytest.approx(int((rows.batch.targets != IGNORE).sum()), rel=0.02)


def test_classes_are_those_of_theory():
    assert {*CLASSES.values()} <= {*CLASSES_OF_THEORY}
    assert {*CLASSES} <= {*VARIANT_MODELS}
    fixed = {"linear-transformer", "retnet", "dss"}  # the theorems are about transitions that depend on the input
    assert not fixed & {*CLASSES}
    named = [variant for variants in TRACKING.groups.values() for variant in variants]
    assert named == [*VARIANT_MODELS]


def test_the_pieces_fit_the_budget(study: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    import forecast

    rows = forecast.table(study, forecast.measured(forecast.RECORD))
    assert all(row.minutes <= PIECE and row.question for row in rows)
