"""Descriptions of models: what is refused and in which words, plain data and back, and modules from elsewhere."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.errors import BadInput
from assay.models import MIXERS, MODELS, named_model, read_model
from assay.models.skeleton import Foreign, Stack
from assay.models.zoo import ByConvention
from assay.rng import Rng

from .cases import CASES, NAMED, Case, tokens

TAKES = {name: set(inspect.signature(MODELS.load(name)).parameters) for name in MODELS.entries}


def refusal(name: str, **options: Any) -> str:
    """The one line that a mistake is answered with."""
    with pytest.raises(BadInput) as caught:
        named_model(name, **options)
    said = str(caught.value)
    assert said
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("lstmm", "lstm"),
        ("transfomer", "transformer"),
        ("Delta-Net", "delta-net"),
        ("perceptron", ", ".join(sorted(MODELS.entries))),
    ],
)
def test_unknown_model(wrong: str, right: str):
    said = refusal(wrong)
    assert f"unknown model '{wrong}'" in said
    assert right in said


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("transformer", "layer", "'layers'"),
        ("transformer", "head", "'heads'"),
        ("lstm", "heads", "width"),
        ("lstm", "widht", "'width'"),
        ("delta-product", "step", "'steps'"),
        ("mamba", "convention", "states"),
        ("hybrid", "mixer", "'mixers'"),
    ],
)
def test_unknown_option(name: str, wrong: str, right: str):
    said = refusal(name, **{wrong: 1})
    assert f"{name} has no option '{wrong}'" in said
    assert right in said


SIZES = [
    (name, option, value)
    for name in MODELS.entries
    for option in ("width", "heads", "layers", "states", "steps", "longest")
    if option in TAKES[name]
    for value in (0, -1, 2.5, "2")
]


@pytest.mark.parametrize(("name", "option", "value"), SIZES)
def test_sizes_are_whole_and_at_least_one(name: str, option: str, value: Any):
    assert f"{option} = {value!r}" in refusal(name, **{option: value})


@pytest.mark.parametrize("name", [name for name in MODELS.entries if "ff" in TAKES[name]])
@pytest.mark.parametrize("value", [-1, 0.5, "4", True])
def test_feed_forward_size(name: str, value: Any):
    assert f"ff = {value!r}" in refusal(name, ff=value)


NAMES = {
    "norm": ["pre", "post", "none", "carry"],
    "features": ["elu", "elu-sum", "softmax", "unit", "identity"],
    "reading": ["before", "after"],
    "activation": ["tanh", "relu"],
    "convention": ["paper", "controlled"],
    "beta": ["1", "2"],
    "weighting": ["softmax", "hard", "average-hard", "sigmoid", "linear"],
}
WRONG = [
    (name, option, value)
    for name in MODELS.entries
    for option in ("norm", "features", "reading", "activation", "convention", "beta", "positions", "weighting")
    if option in TAKES[name]
    for value in ("zzz", "", 3)
]


@pytest.mark.parametrize(("name", "option", "value"), WRONG)
def test_values_with_names(name: str, option: str, value: Any):
    """What is wrong, and every value that would be right."""
    said = refusal(name, **{option: value})
    assert option in said
    assert str(value) in said
    others = ["rotary", "alibi"] if name == "transformer" else []
    for right in NAMES.get(option, ["none", "sinusoidal", "learned", *others]):
        assert right in said


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("srwm", "fixed", "z"),
        ("srwm", "fixed", "qy"),
        ("srwm", "q_scale", 0.0),
        ("srwm", "b_mean", "low"),
        ("recurrent-delta", "additive", 1),
        ("linear-transformer", "gated", "yes"),
    ],
)
def test_options_of_ablations(name: str, option: str, value: Any):
    assert f"{option} = {value!r}" in refusal(name, **{option: value})


@pytest.mark.parametrize("name", [name for name in MODELS.entries if "heads" in TAKES[name]])
def test_heads_divide_the_width(name: str):
    said = refusal(name, width=18, heads=4)
    assert "18" in said
    assert "4 heads" in said
    assert "16 or 20" in said
    for width in (16, 20) if name != "retnet" else (16,):
        named_model(name, width=width, heads=4)
    too_many = refusal(name, width=3, heads=4)
    assert "4 would be" in too_many
    assert "0 or" not in too_many


@pytest.mark.parametrize(("name", "options"), [("transformer", {"positions": "rotary"}), ("retnet", {})])
def test_rotary_positions_turn_pairs(name: str, options: dict[str, Any]):
    said = refusal(name, width=20, heads=4, **options)
    assert "even head size" in said
    assert "20 / 4 = 5" in said
    named_model("transformer", width=20, heads=4)


@pytest.mark.parametrize(
    ("mixers", "said"),
    [
        ((), "at least 1"),
        (("attentoin",), "unknown mixer 'attentoin'; did you mean 'attention'?"),
        (("lstm", {"kind": "attention", "haeds": 2}), "attention has no field 'haeds'; did you mean 'heads'?"),
        (({"kind": "attention", "heads": 0},), "heads = 0"),
        (({"heads": 2},), "unknown mixer"),
        ((3,), "3"),
        ("attention", "mixers = 'attention'"),
    ],
)
def test_mixers_of_a_hybrid(mixers: Any, said: str):
    assert said in refusal("hybrid", mixers=mixers)


def test_mixers_by_name_by_data_and_as_they_are():
    model = named_model("hybrid", mixers=["attention", {"kind": "srwm", "heads": 2}, MIXERS.load("lstm")()], width=8)
    assert isinstance(model, Stack)
    assert [mixer.kind for mixer in model.mixers] == ["attention", "srwm", "lstm"]
    assert [getattr(mixer, "heads", None) for mixer in model.mixers] == [4, 2, None]


def test_a_description_does_not_change():
    model: Any = named_model("lstm")
    with pytest.raises(ValueError, match="frozen"):
        model.width = 3


@pytest.mark.parametrize("kind", MIXERS.entries)
def test_a_mixer_is_registered_under_its_kind(kind: str):
    assert MIXERS.load(kind).kind == kind


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_a_model_carries_its_name(case: Case):
    assert case.described().name == case.name


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plain_data_and_back(case: Case):
    described = case.described()
    plain = json.loads(json.dumps(described.plain()))
    again = read_model(plain)
    assert isinstance(again, Stack)
    assert again == described
    assert again.plain() == described.plain() == plain
    assert hash(again) == hash(described)


def test_plain_data_tells_models_apart():
    described = [case.described().plain() for case in CASES]
    same = [(a, b) for a in range(len(described)) for b in range(a) if described[a] == described[b]]
    # Conventions that change nothing but the features or the convolution, and one that changes nothing.
    expected = {("linear-transformer", "convention"), ("path", "convention"), ("recurrent-delta", "convention")}
    assert {(CASES[a].name, *CASES[a].options) for a, _ in same} == expected


BY_CONVENTION = [
    (name, option, parameter.default)
    for name in MODELS.entries
    for option, parameter in inspect.signature(MODELS.load(name)).parameters.items()
    if isinstance(parameter.default, ByConvention)
]


@pytest.mark.parametrize(("name", "option", "default"), BY_CONVENTION)
def test_defaults_of_a_convention(name: str, option: str, default: ByConvention):
    """The stated value is what the model has without it, and a chosen value does not depend on the convention."""
    for convention, value, other in (
        ("paper", default.paper, default.controlled),
        ("controlled", default.controlled, default.paper),
    ):
        model = named_model(name, convention=convention)
        assert named_model(name, **{option: value}, convention=convention) == model
        assert named_model(name, **{option: None}, convention=convention) == model
        assert named_model(name, **{option: other}, convention=convention) != model


# -- modules from elsewhere ----------------------------------------------------------------------------------------


class Tiny(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int, width: int = 4, sizes: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.embed, self.read_out = nn.Embedding(vocab, width), nn.Linear(width, answers)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.read_out(self.embed(x))
        return logits


def tiny(vocab: int, features: int, answers: int, width: int = 4) -> nn.Module:
    return Tiny(vocab, features, answers, width)


@pytest.mark.parametrize("factory", [Tiny, tiny])
def test_a_foreign_module_is_built_from_its_seed(factory: Any):
    described = Foreign.of(factory, width=5)
    before = torch.get_rng_state()
    first, again, other = (described.build(3, 0, 2, Rng.seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert first(tokens(2, 7)).shape == (2, 7, 2)
    assert dict(first.named_parameters())["embed.weight"].shape == (3, 5)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_a_foreign_seed_does_not_hang_on_what_was_drawn_before():
    first = Foreign.of(Tiny).build(3, 0, 2, Rng.seeded(1))
    torch.rand(5)
    again = Foreign.of(Tiny).build(3, 0, 2, Rng.seeded(1))
    assert all(map(torch.equal, first.parameters(), again.parameters()))


def test_a_foreign_module_by_its_path():
    assert named_model(f"{__name__}:tiny", width=5) == Foreign.of(tiny, width=5)
    assert named_model(f"{__name__}:tiny", width=5) != Foreign.of(tiny, width=6)


@pytest.mark.parametrize("options", [{}, {"width": 5}, {"sizes": (1, 2)}], ids=str)
def test_a_foreign_description_as_plain_data_and_back(options: dict[str, Any]):
    described = Foreign.of(Tiny, **options)
    again = read_model(json.loads(json.dumps(described.plain())))
    assert isinstance(again, Foreign)
    assert again == described


class Mine(Stack):
    name: str = "mine"


def test_an_architecture_of_ones_own():
    model = named_model(f"{__name__}:Mine", mixers=("lstm",), width=8)
    assert model == Mine(mixers=(MIXERS.load("lstm")(),), width=8)
    assert read_model(model.plain()) == model


def test_an_architecture_of_ones_own_may_be_given_a_name():
    assert named_model(f"{__name__}:Mine", name="another", mixers=("lstm",)).name == "another"


@pytest.mark.parametrize(
    ("path", "said"),
    [("no_such_module:Thing", "cannot import 'no_such_module'"), (f"{__name__}:Thing", "has no 'Thing'")],
)
def test_a_path_that_leads_nowhere(path: str, said: str):
    assert said in refusal(path)


def test_initial_matrices_of_the_mixers_can_be_scaled():
    plain, scaled = (named_model("delta-net", **options) for options in ({}, {"initial_scale": 0.5}))
    before, after = (dict(model.build(3, 0, 2, Rng.seeded(0)).named_parameters()) for model in (plain, scaled))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name, p in before.items() if ".mixer." in name and p.ndim > 1}
    assert all(torch.equal(before[name] * 0.5, after[name]) for name in changed)
    assert "initial_scale" not in plain.plain(), "old digests stay valid"
    with pytest.raises(BadInput, match="initial_scale"):
        named_model("delta-net", initial_scale=0.0)
