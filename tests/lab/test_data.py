"""Splits: what is tested is never trained on, and the record says where that cannot be."""

from __future__ import annotations

import pytest
import torch

from assay.lab.data import TEST, VALIDATE, TrainingData, content_hash, held_out, part_of
from assay.spec import Bin, RunSpec, run_spec
from assay.tasks import named_task
from assay.tasks.task import IGNORE, Batch

CPU = torch.device("cpu")
WINDOW = Bin(name="Bin0", low=2, high=50)


def trained_rows(spec: RunSpec, steps: int) -> list[Batch]:
    data = TrainingData(spec, CPU)
    return [data[step] for step in range(1, steps + 1)]


def asked(batch: Batch) -> torch.Tensor:
    return (batch.targets != IGNORE).any(1)


@pytest.mark.parametrize("task", ["parity", "dyck-1", "reset-dyck-1", "shuffle-2", "s3", "nearest-neighbour"])
def test_no_held_out_string_is_trained_on(task: str):
    spec = run_spec(task, "lstm", training={"batch": 256, "lengths": [3, 13]})
    seen = torch.cat([content_hash(b.inputs[asked(b)]) for b in trained_rows(spec, 20)])
    window = Bin(name="Bin0", low=3, high=13)
    for split in ("test", "validate"):
        held = held_out(spec.task, window, 256, split, CPU)
        bits = torch.tensor([spec.task.log2_inputs(int(n)) for n in held.lengths])
        own = part_of(held.batch.inputs) == (TEST if split == "test" else VALIDATE)
        own &= bits >= 6
        assert own.sum() >= 40
        assert len(own) - int(own.sum()) == held.shared
        assert not torch.isin(content_hash(held.batch.inputs)[own], seen).any()


def test_test_and_validation_are_disjoint_and_without_repeats():
    sets = [held_out(named_task("parity"), WINDOW, 512, split, CPU) for split in ("test", "validate")]
    split = [content_hash(s.batch.inputs)[s.lengths > 8] for s in sets]
    assert not torch.isin(split[0], split[1]).any()
    for hashes in split:
        assert len(hashes.unique()) == len(hashes)


def test_a_unary_language_is_shared_and_says_so():
    held = held_out(named_task("even-a"), WINDOW, 40, "test", CPU)
    assert held.shared == 40
    assert held.lengths.unique().tolist() == list(range(2, 51, 2)), "one word a length: every length is tested"
    spec = run_spec("even-a", "lstm", training={"lengths": [2, 50]})
    assert all(asked(batch).all() for batch in trained_rows(spec, 3)), "and all of it is trained on"


def test_almost_every_row_of_a_batch_asks_something():
    spec = run_spec("parity", "lstm", training={"batch": 512})
    share = torch.cat([asked(batch) for batch in trained_rows(spec, 8)]).double().mean()
    assert 0.97 < share < 0.995  # 1 - (2/8)^3 = 0.984


def test_training_covers_all_lengths_evenly():
    spec = run_spec("parity", "lstm", training={"batch": 512})
    lengths = torch.cat([(b.inputs > 0).sum(1) for b in trained_rows(spec, 16)])
    counts = lengths.bincount(minlength=51)[2:]
    assert counts.min() > 100
    assert counts.max() < 260  # 8192 rows over 49 lengths: 167 each


def test_batches_depend_on_seed_and_step_alone():
    spec, other = run_spec("dyck-1", "lstm", seed=3), run_spec("dyck-1", "srwm", seed=3)
    data = TrainingData(spec, CPU)
    assert torch.equal(data[7].inputs, TrainingData(other, CPU)[7].inputs)
    assert not torch.equal(data[7].inputs, data[8].inputs)
    assert not torch.equal(data[7].inputs, TrainingData(run_spec("dyck-1", "lstm", seed=4), CPU)[7].inputs)


def test_held_out_sets_are_the_same_for_every_run():
    first = held_out(named_task("parity"), WINDOW, 100, "test", CPU).batch.inputs
    assert torch.equal(first, held_out(named_task("parity"), WINDOW, 100, "test", CPU).batch.inputs)
    other = Bin(name="Bin9", low=2, high=50)
    assert not torch.equal(first, held_out(named_task("parity"), other, 100, "test", CPU).batch.inputs)


def test_the_content_hash_does_not_see_padding():
    tokens = torch.tensor([[1, 2, 1, 0, 0]])
    assert content_hash(tokens) == content_hash(tokens[:, :3])
    assert content_hash(tokens) != content_hash(torch.tensor([[1, 1, 2]]))
