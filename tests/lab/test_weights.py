"""Weights beside records: kept by verdict, loaded bit for bit, packed with the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay import load_model
from assay.errors import BadInput
from assay.lab.carry_out import carry_out, local_engine
from assay.lab.evaluate import evaluate, logits_of
from assay.lab.execute import execute
from assay.lab.plan import Plan
from assay.lab.reprobing import probe_again, probed_runs
from assay.lab.weights import Kept, is_kept, is_state_kept, pack_weights
from assay.models import MODELS
from assay.models.skeleton import Foreign
from assay.record import OtherState, Record, Verdict
from assay.spec import RunSpec, run_spec
from assay.store import Store, weights_beside

CPU = torch.device("cpu")
SHORT = {"steps": 2, "lengths": [2, 6], "validate_every": 2}
BINS = [{"name": "Bin0", "low": 2, "high": 6}]


def spec_of(model: str | Foreign, seed: int = 0) -> RunSpec:
    return run_spec("parity", model, seed=seed, training=SHORT, testing={"rows": 4, "bins": BINS})


class WithBuffer(torch.nn.Module):
    """A buffer that training changes, and a tensor that only its seed determines."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.embed, self.fixed = torch.nn.Embedding(vocab, answers), torch.randn(answers)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        return self.embed(tokens) + self.fixed * self.calls


@pytest.mark.parametrize("model", [*MODELS.entries, Foreign.of(WithBuffer)], ids=str)
def test_a_loaded_model_has_the_outputs_of_the_tested_one(model: str | Foreign, monkeypatch: pytest.MonkeyPatch):
    options = {"mixers": [{"kind": "lstm"}, {"kind": "attention"}]} if model == "hybrid" else {}
    spec = run_spec("parity", model, training=SHORT, testing={"rows": 4, "bins": BINS}, model_options=options)
    tested: list[torch.Tensor] = []
    inputs = torch.tensor([[1, 2, 2, 1, 2]])

    def evaluated(module: torch.nn.Module, *_: object) -> object:
        tested.append(logits_of(module.eval(), inputs).detach().clone())
        raise RuntimeError("seen")

    monkeypatch.setattr("assay.lab.execute.evaluate", evaluated)
    execute(spec, CPU)
    monkeypatch.undo()
    record = execute(spec, CPU)
    with torch.no_grad():
        assert torch.equal(logits_of(load_model(record), inputs), tested[0])


@pytest.mark.parametrize("jobs", [1, 2])
def test_weights_are_stored_with_their_record_and_packed(tmp_path: Path, jobs: int):
    store = Store.create(tmp_path / "store")
    specs = [spec_of("gru", seed) for seed in range(2)]
    plan = Plan(specs, [], CPU, jobs, weights="all")
    carry_out(plan, store, local_engine(plan, store))
    assert {path.stem for path in (store.path / "weights").iterdir()} == {spec.digest for spec in specs}
    packed = tmp_path / "packed.jsonl.xz"
    store.pack(packed)
    assert pack_weights(store.records(), weights_beside(packed)) == 2
    first = weights_beside(packed).read_bytes()
    pack_weights(store.records(), weights_beside(packed))
    assert weights_beside(packed).read_bytes() == first
    for record in store.records():
        (again,) = Store.open(packed).select([record.digest])
        loaded, other = load_model(record).state_dict(), load_model(again).state_dict()
        assert loaded.keys() == other.keys()
        assert all(torch.equal(loaded[name], other[name]) for name in loaded)
        assert torch.equal(
            load_model(record.model_copy(), packed).state_dict()["read_out.bias"], other["read_out.bias"]
        )


@pytest.mark.parametrize(
    ("kept", "verdicts"),
    [("all", {"solved", "refuted", "partly solved", "censored"}), ("solved", {"solved", "refuted"}), ("none", set())],
)
def test_whose_weights_are_kept(kept: Kept, verdicts: set[str]):
    every: list[Verdict] = ["solved", "refuted", "partly solved", "censored", "diverged", "failed"]
    assert {verdict for verdict in every if is_kept(kept, verdict)} == verdicts


def test_a_record_without_weights_says_how_to_get_them(tmp_path: Path):
    store, spec = Store.create(tmp_path / "store"), spec_of("gru")
    store.add(Record(digest=spec.digest, spec=spec.plain(), verdict="censored", stopped="steps"))
    with pytest.raises(BadInput, match=r"there are no weights of gru on parity, seed 0 .* --weights all --again"):
        load_model(store.records()[0])
    path = store.path / "weights" / f"{spec.digest}.safetensors"
    path.parent.mkdir()
    path.write_bytes(b"half")
    with pytest.raises(BadInput, match="cannot read the weights in"):
        load_model(store.records()[0])


