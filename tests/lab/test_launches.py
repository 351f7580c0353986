"""A training step of two layers launches at most a hundred kernels on a GPU; counted without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.ops.dispatch import is_installed

BENCH = Path(__file__).parents[2] / "bench"
MODELS = ("transformer", "linear-transformer", "delta-net", "recurrent-delta", "srwm", "lstm", "e-lstm")


@pytest.mark.skipif(not is_installed("triton"), reason="triton is not installed")
@pytest.mark.parametrize("model", MODELS)
def test_a_step_has_few_kernels(model: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCH)
    import launches
    from population import Case

    step, _ = launches.launches(Case(model, members=64, time=50).spec(), members=64)
    assert step["adamw._update"] == 1, "the kernels of a GPU are counted"
    assert step.total() <= 100, step.most_common()
