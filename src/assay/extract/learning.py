"""The automaton that a network computes, by active learning: L* with a Wp-method oracle, from `aalpy`.

The network is asked for its answers to words and is not looked into, so this works for every model. The result is
conditional: the Wp-method finds every difference from a network with at most m states, and nothing is said beyond.
"""

from __future__ import annotations

import time
from itertools import product

import torch
from aalpy.learning_algs import run_Lstar
from jaxtyping import Int
from torch import Tensor

from assay.errors import BadInput
from assay.extract.learned import Difference, Learned
from assay.extract.machines import Word, named
from assay.extract.network import AnswersOf, Limit, Network, OnProgress, shorten_wrong_word
from assay.extract.questions import Questions, check_symbols
from assay.extract.wp_method import WpOracle, moore
from assay.rng import Rng
from assay.tasks.minimal import minimal
from assay.tasks.probes import rows_of
from assay.tasks.task import Task
from assay.tasks.words import readable

SHORT = 4_096  # all strings of a length are asked first: at most as many as this
LONGEST = 100  # but no longer than this; it matters for a single symbol
DRAWN = 256  # words that the task draws, which are tested beside the Wp-method, as are the task's probes
LONGER = 4  # when the machine is learned, the network is compared with the task on words this many times as long


def learn_automaton(
    answers_of: AnswersOf,
    task: Task,
    *,
    extra_states: int | None = None,
    trained: tuple[int, int] | None = None,
    longest: int | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    max_states: int = 64,
    on_progress: OnProgress = lambda words, states: None,
) -> Learned:
    """Learn the automaton that a network computes on the questions of a task.

    `answers_of` gives the network's answer to every prefix of every row of tokens. `extra_states`: m is the number of
    learned states plus this; by default as many as 20,000 tests allow. `trained` is the shortest and the longest length
    of training, by default the task's own; in the end, words up to `longest` are compared with the task, by default
    four times as long. `seed` is of the words that the task draws.
    """
    check_symbols(task)
    trained = task.train_lengths if trained is None else trained
    longest = max(trained[1], LONGER * trained[1] if longest is None else longest)
    begin, questions = time.monotonic(), Questions(task)
    network = Network(answers_of, questions, begin + seconds, on_progress)
    oracle = WpOracle(network, extra_states, max_states, further_words(task, trained, seed))
    limit, every_to = "", 1
    while len(task.symbols) ** (every_to + 1) <= SHORT and every_to < LONGEST:
        every_to += 1
    try:
        network.ask(product(oracle.alphabet, repeat=every_to))
        run_Lstar(oracle.alphabet, network, oracle, "mealy", cache_and_non_det_check=False, print_level=0)
    except Limit as error:
        limit = str(error)
    try:
        network.deadline = max(network.deadline, time.monotonic() + seconds / 4)
        network.answers(further_words(task, (trained[0], longest), seed))
        shorten_wrong_word(network)
    except Limit:
        pass  # a wrong word is wrong, if not the shortest
    target = questions.machine
    start_answer = None if target is None else int(target.outputs[target.start])
    hypothesis = oracle.hypothesis
    if hypothesis is None:
        raise BadInput(f"{seconds:g} seconds are too few to learn an automaton of {task.kind}; give more")
    return Learned(
        task=task,
        machine=minimal(moore(hypothesis), start_answer),
        target=target,
        domain=questions.domain,
        states=len(hypothesis.states),
        bound=oracle.bound,
        every_to=every_to,
        queries=network.queries,
        seconds=time.monotonic() - begin,
        limit=limit,
        difference=_verified(network.wrong_word, answers_of, questions),
        unexplained=oracle.unexplained,
    )


def _verified(word: Word | None, answers_of: AnswersOf, questions: Questions) -> Difference | None:
    """The wrong word, asked again on its own: its answer must not depend on the batch around it."""
    if word is None:
        return None
    inputs, task = rows_of([word]), questions.task
    answer, target = int(answers_of(inputs)[0, -1]), int(questions.targets(inputs)[0, -1])
    if answer == target:
        raise BadInput(
            f"the network's answer to {readable(word, task.symbols)} depends on the other words of the batch; "
            "an automaton answers each word on its own"
        )
    return Difference(word, named(answer, task), named(target, task))


def further_words(task: Task, lengths: tuple[int, int], seed: int) -> Int[Tensor, "rows time"]:
    """Words of these lengths that the task draws, and its probes, such as lassos and long runs of one symbol."""
    rng, possible = Rng.seeded(seed, "extract").rows(DRAWN), torch.tensor(task.lengths(*lengths))
    drawn = task.inputs(possible[rng.child("lengths").integers(1, len(possible))[:, 0]], rng.child("inputs"))
    parts = [drawn, *(probe.inputs for probe in task.probes(lengths, lengths[1]))]
    width = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])
