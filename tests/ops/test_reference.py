"""The reference's gradients; and what every backend keeps: states, groups and invariants."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor

from assay import ops

from .cases import BACKENDS, CASES, PLAIN, Case, flat, trainable, with_backends


def close(got: Tensor, wanted: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def test_every_operator_has_a_public_function():
    for name, operator in ops.OPERATORS.items():
        parameters = inspect.signature(getattr(ops, name)).parameters
        assert list(parameters) == [*operator.arguments, *operator.flags, "backend"]
        assert {flag: parameters[flag].default for flag in operator.flags} == operator.flags


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gradients(case: Case):
    parts = trainable(case.draw(3))
    weights, states = len(parts[0]), len(parts[0]) + len(parts[1])

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        return case.run((tensors[:weights], tensors[weights:states], tensors[states:]))

    assert torch.autograd.gradcheck(run, flat(parts))


# -- states and groups ---------------------------------------------------------------------------------------------


@with_backends(*BACKENDS, among=PLAIN)
def test_state_is_handed_over(case: Case, backend: str):
    time, cut = (5, 2) if backend == "gpu" else (70, 33)
    x, w, s = case.draw(time)
    first = case.run(([part[:, :, :cut] for part in x], w, s), backend)
    axes = [case.operator.inputs[name] for name in case.operator.sequences]
    rest = [part if "S" in spec else part[:, :, cut:] for part, spec in zip(x, axes, strict=True)]  # S has the past
    second = case.run((rest, w, first[1:]), backend)
    outputs = torch.cat([first[0], second[0]], dim=2)
    for in_two, at_once in zip((outputs, *second[1:]), case.run((x, w, s), backend), strict=True):
        close(in_two, at_once)


@with_backends(*BACKENDS, among=[name for name, case in PLAIN.items() if case.draw(1)[2]])
def test_state_left_out_is_zero(case: Case, backend: str):
    x, w, s = case.draw(4)
    zero = [torch.zeros_like(part) for part in s]
    for left_out, explicit in zip(case.run((x, w, []), backend), case.run((x, w, zero), backend), strict=True):
        close(left_out, explicit, 0.0)


@with_backends("reference", "chunked", "cpu", among=[name for name, case in PLAIN.items() if case.operator.weights])
def test_groups_are_separate_calls(case: Case, backend: str):
    x, w, s = case.draw(4, batch=6, groups=3)
    together = case.run((x, w, s), backend)
    for group in range(3):
        rows = slice(2 * group, 2 * group + 2)
        parts = [p[rows] for p in x], [p[group : group + 1] for p in w], [p[rows] for p in s]
        for all_groups, alone in zip(together, case.run(parts, backend), strict=True):
            close(all_groups[rows], alone)


def test_a_decay_per_head_serves_every_row():
    (q, k, v), (decay,), (W,) = CASES["retention"].draw(4)
    for per_head, per_group in zip(ops.retention(q, k, v, decay[0], W), ops.retention(q, k, v, decay, W), strict=True):
        close(per_head, per_group, 0.0)


# -- invariants ----------------------------------------------------------------------------------------------------


@with_backends(*BACKENDS, among=["delta_rule"])
def test_no_beta_no_write(case: Case, backend: str):
    (q, k, v, beta), w, (W,) = case.draw(7)
    o, final = case.run(([q, k, v, torch.zeros_like(beta)], w, [W]), backend)
    close(final, W, 0.0)
    close(o, q @ W.mT)


@with_backends(*BACKENDS, among=["delta_rule"])
def test_beta_of_one_and_a_unit_key_write_the_value(case: Case, backend: str):
    (_, k, v, beta), w, s = case.draw(7)
    o, final = case.run(([k, k, v, torch.ones_like(beta)], w, s), backend)
    close(o, v)
    close((final @ k[:, :, -1, :, None])[..., 0], v[:, :, -1])


@with_backends(*BACKENDS, among=["delta_rule", "linear_attention", "retention"])
def test_special_cases_of_dplr(case: Case, backend: ops.Backend):
    """The state is transposed; beta k k^T removes what is read, a decay is the same for all keys."""
    (q, k, v, *beta), decay, (W,) = case.draw(7)
    rates = beta[0][..., None] if beta else torch.ones_like(v[..., :1])
    w = decay[0].expand(len(q), -1)[:, :, None, None].expand(-1, -1, 7, 1) if decay else torch.ones_like(v[..., :1])
    correction = {"a": (-rates * k)[:, :, :, None], "b": k[:, :, :, None]} if beta else {}
    inputs = {"q": q, "k": k[:, :, :, None], "v": (rates * v)[:, :, :, None], "w": w, "S": W.mT, **correction}
    device = "cuda" if backend == "gpu" and torch.cuda.is_available() else "cpu"
    got = ops.dplr(**{name: x.to(device) for name, x in inputs.items()}, backend=backend)
    o, final = case.run(([q, k, v, *beta], decay, [W]))
    close(got[0].cpu(), o)
    close(got[1].mT.cpu(), final)


@with_backends(*BACKENDS, among=["srwm"])
@pytest.mark.parametrize("index", range(4))
def test_srwm_moves_its_rows_by_affine_combinations(case: Case, backend: str, index: int):
    """W_t = A_t W_0 with A_t 1 = 1, for each of the four matrices.

    W_y feeds nothing back. So the identity in its place, written with W_i's own beta, becomes A_t.
    """
    (x,), W, _ = case.draw(6, H=1)
    _, *final = case.run(([x], W, []), backend)
    w_b = W[3].clone()
    w_b[..., 0] = W[3][..., index]
    identity = torch.eye(x.shape[-1], dtype=x.dtype).expand_as(W[0])
    _, A, *_ = case.run(([x], [identity, W[1], W[2], w_b], []), backend)
    close(A @ W[index], final[index])
    close(A.sum(-1), torch.ones_like(A[..., 0]))
    assert (A - identity).abs().max() > 0.1


@with_backends(*BACKENDS, among=["srwm"])
def test_srwm_keeps_columns_that_are_equal_in_every_row(case: Case, backend: str):
    (x,), W, _ = case.draw(6, H=1)
    for M in W:
        M[..., 1] = M[:, :, :1, 1]
    _, *final = case.run(([x], W, []), backend)
    for before, after in zip(W, final, strict=True):
        close(after[..., 1], before[..., 1].expand_as(after[..., 1]))
        assert (after[..., 0] - before[..., 0]).abs().max() > 1e-3
