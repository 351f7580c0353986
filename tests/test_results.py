"""The records that ship with the package are of the studies as they stand."""

from __future__ import annotations

import pytest

from assay.record import Store
from assay.spec import RunSpec
from assay.studies import RESULTS, STUDIES, study_named

SHIPPED = sorted(path.name.removesuffix(".jsonl.xz") for path in RESULTS.glob("*.jsonl.xz"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_run_of_a_shipped_study_has_its_record(name: str):
    assert name in STUDIES
    found = {record.digest: record for record in Store.open(RESULTS / f"{name}.jsonl.xz").records()}
    runs = study_named(name)[1]
    assert set(found) == {run.digest for run in runs}
    for run in runs:
        record = found[run.digest]
        assert RunSpec(**record.spec) == run
        assert record.finished
        assert record.commit
        assert not record.commit.endswith("+")


def test_the_demo_shows_the_separations_that_it_promises():
    found = {(r.task, r.model, r.seed): r for r in Store.open(RESULTS / "quick.jsonl.xz").records()}

    def share(task: str, model: str, bin_: str) -> list[float]:
        return [found[task, model, seed].score(bin_).sequences for seed in range(3)]

    assert [found["parity", "lstm", seed].verdict for seed in range(3)] == ["solved"] * 3
    for model in ("recurrent-delta", "srwm"):
        assert sum(found["parity", model, seed].verdict == "solved" for seed in range(3)) >= 2
        assert min(share("parity", model, "Bin1")) > 0.98
    for model in ("transformer", "linear-transformer", "delta-net"):
        assert max(share("parity", model, "Bin1")) < 0.02
    assert share("index-lookup", "transformer", "Bin1") == [1, 1, 1]
    for model in ("linear-transformer", "delta-net", "recurrent-delta", "srwm", "lstm"):
        assert max(share("index-lookup", model, "Bin1")) < 0.9


def test_equal_budgets():
    runs = study_named("quick")[1]
    assert len({run.training.model_dump_json(exclude={"lengths", "validation"}) for run in runs}) == 1
    for task in {run.task.kind for run in runs}:
        mine = [run for run in runs if run.task.kind == task]
        assert len({(run.training.model_dump_json(), run.testing.model_dump_json()) for run in mine}) == 1
        assert len(mine) == 18
