"""Probes, on networks with a known flaw: each kind of probe must find the flaw that it is made for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from assay.lab.evaluate import evaluate, first_failing_length, probed_verdict, random_verdict
from assay.lab.probing import probe, probes_of
from assay.record import ProbeScore, Probing
from assay.spec import RunSpec, run_spec
from assay.tasks import TASKS, example_task, named_task
from assay.tasks.probes import VERSION, short_lassos
from assay.tasks.recall import bound_at
from assay.tasks.task import DEAD, IGNORE, Task, columns, unpadded

CPU = torch.device("cpu")


class Answering(nn.Module):
    """A network that answers by a function of its inputs, in place of the task's oracle."""

    def __init__(self, task: Task, answer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.task, self.answer = task, answer

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.one_hot(self.answer(inputs).clamp(min=0), self.task.shape.answers).float()


def spec_of(name: str) -> RunSpec:
    return run_spec(example_task(name), "lstm", testing={"rows": 32})


def found_by(spec: RunSpec, answer: Callable[[Tensor], Tensor]) -> Probing:
    return probe(Answering(spec.task, answer), spec, CPU)


def wrong(probing: Probing) -> set[str]:
    return {score.name for score in probing.scores if score.wrong}


@pytest.mark.parametrize("name", TASKS.entries)
def test_every_task_has_probes_of_its_own_domain_and_its_oracle_passes_them(name: str):
    spec = spec_of(name)
    batches = probes_of(spec, CPU)
    assert batches
    for batch in batches.values():
        lengths = unpadded(batch.inputs).sum(1)
        assert len(batch.inputs.flatten(1).unique(dim=0)) > 0
        assert (batch.targets != IGNORE).any(1).all(), "every row asks something"
        assert int(lengths.max()) <= max(bin_.high for bin_ in spec.testing.bins)
        if DEAD in spec.task.answers:
            assert (batch.targets != spec.task.answers.index(DEAD)).all()
        if spec.task.answer_positions == "at the end":
            assert all(spec.task.fits(length) for length in lengths.unique().tolist())
    probing = found_by(spec, spec.task.solve)
    assert (wrong(probing), probing.shortest_wrong, probing.probes) == (set(), None, VERSION)
    assert [score.rows for score in probing.scores] == [len(batch.inputs) for batch in batches.values()]


def keeps(task: Task, tokens: int) -> Callable[[Tensor], Tensor]:
    """Forgets everything when it has read the same token so many times in a row."""

    def answer(inputs: Tensor) -> Tensor:
        answers = []
        for row in inputs.tolist():
            start, said = 0, []
            for i, token in enumerate(row):
                if i - start > tokens and len(set(row[i - tokens : i])) == 1 and row[i - 1] == token:
                    start = i
                said.append(int(task.machine.answer(torch.tensor([row[start : i + 1]]))[0, -1]))  # type: ignore[attr-defined]
            answers.append(said)
        return torch.tensor(answers)

    return answer


def test_a_memory_that_leaks_is_refuted_by_the_shortest_word():
    """No random test sequence sees it: 40 equal bits in a row are too rare."""
    task = example_task("parity")
    bins = [{"name": "Bin0", "low": 2, "high": 40}, {"name": "Bin1", "low": 41, "high": 60}]
    spec = run_spec(task, "lstm", testing={"rows": 32, "bins": bins})
    model = Answering(task, keeps(task, 40))
    scores, collapsed = evaluate(model, spec, CPU)
    assert random_verdict(scores, collapsed) == "solved"
    probing = probe(model, spec, CPU)
    assert probed_verdict("solved", probing) == "refuted"
    assert probing.shortest_wrong is not None
    assert (probing.shortest_wrong.word, probing.shortest_wrong.length) == ("1 0^41", 42)
    assert first_failing_length(scores, probing) == 42
    assert "lassos" in wrong(probing)


def test_an_unprobed_or_clean_run_keeps_its_verdict():
    clean = Probing(probes=VERSION, seconds=0.0, scores=(ProbeScore(name="lassos", rows=3, wrong=0),))
    assert [probed_verdict("solved", probing) for probing in (None, clean)] == ["solved", "solved"]
    failed = clean.model_copy(update={"scores": (ProbeScore(name="lassos", rows=3, wrong=1, length=2, word="a b"),)})
    assert probed_verdict("partly solved", failed) == "partly solved"


def depth_of(inputs: Tensor, highest: int) -> Tensor:
    """A counter that saturates."""
    depth, depths = torch.zeros(len(inputs), dtype=torch.int64), []
    for token in inputs.T:
        depth = (depth + (token == 1).long() - (token == 2).long()).clamp(0, highest)
        depths.append(depth)
    return torch.stack(depths, dim=1)


def test_a_counter_that_saturates():
    found = found_by(spec_of("dyck-1"), lambda inputs: (depth_of(inputs, 30) > 0).long())
    assert wrong(found) == {"deepest", "kept open", "deep late"}
    assert found.shortest_wrong is not None
    assert found.shortest_wrong.word == "(^33 )^30"


def test_brackets_of_which_only_the_number_is_read():
    """Right on words; wrong where a bracket has the wrong type."""

    def answer(inputs: Tensor) -> Tensor:
        steps = torch.where(inputs > 0, torch.where(inputs % 2 == 1, 1, -1), 0).cumsum(1)
        return ((steps == 0) & (steps.cummin(1).values >= 0) & (steps.cummax(1).values <= 2)).long()

    assert wrong(found_by(spec_of("bounded-dyck"), answer)) == {"one mistake", "count-balanced"}


@pytest.mark.parametrize(
    ("name", "late", "kinds"),
    [
        ("index-lookup", False, {"extreme positions", "one different symbol"}),
        ("recall", False, {"extreme positions", "one different value"}),
        ("equality-random", True, {"one different symbol"}),
        ("disjointness", True, {"one meeting"}),
        ("phone-book", False, {"extreme positions", "names that share a part", "close numbers"}),
        ("equality-ncp", False, {"copies"}),
        ("multi-query-recall", False, {"early queries", "late queries", "repeated keys"}),
    ],
)
def test_a_memory_of_the_latest_tokens(name: str, late: bool, kinds: set[str]):
    """The first token is read as another one: what was asked about it is wrong."""
    spec = spec_of(name)

    def answer(inputs: Tensor) -> Tensor:
        first = inputs[:, :1] % 2 + 1  # the other of the first two symbols
        return spec.task.solve(torch.cat([first, inputs[:, 1:]], dim=1))

    assert wrong(found_by(spec, answer)) >= kinds


def test_a_majority_instead_of_a_lookup():
    spec = spec_of("index-lookup")

    def answer(inputs: Tensor) -> Tensor:
        return (torch.mode(inputs.where(inputs > 0, -1), dim=1).values - 1).clamp(min=0)[:, None].expand_as(inputs)

    assert "one different symbol" in wrong(found_by(spec, answer))


def test_a_nearest_neighbour_among_the_latest_points():
    spec = spec_of("nearest-neighbour")

    def answer(inputs: Tensor) -> Tensor:
        without_first = inputs.clone()
        without_first[:, 0] = -inputs[:, 0]
        return spec.task.solve(without_first)

    found = found_by(spec, answer)
    assert wrong(found) == {"nearest first"}
    assert found.shortest_wrong is not None
    assert found.shortest_wrong.word == "", "real vectors have no word"


def test_a_count_of_letters_that_was_learned_by_heart():
    spec = spec_of("an-bn")

    def answer(inputs: Tensor) -> Tensor:
        right = spec.task.solve(inputs)
        return torch.where((inputs == 1).sum(1, keepdim=True) > 200, 0, right)

    found = found_by(spec, answer)
    assert wrong(found) == {"every n"}
    assert found.shortest_wrong is not None
    assert found.shortest_wrong.word.endswith(" b")


def test_a_bit_that_is_written_once_and_never_overwritten():
    """All other probes of flip-flop ask for the bit that was written first."""
    spec = spec_of("flip-flop-language")
    results = found_by(spec, lambda inputs: (inputs[:, 1:2] - 4).expand_as(inputs))
    assert wrong(results) == {"overwritten"}


def test_a_write_that_is_lost_among_bits_to_ignore():
    """The bit that was read most often, of all instructions but reads."""
    spec = spec_of("flip-flop-language")

    def answer(inputs: Tensor) -> Tensor:
        bits, kept = inputs[:, 1::2], inputs[:, ::2] != 2
        more = ((bits == 5) & kept).cumsum(1) > ((bits == 4) & kept).cumsum(1)
        return more.long().repeat_interleave(2, dim=1)

    assert {"one late question", "overwritten"} <= wrong(found_by(spec, answer))


def test_hops_of_which_only_one_may_be_far():
    spec = spec_of("k-hop")

    def answer(inputs: Tensor) -> Tensor:
        hop = bound_at(inputs, inputs > 0, latest=True) + 1
        place = columns(inputs).expand_as(inputs)
        first, second = hop, hop.gather(1, hop)
        both_far = (place - first > 60) & (first - second > 60)
        is_right = (first > 0) & (second > 0) & ~both_far
        return torch.where(is_right, inputs.gather(1, second) - 1, 4)

    assert wrong(found_by(spec, answer)) == {"far hops"}


def test_an_order_of_few_symbols():
    """Sorts strings of at most two symbols."""
    spec = spec_of("bucket-sort")

    def answer(inputs: Tensor) -> Tensor:
        right, few = spec.task.solve(inputs), (inputs.where(inputs < 6, 0).amax(1, keepdim=True) < 3)
        return right.where(few, 0)

    assert wrong(found_by(spec, answer))


def test_keys_of_which_only_the_end_is_read():
    """A key of three tokens, known by its last two; and one known by its first token."""
    spec = spec_of("fuzzy-recall")
    for places in (1, 2):

        def answer(inputs: Tensor, places: int = places) -> Tensor:
            kept = inputs.clone()
            runs = (inputs[:, :-2] <= 16) & (inputs[:, 1:-1] <= 16) & (inputs[:, 2:] <= 16) & (inputs[:, 2:] > 0)
            target = kept[:, :-2] if places == 1 else kept[:, 2:]
            target[runs] = 1
            return spec.task.solve(kept)

        assert wrong(found_by(spec, answer)) == {"similar keys", "far away"}


def test_dots_stand_only_in_front_as_in_training():
    for length in (11, 40, 64):
        for probe_ in example_task("fuzzy-recall").probes((11, length), length):
            dots = probe_.inputs == 33
            assert (dots.cummin(1).values == dots).all()
            assert (dots.sum(1) < 6).all(), "no more than a pair needs"


def test_products_are_not_all_zero():
    task = named_task("modular-arithmetic-brackets", multiply=True)
    for probe_ in task.probes((1, 40), 100):
        products = probe_.inputs[((probe_.inputs == 8).any(1)) & ~((probe_.inputs == 6) | (probe_.inputs == 7)).any(1)]
        assert len(task.solve(products)[(products > 0).sum(1) > 20].amax(1).unique()) >= 3


def test_at_most_two_thousand_lassos():
    assert len(short_lassos(2)) == 16
    assert len(short_lassos(120)) == 2000
    assert len(short_lassos(30)) == 2000
    assert {lasso.word(4) for lasso in short_lassos(30)} >= {(a, b, b, b) for a in range(1, 31) for b in range(1, 31)}


@pytest.mark.parametrize(
    ("name", "length"),
    [
        *(("dyck-1", 2), ("shuffle", 2), ("reset-dyck-1", 1), ("parity", 1), ("k-hop", 1), ("k-hop", 2)),
        *(("majority", 1), ("tomita", 1), ("flip-flop-language", 4), ("modular-arithmetic-brackets", 1)),
        *(("missing-duplicate", 2), ("reverse", 2), ("stack-manipulation", 3), ("binary-addition", 7)),
        *(("unique-copy", 3), ("fuzzy-recall", 11), ("noisy-recall", 3)),
    ],
)
def test_probes_of_the_shortest_inputs(name: str, length: int):
    bins = [{"name": "Bin0", "low": length, "high": length}]
    training = {"lengths": [length, length], "validation": bins}
    spec = run_spec(name, "lstm", training=training, testing={"rows": 4, "bins": bins})
    assert wrong(found_by(spec, spec.task.solve)) == set()
    assert all(batch.inputs.shape[1] == length for batch in probes_of(spec, CPU).values())
