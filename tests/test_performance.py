"""The page on performance is made from records, its verdicts by code, and the command that makes records works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.ops import OPERATORS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("update_performance", str(ROOT / "scripts" / "update-performance"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def records(script: ModuleType) -> dict[str, Any]:
    return script.stored()


def test_the_page_is_what_the_records_give():
    words = [sys.executable, str(ROOT / "scripts" / "update-performance"), "--check"]
    assert subprocess.run(words, check=False).returncode == 0, "run scripts/update-performance"


def test_every_figure_of_the_goals_comes_from_a_record(script: ModuleType, records: dict[str, Any]):
    rows = [row for record in records.values() for row in record["rows"]]
    values = [value for row in rows for key, value in row.items() if key.startswith(("x_", "error_"))]
    known = {f"{script.number(value)}x" for value in values} | {f"{value:.0e}" for value in values}
    shown = [cell for line in script.goals_table(records).splitlines()[2:] for cell in line.split("|")[4:]]
    figures = [found[1] for cell in shown if (found := re.match(r" ([\d.,e-]*\dx?) \(", cell))]
    assert set(figures) <= known
    assert len(figures) == sum("reached" in cell for cell in shown)


def row(op: str, both: float, **others: Any) -> dict[str, Any]:
    shape = {"members": 1, "rows": 32, "heads": 8, "time": 100, "size": 16, "states": 0, "dtype": "float32"}
    return {"op": op, **shape, "backend": "gpu", "bytes_floor": 1000, "both_ms": both, **others}


def test_ratios_are_of_the_same_shape_and_per_member(script: ModuleType):
    compare = sys.modules["ops"].compare  # of bench, which the script imports
    mine = row("srwm", 2.0, members=64)
    rows = [mine, row("srwm", 100.0, backend="reference"), row("srwm", 1.0, backend="reference", time=50)]
    compare(rows, 1.0)
    assert mine["x_loop"] == 100.0 * 64 / 2.0
    fla = [row("delta_rule", ms, backend=f"fla {form}") for form, ms in (("chunk", 3.0), ("recurrent", 5.0))]
    mine, wide = row("delta_rule", 2.0), row("delta_rule", 1.0, dtype="bfloat16")
    compare([mine, wide, *fla], 1.0)
    assert mine["x_fla"] == 1.5
    assert "x_fla" not in wide


def test_a_goal_is_judged_by_its_worst_shape(script: ModuleType):
    def verdict(*ratios: float | None) -> list[str]:
        rows = [row("delta_rule", 1.0, time=2048 + i) for i, _ in enumerate(ratios)]
        for each, ratio in zip(rows, ratios, strict=True):
            each |= {} if ratio is None else {"x_fla": ratio}
        (goal,) = [g for g in script.goals() if g.title == "`delta_rule` against fla, every shape"]
        return list(goal.judge({"h200": {"rows": rows}}, ""))

    assert verdict(1.2, 3.0) == ["1.20x (delta_rule, T = 2048, d = 16)", "reached"]
    assert verdict(1.2, 0.9) == ["0.900x (delta_rule, T = 2049, d = 16)", "**not reached**"]
    assert verdict(float("nan"), 3.0) == ["nanx (delta_rule, T = 2048, d = 16)", "**not reached**"]
    assert verdict(1.2, None) == verdict() == ["-", "not measured"]


def test_every_operator_has_a_case(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    from cases import quick

    assert {case.op for case in quick()} == set(OPERATORS)


def test_the_command_measures_operators(tmp_path: Path):
    """One of each form: with weights, with a state and a chunked form, with pairs of tokens, a layer."""
    names = ["srwm", "dplr", "attention", "affine"]
    words = [sys.executable, str(ROOT / "bench" / "ops.py"), "--quick", "--json", str(tmp_path / "ops.json")]
    done = subprocess.run([*words, "--commit", "abc", "--only", *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    record = json.loads((tmp_path / "ops.json").read_text())
    assert record["commit"] == "abc"
    assert record["copy_gb_per_s"] > 0
    assert {row["op"] for row in record["rows"]} == set(names)
    for measured in record["rows"]:
        assert "failed" not in measured, measured["failed"]
        assert measured["forward_ms"] > 0
        assert measured["both_ms"] > 0
        assert max(measured.get("error_out", 0), measured.get("error_grad", 0)) < 1e-5


def test_a_case_is_measured_again_at_another_commit_alone(script: ModuleType, tmp_path: Path):
    bench = sys.modules["ops"]
    order = bench.usual(cuda=True)[:3]
    device = {"device": "GPU", "versions": {"torch": "1"}}
    rows = [asdict(case) | {"backend": "gpu", "both_ms": 1.0} for case in order[:2]]
    (tmp_path / "ops.json").write_text(json.dumps(device | {"commit": "old", "rows": rows}))
    earlier = bench.earlier_record(str(tmp_path / "ops.json"), device | {"commit": "new"})["rows"]
    again = [asdict(case) | {"backend": "gpu", "both_ms": 2.0, "commit": "new"} for case in order[::2]]
    for row in reversed(again):
        earlier = bench.replaced(earlier, [row], order)
    assert [(row["commit"], row["both_ms"]) for row in earlier] == [("new", 2.0), ("old", 1.0), ("new", 2.0)]
    assert [bench.case_of(row) for row in earlier] == order
    with pytest.raises(SystemExit, match="another device"):
        bench.earlier_record(str(tmp_path / "ops.json"), device | {"device": "CPU", "commit": "new"})
