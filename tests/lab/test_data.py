"""Splits: what is tested is never trained on, and the record says where that cannot be."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInput
from assay.lab.data import TrainingData, held_out
from assay.lab.splits import TEST, VALIDATE, content_hash, part_of
from assay.spec import RunSpec, run_spec
from assay.tasks import named_task
from assay.tasks.bins import Bin
from assay.tasks.task import IGNORE, Batch

from . import alone

CPU = torch.device("cpu")
WINDOW = Bin(name="Bin0", low=2, high=50)


def batch(spec: RunSpec, number: int) -> Batch:
    return alone.batch(spec, number, CPU)


def trained_rows(spec: RunSpec, steps: int) -> list[Batch]:
    return [batch(spec, step) for step in range(1, steps + 1)]


def asked(batch: Batch) -> torch.Tensor:
    return (batch.targets != IGNORE).any(1)


@pytest.mark.parametrize("task", ["parity", "dyck-1", "reset-dyck-1", "shuffle", "s3", "nearest-neighbour"])
def test_no_held_out_string_is_trained_on(task: str):
    spec = run_spec(task, "lstm", training={"batch": 256, "lengths": [3, 13]})
    seen = torch.cat([content_hash(b.inputs[asked(b)]) for b in trained_rows(spec, 20)])
    window = Bin(name="Bin0", low=3, high=13)
    for split in ("test", "validate"):
        held = held_out(spec.task, window, (3, 13), 256, split, CPU)
        bits = torch.tensor([spec.task.log2_inputs(int(n)) for n in held.lengths])
        own = part_of(held.batch.inputs) == (TEST if split == "test" else VALIDATE)
        own &= bits >= 6
        assert own.sum() >= 40
        assert len(own) - int(own.sum()) == held.shared
        assert not torch.isin(content_hash(held.batch.inputs)[own], seen).any()


def test_test_and_validation_are_disjoint_and_without_repeats():
    sets = [held_out(named_task("parity"), WINDOW, (2, 50), 512, split, CPU) for split in ("test", "validate")]
    split = [content_hash(s.batch.inputs)[s.lengths > 8] for s in sets]
    assert not torch.isin(split[0], split[1]).any()
    for hashes in split:
        assert len(hashes.unique()) == len(hashes)


def test_a_unary_language_is_shared_and_says_so():
    held = held_out(named_task("even-a"), WINDOW, (2, 50), 40, "test", CPU)
    assert held.shared == len(held.lengths) == 25, "one row a string"
    assert held.lengths.unique().tolist() == list(range(2, 51, 2)), "one word a length: every length is tested"
    spec = run_spec("even-a", "lstm", training={"lengths": [2, 50]})
    assert all(asked(one).all() for one in trained_rows(spec, 3)), "and all of it is trained on"


def test_almost_every_row_of_a_batch_asks_something():
    spec = run_spec("parity", "lstm", training={"batch": 512})
    share = torch.cat([asked(one) for one in trained_rows(spec, 8)]).double().mean()
    assert 0.97 < share < 0.995  # 1 - (2/8)^3 = 0.984


def test_training_lengths_are_uniform():
    """Also where short lengths are not split and all the others lose candidates."""
    spec = run_spec("parity", "lstm", training={"batch": 512, "lengths": [2, 24]})
    lengths = torch.cat([(b.inputs > 0).sum(1) for b in trained_rows(spec, 64)])
    counts = lengths.bincount(minlength=25)[2:].double()
    expected = len(lengths) / 23
    assert ((counts - expected) ** 2 / expected).sum() < 48.3, "chi-square with 22 degrees of freedom, p = 0.001"


@pytest.mark.parametrize("task", ["even-a", "an-bn", "abab", "an-bn-cn"])
def test_beyond_training_no_word_of_a_unary_language_is_validated_and_tested(task: str):
    spec = run_spec(task, "lstm", training={"lengths": [4, 40]})
    lengths = [
        set(held_out(spec.task, window, (4, 40), 256, split, CPU).lengths.tolist())
        for windows, split in ((spec.training.validation[1:], "validate"), (spec.testing.bins[1:], "test"))
        for window in windows
    ]
    validated, tested = lengths[0], set().union(*lengths[1:])
    assert validated
    assert tested
    assert not validated & tested
    bin1 = held_out(spec.task, spec.testing.bins[1], (4, 40), 256, "test", CPU)
    assert bin1.shared == 0
    assert len(bin1.lengths) == len(bin1.lengths.unique()), "one row a string"


@pytest.mark.parametrize("task", ["equality-random", "disjointness", "bounded-dyck", "equality-one"])
def test_splitting_keeps_labels_in_balance(task: str):
    options = {"equality-one": {"alphabet": 4}, "bounded-dyck": {"k": 1, "depth": 1}}.get(task)
    spec = run_spec(task, "lstm", task_options=options, training={"lengths": [3, 20], "batch": 2048})
    drawn = batch(spec, 1)
    lengths = (drawn.inputs > 0).sum(1)
    labels = drawn.targets.amax(1)
    held = held_out(spec.task, Bin(name="Bin0", low=3, high=20), (3, 20), 512, "test", CPU)
    for length in spec.task.lengths(3, 20):
        trained = labels[(lengths == length) & (labels >= 0)].double()
        assert 0.3 < trained.mean() < 0.7, length
    tested = held.batch.targets.amax(1).double()
    assert 0.35 < tested.mean() < 0.65


def test_batches_depend_on_seed_and_step_alone():
    spec, other = run_spec("dyck-1", "lstm", seed=3), run_spec("dyck-1", "srwm", seed=3)
    assert torch.equal(batch(spec, 7).inputs, batch(other, 7).inputs)
    assert not torch.equal(batch(spec, 7).inputs, batch(spec, 8).inputs)
    assert not torch.equal(batch(spec, 7).inputs, batch(run_spec("dyck-1", "lstm", seed=4), 7).inputs)


def test_a_batch_is_the_same_beside_whatever_it_is_drawn():
    spec = run_spec("dyck-1", "lstm", seed=3)
    seeds, first = torch.tensor([[9, 3, 2**62], [1, 6, 40]])
    drawn = TrainingData(spec.task, spec.training, CPU).draw(seeds, first, 4)
    assert drawn.inputs.shape == (3, 4, 32, 50)
    for count in range(4):
        assert torch.equal(drawn.inputs[1, count], batch(spec, 6 + count).inputs)
        assert torch.equal(drawn.targets[1, count], batch(spec, 6 + count).targets)


def test_held_out_sets_are_the_same_for_every_run():
    first = held_out(named_task("parity"), WINDOW, (2, 50), 100, "test", CPU).batch.inputs
    assert torch.equal(first, held_out(named_task("parity"), WINDOW, (2, 50), 100, "test", CPU).batch.inputs)
    other = Bin(name="Bin9", low=2, high=50)
    assert not torch.equal(first, held_out(named_task("parity"), other, (2, 50), 100, "test", CPU).batch.inputs)


def test_the_content_hash_does_not_see_padding():
    tokens = torch.tensor([[1, 2, 1, 0, 0]])
    assert content_hash(tokens) == content_hash(tokens[:, :3])
    assert content_hash(tokens) != content_hash(torch.tensor([[1, 1, 2]]))


def test_a_bin_with_options_is_drawn_by_the_task_with_these_options():
    """The sparse and the dense test of flip-flop language modelling; nothing of them is trained on."""
    task = named_task("flip-flop-language")
    spec = run_spec(task, "lstm", training={"lengths": [64, 64], "batch": 64})
    shares = {}
    for bin_ in spec.testing.bins:
        test = held_out(task, bin_, (64, 64), 64, "test", CPU)
        instructions = test.batch.inputs[:, 2:-2:2]
        shares[bin_.name] = float((instructions == 3).sum() / (instructions > 0).sum())
        assert (part_of(test.batch.inputs) == TEST).all()
    assert list(shares) == ["Bin0", "Sparse", "Dense", "Bin1"]
    assert [shares[name] for name in ("Bin0", "Sparse", "Dense")] == pytest.approx([0.8, 0.98, 0.1], abs=0.03)
    assert RunSpec(**spec.plain()).digest == spec.digest


def test_options_of_a_bin_must_fit_the_task():
    def spec(**options: bool | int | float | str) -> RunSpec:
        bin_ = Bin(name="Bin0", low=3, high=9, options=tuple(options.items()))
        return run_spec("cyclic", "lstm", testing={"bins": (bin_,)})

    with pytest.raises(BadInput, match=r"^Bin0: its options change the symbols or answers of cyclic$"):
        spec(n=4)
    with pytest.raises(BadInput, match=r"^cyclic has no field 'ignore'"):
        spec(ignore=0.1)
