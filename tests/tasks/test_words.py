"""Words that people can read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.tasks.words import lassos, readable, tokens_of


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.sampled_from(["abc", "()1", ("s1", "s2", "@3")]))
def test_a_readable_word_can_be_read_back(tokens: list[int], symbols: str):
    assert tokens_of(readable(tokens, symbols), symbols) == tokens


def test_every_short_lasso_occurs_once():
    for tokens, size in ((1, 2), (2, 2), (3, 1)):
        words = [lasso.word(60) for lasso in lassos(tokens, size, size)]
        assert len(set(words)) == len(words)
    assert (2, *[1] * 59) in [lasso.word(60) for lasso in lassos(2, 1, 1)]


def test_an_unknown_symbol_is_named():
    with pytest.raises(BadInput, match="'2' in the word '1 2' is not a symbol; choose from: 0, 1"):
        tokens_of("1 2", "01")
