"""The kernels of automata and of the random generator give the integers of the plain operations.

Without a GPU the kernels run through Triton's interpreter.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.ops.dispatch import is_installed
from assay.rng import Rng, _mixed, mix
from assay.tasks import example_task
from assay.tasks.task import PAD

pytestmark = pytest.mark.skipif(not is_installed("triton"), reason="triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 0x123456789ABCDEF, -987654321])


def test_a_word_is_mixed_alike_as_a_tensor_as_a_number_and_by_the_kernel():
    from assay import integer_kernels as gpu

    expected = mix(WORDS)
    assert [_mixed(word) for word in WORDS.tolist()] == expected.tolist()
    assert torch.equal(gpu.mix(WORDS.to(DEVICE)).cpu(), expected)
    grid = Rng(WORDS).words(300)
    assert torch.equal(gpu.mix(grid.T.to(DEVICE)).cpu(), mix(grid.T))
    assert gpu.mix(WORDS[:0].to(DEVICE)).shape == (0,)


@pytest.mark.parametrize("name", ["parity", "modular-arithmetic"])
def test_walks_and_states_are_those_of_the_plain_operations(name: str):
    from assay import integer_kernels as gpu

    task: Any = example_task(name)
    machine, words = task.machine, task.words
    lengths, rng = torch.tensor([1, 2, 5, 7] * 40), Rng.seeded(3).rows(160)
    tokens = words.draw(lengths, rng, 7)
    drawn = (words.choices(7, torch.device("cpu")), machine.moves, rng.uniform(7), lengths)
    choices, moves, uniform, long = (x.to(DEVICE) for x in drawn)
    got = gpu.walk(choices, moves, uniform, long, machine.start)
    assert torch.equal(got.cpu(), tokens)
    assert tokens.unique().numel() > 1

    padded = tokens.where(torch.arange(7) < lengths[:, None], PAD)
    visited = machine.states(padded)
    got = gpu.states(machine._table.to(DEVICE), padded.to(DEVICE), machine.moves.shape[1] + 1, machine.start)
    assert torch.equal(got.cpu(), visited)
    assert gpu.states(machine._table.to(DEVICE), padded[:0].to(DEVICE), 3, 0).shape == (0, 7)
