"""What weights show: decoders find what a machine keeps and nothing else, and attention looks where it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from assay.analysis.inspections import read_inspection
from assay.cli import app
from assay.errors import BadInput
from assay.extract.attention_focus import focus
from assay.extract.state_use import components, counts, decoded_bits, final_states, must_carry, state_use
from assay.models.linear_attention import LinearAttention, LinearAttentionLayer
from assay.models.positions import PositionTable
from assay.models.skeleton import Model, Stack, StateChange
from assay.rng import Rng
from assay.tasks.index_lookup import IndexLookup
from assay.theory.constructions.index_lookup import TraceLookup

LETTERS, N = 4, 3
TASK = IndexLookup(alphabet=LETTERS, positions=N)


def memory(keeps: int, numbers: str = "") -> Model:
    """A linear Transformer that writes the symbols of the first positions, one-hot, under one-hot keys; no others."""
    state = StateChange(numbers=numbers) if numbers else None
    mixers = (LinearAttention(heads=1, features="identity"),)
    stack = Stack(name="memory", mixers=mixers, width=8, ff=0, norm="none", positions="learned", longest=N + 1,
                  state=state)  # fmt: skip
    model = stack.build(*TASK.shape, Rng.seeded(0)).requires_grad_(requires_grad=False)
    for parameter in model.parameters():
        parameter.zero_()
    layer, table = model.blocks[0].mixer, positions_of(model)
    assert isinstance(layer, LinearAttentionLayer)
    assert isinstance(model.embed, torch.nn.Embedding)
    key, value = layer.project.weight[8:16], layer.project.weight[16:]
    for i in range(LETTERS):
        model.embed.weight[1 + i, i] = value[i, i] = 1
    for p in range(keeps):
        table[p, LETTERS + p] = key[LETTERS + p, LETTERS + p] = 1
    return model


def positions_of(model: Model) -> Tensor:
    assert isinstance(model.positions, PositionTable)
    return model.positions.table


def test_decoders_find_what_a_machine_keeps_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assay.extract.state_use.MOST_STRINGS", 2048)
    rng = Rng.seeded(0, "test")
    for keeps in (0, 2):
        use = state_use(memory(keeps), TASK, N, "float32", rng)
        assert use["input_bits"] == 6
        assert use["linear"] == pytest.approx(2 * keeps, abs=0.2)
        assert use["nonlinear"] == pytest.approx(2 * keeps, abs=0.2)
        assert use["linear_by_position"] == pytest.approx([2] * keeps + [0] * (N - keeps), abs=0.1)
        assert use["accuracy"] == pytest.approx(0.25, abs=0.05), "it keeps what it cannot look up"
        assert use["needed"] < 0.3


def test_only_the_nonlinear_decoder_finds_a_sum():
    """Two bits are kept as their sum modulo 2 and one of them times that: no linear map finds the other."""
    bits = Rng.seeded(0, "bits").rows(4096).integers(2, 2)
    states = torch.stack([bits[:, 0] ^ bits[:, 1], bits[:, 0]], 1).float() * 2 - 1
    linear, nonlinear = decoded_bits(states, bits[:, 1:], 2, Rng.seeded(0))
    assert linear[0] == pytest.approx(0, abs=0.02)
    assert nonlinear[0] == pytest.approx(1, abs=0.02)


def test_states_are_counted_exactly():
    states = final_states(memory(1, "fixed:1.0"), torch.cartesian_prod(*[torch.arange(1, 5)] * N))
    found = counts(states, "fixed:1.0")
    assert found == {"distinct": 4, "coordinate_bits": 4.0, "state_bits": 64 * 2}


def test_components_of_very_large_states_keep_what_differs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assay.extract.state_use.WIDE", 32)
    bits = Rng.seeded(0, "bits").rows(64).integers(3, 2).float()
    states = torch.cat([bits, torch.ones(64, 50)], 1)
    assert components(states, slice(0, 48)).shape == (64, 3)


def test_what_a_state_must_carry():
    assert must_carry(400, 64, 0.907) == pytest.approx(2000, abs=5)
    assert must_carry(400, 64, 0.01) == 0


def test_explicit_weights_look_at_the_right_position():
    length = 20
    lookup = TraceLookup(8)
    model = lookup.build(length)
    found = focus(model, lookup.task(length), length, Rng.seeded(0))
    assert found["positions"] == list(range(1, length + 1))
    assert min(found["weights"]) >= 7 / 8, "eta is made for this"
    overlaps = torch.tensor(found["overlaps"])
    assert overlaps.diagonal().tolist() == pytest.approx([1] * 16)
    assert (overlaps - 2 * torch.eye(16)).max() < 0.01, "negative ones do no harm"
    before = weights_of(model)
    focus(model, lookup.task(length), length, Rng.seeded(0))
    assert all(torch.equal(x, y) for x, y in zip(before, weights_of(model), strict=True))


def test_attention_that_looks_elsewhere_is_seen():
    lookup = TraceLookup(8)
    model, task = lookup.build(20), lookup.task(20)
    table = positions_of(model)
    with torch.no_grad():
        table[:20] = table[:20].roll(1, 0)
    found = focus(model, task, 20, Rng.seeded(0))
    assert found["weight"] < 0.05


def weights_of(model: Model) -> list[Tensor]:
    return [parameter.clone() for parameter in model.parameters()]


STUDY = '''
"""Small machines."""
from assay.findings import Separations
from assay.spec import run_spec

def runs(model, width, **options):
    training = {"lengths": [3, 5], "steps": 5, "validation_rows": 8, "validate_every": 5}
    return [run_spec("index-lookup", model, task_options={"alphabet": 4, "positions": 4},
                     model_options={"width": width, "layers": 1, **options}, training=training, testing={"rows": 8})]

VARIANTS = {"transformer": runs("transformer", 8, heads=2), "gru": runs("gru", 2, state={"numbers": "fixed:0.1"})}
RUNS = [run for named in VARIANTS.values() for run in named]
SEPARATIONS = Separations("Small", "none", ("gru",), "transformer")
'''


def test_kept_weights_are_inspected_by_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.extract.state_use.MOST_STRINGS", 256)
    monkeypatch.setattr("assay.extract.state_use.FEWEST_STRINGS", 256)
    Path("small_machines.py").write_text(STUDY)
    runner = CliRunner()
    done = runner.invoke(app, ["study", "small_machines.py", "--device", "cpu", "--jobs", "1", "--weights", "all"])
    assert done.exit_code == 0, done.output
    result = runner.invoke(app, ["inspect", "small_machines.py"])
    assert "inspected 1 runs with attention and 1 with a fixed state" in result.output
    found = read_inspection(Path("assay-store"))
    assert found
    assert [row["claim"] for row in found["explicit"]] == ["lookup-trace", "lookup-random"]
    (attention,), (state,) = found["attention"], found["states"]
    assert attention["positions"] == [1, 2, 3, 4]
    assert (state["width"], state["numbers"], state["bits"], state["state_bits"]) == (2, "fixed:0.1", 4, 4)
    assert 1 <= state["distinct"] <= 16
    again = runner.invoke(app, ["inspect", "small_machines.py", "--json"])
    assert json.loads(again.stdout) == found, "the same weights give the same inspection"
    refused = runner.invoke(app, ["inspect", "quick"])
    assert "quick is not about lengths and sizes" in str(refused.exception)


def test_a_lookup_without_weights_is_refused():
    from assay.analysis.lengths import Lengths
    from assay.extract.inspection import inspect
    from assay.findings import Separations

    with pytest.raises(BadInput, match="no run of index-lookup has weights here"):
        inspect(Separations("none", "", (), ""), Lengths({}, {}, {}, []), "assay inspect none")
