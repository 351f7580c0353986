"""Both methods of a crossover equal the reference, at any size; and the faster one is chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.ops.gpu.crossovers import CROSSOVERS, Crossover, choice

from .cases import Case, installed, runs
from .test_kernels import TOLERANCE, Sizes, in_precision, near

NEVER = 2**62
RECORD = Path(__file__).parents[2] / "bench" / "results" / "crossovers-h200.json"
AFFINE = ("affine", "affine-relu")
NETWORKS = ("elman", "elman-relu", "gru", "lstm", "slstm")
CASES = {"product": AFFINE, "weight gradient": (*AFFINE, "gru"), "recurrence": NETWORKS}
ODD: dict[str, Sizes] = {
    "small": {"time": 3, "batch": 4, "groups": 2, "H": 1, "D": 5, "O": 3},
    "heads": {"time": 2, "batch": 4, "groups": 2, "H": 2, "D": 3, "O": 2},
    "tiles": {"time": 1, "batch": 66, "groups": 1, "H": 1, "D": 33, "O": 70},
}


def force(work: str, above: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose one method at all sizes."""
    crossover = CROSSOVERS[work]
    least = dict.fromkeys(crossover.least, 0 if above else NEVER)
    monkeypatch.setitem(CROSSOVERS, work, replace(crossover, least=least))


every_method = pytest.mark.parametrize("above", [False, True], ids=["below", "above"])
every_work = pytest.mark.parametrize(
    ("work", "case"),
    [
        pytest.param(work, run.values[0], id=f"{work}-{run.id}", marks=installed("gpu"))
        for work, names in CASES.items()
        for run in runs("gpu", among=names)
    ],
)


@every_method
@every_work
@pytest.mark.parametrize("sizes", ODD.values(), ids=ODD)
def test_both_methods_equal_the_reference(
    work: str, case: Case, sizes: Sizes, above: bool, monkeypatch: pytest.MonkeyPatch
):
    force(work, above, monkeypatch)
    single = in_precision(case.draw(**sizes), torch.float32)
    double = in_precision(single, torch.float64)
    wanted = case.gradients(double)
    for parts, dtype in ((double, torch.float64), (single, torch.float32)):
        near(case.gradients(parts, "gpu"), wanted, TOLERANCE[dtype])


@every_work
def test_bfloat16_and_tf32_above(work: str, case: Case, monkeypatch: pytest.MonkeyPatch):
    force(work, True, monkeypatch)
    x, w, s = in_precision(case.draw(**ODD["small"]), torch.float32)
    low = [p.bfloat16() for p in x], [p.bfloat16() for p in w], s
    near(case.gradients(low, "gpu"), case.gradients(in_precision(low, torch.float32)), 1e-2)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    near(case.gradients((x, w, s), "gpu"), case.gradients((x, w, s)), 1e-2)


@every_work
def test_a_nan_stays_in_its_row_above(work: str, case: Case, monkeypatch: pytest.MonkeyPatch):
    force(work, True, monkeypatch)
    x, w, s = case.draw(3, batch=4, H=1)
    x = [p.float() for p in x]
    w, s = ([p.float() for p in part] for part in (w, s))
    clean = case.run((x, w, s), "gpu")
    x[0][1, :, 1] = torch.nan
    for before, got, wanted in zip(clean, case.run((x, w, s), "gpu"), case.run((x, w, s)), strict=True):
        assert torch.equal(got[[0, 2, 3]], before[[0, 2, 3]])
        assert got[wanted.isnan()].isnan().all()


every_crossover = pytest.mark.parametrize("crossover", CROSSOVERS.values(), ids=CROSSOVERS)


@every_crossover
def test_the_faster_method_is_chosen(crossover: Crossover):
    """Up to 5 %, at every size of the record; there are some on both sides."""
    rows = [row for row in json.loads(RECORD.read_text())["rows"] if row["work"] == crossover.work]
    choices = [crossover.choice(row["sizes"]) for row in rows]
    assert {*choices} == {crossover.below, crossover.above}
    for method, row in zip(choices, rows, strict=True):
        times = {method: spent for method, spent in row["ms"].items() if spent is not None}
        assert times[method] <= 1.05 * min(times.values()), row["sizes"]


@every_crossover
def test_the_choice_changes_at_each_size(crossover: Crossover):
    assert choice(crossover.work, **crossover.least) == crossover.above
    for name, least in crossover.least.items():
        assert choice(crossover.work, **crossover.least | {name: least - 1}) == crossover.below