def test_stored_runs_are_probed_again_when_probes_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The record gets the new scores and the verdict that follows; its digest and its weights stay."""
    store, spec = Store.create(tmp_path / "store"), spec_of("gru")
    trained = execute(spec, CPU)
    as_solved = trained.model_copy(update={"verdict": "solved", "probing": None, "first_failing_length": None})
    store.add(as_solved.with_weights(trained.weights))
    pending, without = probed_runs(store, store.records())
    assert (len(pending), without) == (1, [])
    again = probe_again(pending[0], CPU)
    assert again.probing is not None
    assert (again.verdict, again.rung) == ("refuted", ""), "two steps teach nothing"
    assert again.wrong_word
    store.add(again)
    assert probed_runs(store, store.records()) == ([], [])
    monkeypatch.setattr("assay.lab.reprobing.VERSION", 1000)
    assert len(probed_runs(store, store.records())[0]) == 1, "of an older version"
    (store.weights_file(spec.digest) or tmp_path).unlink()
    assert len(probed_runs(store, store.records())[1]) == 1, "without weights"


def test_weights_of_an_earlier_run_do_not_stay(tmp_path: Path):
    """A new record without weights removes the file; a new result of the stored run does not."""
    store, record = Store.create(tmp_path / "store"), execute(spec_of("gru"), CPU)
    store.add(record.model_copy().with_weights(record.weights))
    (stored,) = store.records()
    store.add(stored.model_copy(update={"first_failing_length": 3}))
    assert store.weights_file(record.digest)
    store.add(Record(**record.plain()))
    assert store.weights_file(record.digest) is None


def test_packed_weights_are_only_of_the_runs_that_had_some(tmp_path: Path):
    store = Store.create(tmp_path / "store")
    first, second = execute(spec_of("gru"), CPU), execute(spec_of("gru", 1), CPU)
    store.add(first.with_weights(first.weights), Record(**second.plain()))
    packed = tmp_path / "store.jsonl.xz"
    store.pack(packed)
    assert [pack_weights(store.records(), weights_beside(packed)) for _ in range(2)] == [1, 1]
    assert Store.open(packed).weights_file(second.digest) is None
    with pytest.raises(BadInput, match="there are no weights of gru"):
        load_model(next(r for r in Store.open(packed).records() if r.seed == 1))


def test_weights_of_another_run_are_refused(tmp_path: Path):
    store = Store.create(tmp_path / "store")
    records = [execute(spec_of("gru", seed), CPU) for seed in range(2)]
    store.add(*[record.with_weights(record.weights) for record in records])
    one, other = (store.weights_file(record.digest) or tmp_path for record in records)
    one.write_bytes(other.read_bytes())
    with pytest.raises(BadInput, match="are not those of the run"):
        load_model(store.select([records[0].digest])[0])
    assert load_model(store.select([records[1].digest])[0])


@pytest.mark.parametrize("jobs", [1, 2])
def test_weights_of_further_states_are_kept_beside_those_of_the_tested_one(tmp_path: Path, jobs: int):
    """The watched state of a run that stopped before it; its weights answer as they did when they were scored."""
    testing = {"rows": 16, "bins": BINS, "states": ["best", "watched"], "watch_every": 1}
    training = {"steps": 40, "lengths": [2, 6], "validate_every": 4, "lr": 0.05}
    spec = run_spec("parity", "gru", training=training, testing=testing)
    store = Store.create(tmp_path / "store")
    plan = Plan([spec], [], CPU, jobs, weights="all")
    carry_out(plan, store, local_engine(plan, store))
    (record,) = store.records()
    names = {path.name for path in (store.path / "weights").iterdir()}
    assert names == {f"{spec.digest}{state}.safetensors" for state in ("", ".best", ".watched")}
    packed = tmp_path / "packed.jsonl.xz"
    store.pack(packed)
    assert pack_weights([record], weights_beside(packed)) == 1
    (again,) = Store.open(packed).records()
    for state in record.states:
        model = load_model(again, state=state.name)
        scores, _ = evaluate(model, spec, CPU)
        assert [score.sequences for score in scores] == [score.sequences for score in state.scores]
    changed = record.model_copy(update={"states": (record.states[0].model_copy(update={"weights_sha256": "0"}),)})
    with pytest.raises(BadInput, match="are not those of the run"):
        load_model(changed, store.path, record.states[0].name)


def test_a_watched_state_that_was_perfect_is_kept_even_if_the_run_was_not():
    states = [
        OtherState(name="watched", step=4, verdict="partly solved", scores=(), first_perfect=perfect)
        for perfect in (4, None)
    ]
    assert [is_state_kept("solved", state) for state in states] == [True, False]
    assert not is_state_kept("none", states[0])
