"""What a claim is made of: strings, leads, spaces, and units."""

from __future__ import annotations

import math

import pytest
import torch

from assay.errors import BadInput
from assay.models.attention import Attention
from assay.models.linear_attention import LinearAttention
from assay.models.skeleton import Stack
from assay.tasks.regular import Parity
from assay.tasks.task import IGNORE
from assay.theory.claim import compared, strings
from assay.theory.registry import CLAIMS, named_claim
from assay.theory.subspaces import Relus, Space, attend, blank


def test_every_string_once():
    rows = strings(3, 4)
    assert len(rows.unique(dim=0)) == 81
    assert set(rows.unique().tolist()) == {1, 2, 3}
    with pytest.raises(BadInput, match="too many"):
        strings(2, 21)


def test_a_tie_is_wrong_and_so_is_no_number():
    logits = torch.tensor([[[2.0, 1.0]], [[1.0, 1.0]], [[math.nan, 0.0]], [[0.0, 3.0]]])
    targets = torch.tensor([[0], [0], [0], [1]])
    seen = compared(logits, targets)
    assert (seen.inputs, seen.wrong, seen.margin) == (4, 2, -math.inf)


def test_an_input_is_wrong_if_one_position_is_and_what_is_not_asked_does_not_count():
    logits = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert compared(logits, torch.tensor([[0, 0], [0, 0]])).wrong == 1
    assert compared(logits, torch.tensor([[0, 0], [0, IGNORE]])).wrong == 0


@pytest.mark.parametrize("mixer", [Attention(heads=2), LinearAttention(heads=2, features="identity")])
def test_a_head_does_what_it_was_told(mixer: Attention | LinearAttention):
    stream = Space(x=3, y=2, z=1)
    model = blank(Stack(name="m", mixers=(mixer,), width=6, ff=0, norm="none"), Parity())
    query, key = 2 * stream.read("x"), stream.read("x")
    attend(model, 0, query, key, value=stream.read("y"), into=stream.write("y"), head=1)
    x = torch.randn(1, 5, 6)
    scores = (x @ query.T) @ (x @ key.T).mT
    future = torch.ones(5, 5).triu(1).bool()
    softmax = isinstance(mixer, Attention)
    weights = scores.masked_fill(future, -math.inf).softmax(-1) if softmax else scores.masked_fill(future, 0)
    wanted = x.clone()
    wanted[..., 3:5] += weights @ x[..., 3:5]
    torch.testing.assert_close(model.blocks[0](x)[0], wanted)


def test_units_ramps_and_clearing():
    stream = Space(x=2, y=2)
    model = blank(Stack(name="m", mixers=(Attention(heads=1),), width=4, ff=2, norm="none"), Parity())
    relus = Relus(model, 0)
    relus.between(stream.read("x"), 1.0, stream.write("y"), high=3.0)
    relus.clear(stream.read("x"), stream.write("x"))
    x = stream.vector(x=torch.tensor([[0.5, 1.5], [-2.0, 7.0]]))
    assert torch.equal(model.blocks[0](x[None])[0][0], stream.vector(y=torch.tensor([[0.0, 0.25], [0.0, 1.0]])))
    with pytest.raises(ValueError, match="larger ff"):
        relus.unit(stream.read("x"), 0.0, stream.write("x"))


def test_a_claim_has_a_sentence_a_source_and_lengths():
    for name in CLAIMS.entries:
        claim = named_claim(name)
        assert claim.statement.endswith("."), name
        assert claim.source, name
        assert claim.length <= claim.largest, name
        assert len(CLAIMS.entries[name].summary) <= 60, name


def test_bad_input_is_one_line():
    with pytest.raises(BadInput, match="did you mean 'lookup-trace'"):
        named_claim("lookup-tracy")
    with pytest.raises(BadInput, match="no length 0"):
        named_claim("lookup-trace").check(0)
    with pytest.raises(BadInput, match="not a claim"):
        named_claim("assay.tasks.regular:Parity")
