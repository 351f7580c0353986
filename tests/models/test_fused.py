"""With the kernels of a GPU, models compute what they compute with plain operations: logits and all gradients.

Without a GPU the kernels run through Triton's interpreter, chosen as they would be on one.
"""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from assay import ops
from assay.models import MODELS
from assay.ops import dispatch
from assay.ops.dispatch import is_installed
from assay.rng import Rng

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU all tests of models run with its kernels"),
    pytest.mark.skipif(not is_installed("triton"), reason="triton is not installed"),
    pytest.mark.filterwarnings("ignore:.* encountered in .*:RuntimeWarning"),  # of the interpreter, beyond the tensors
]
HEADED = {"width": 4, "heads": 2, "layers": 2}
CASES = {
    "linear-transformer": HEADED | {"gated": True},
    "delta-net": HEADED,
    "recurrent-delta": HEADED | {"layers": 1},
    "srwm": HEADED | {"layers": 1},
    "retnet": HEADED | {"layers": 1},
    "gated-delta-product": HEADED | {"layers": 1},
    "kda": HEADED | {"layers": 1},
    "mlstm": HEADED | {"layers": 1},
    "mamba-2": HEADED | {"layers": 1, "states": 3},
    "mamba-3": HEADED | {"layers": 1, "states": 3},
    "transformer": HEADED,
    "e-lstm": {"width": 3},
    "lstm": {"width": 3},
    "slstm": HEADED | {"layers": 1},
    "pd-ssm": {"width": 4, "layers": 1, "states": 3},
    "forgetting-transformer": HEADED | {"layers": 1},
}
MEMBERS, ROWS, TIME = 2, 2, 3


def chosen_as_on_a_gpu(name: str, backend: str, *others: object) -> str:
    return "gpu" if backend == "auto" and "gpu" in dispatch._definition(name).kernels else "reference"


@pytest.mark.parametrize("model", CASES)
def test_kernels_change_nothing(model: str):
    members = [MODELS.load(model)(**CASES[model]).build(3, 0, 2, Rng.seeded(seed)).double() for seed in range(MEMBERS)]
    names = [name for name, _ in members[0].named_parameters()]
    parameters = [torch.stack([m.get_parameter(n).detach() for m in members]).requires_grad_() for n in names]
    tokens = torch.randint(0, 3, (MEMBERS, ROWS, TIME), generator=torch.Generator().manual_seed(0))

    def run() -> tuple[Tensor, ...]:
        def logits(leaves: list[Tensor], tokens: Tensor) -> Tensor:
            output: tuple[Tensor, object] = functional_call(members[0], dict(zip(names, leaves, strict=True)), tokens)
            return output[0]

        stacked = vmap(logits)(parameters, tokens)
        return stacked.detach(), *torch.autograd.grad(stacked.sin().sum(), parameters)

    wanted = run()
    with (
        mock.patch.object(dispatch, "backend_for", chosen_as_on_a_gpu),
        mock.patch.object(ops, "backend_for", chosen_as_on_a_gpu),
    ):
        got = run()
    for name, a, b in zip(["logits", *names], got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9, msg=name)
