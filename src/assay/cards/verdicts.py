"""A card in sentences with numbers."""

from __future__ import annotations

from assay.cards.results import Card, Entry
from assay.report.text import percent

SHORTEST = 60  # letters of a word that a sentence can hold


def headline(card: Card) -> str:
    """How many tasks the subject solves, and how many each reference does."""
    name, tasks = card.subject.title, len(card.scale.questions)
    solved = card.solved_by(card.subject.name)
    first = (
        f"{name} solves {len(solved)} of {tasks} tasks, probes included, in at least one of {card.scale.seeds} seeds"
    )
    short = sum(entry.is_shortened for entry in card.own if entry.cell.solved)
    notes = [f"{short} of these tested on shorter inputs than the references"] if short else []
    notes += [f"{len(card.without_result)} without a result"] if card.without_result else []
    first += f" ({', '.join(notes)})" if notes else ""
    others = [other for other in card.architectures if other != card.subject.name]
    counts = [f"{card.title(other)} {_count(card, other)}" for other in others]
    return f"{first}. Of the references: {', '.join(counts)}." if counts else f"{first}."


def _count(card: Card, name: str) -> str:
    """The tasks that a reference solves, of how many if some have no records."""
    solved, tasks = len(card.solved_by(name)), len(card.tasks_of(name))
    return str(solved) if tasks == len(card.scale.questions) else f"{solved} of {tasks}"


def sentences(card: Card) -> list[str]:
    """One verdict for each task, and one for each task without a result."""
    written = [sentence(card, entry) for entry in card.own]
    for task, reason in card.without_result.items():
        outcome = "is left out" if task in card.examination.left_out else "has no result"
        written.append(f"{card.titles[task]} {outcome}: {reason}.")
    return written


def sentence(card: Card, entry: Entry) -> str:
    """The verdict on one task, with the references that do better."""
    title, name = card.titles[entry.question.task], card.subject.title
    return f"{_verdict(name, title, card, entry)}{_beside(card, entry)}."


def _verdict(name: str, title: str, card: Card, entry: Entry) -> str:
    seeds, longest = entry.seeds, entry.longest(entry.bins[-1])
    solved, right = len(entry.cell.solved), len(entry.cell.right_on_random)
    if solved == seeds:
        return f"{name} solves {title}: all {seeds} seeds are right on every random input of up to {longest:,} " + (
            f"tokens and on every probe{_proved(entry)}"
        )
    if right:
        text = f"{name} is right on every random input of {title} up to {longest:,} tokens in {right} of {seeds} seeds"
        if solved == right:
            return f"{text}, and on every probe{_proved(entry)}"
        return f"{text}, but probes refute {right - solved} of these{_wrong_word(entry)}"
    reached = [bin_ for bin_ in entry.bins if entry.right(bin_)]
    if reached:
        last = reached[-1]
        first = min((r.first_failing_length for r in entry.cell.perfect(last) if r.first_failing_length), default=None)
        kind = "probe" if first and first <= entry.longest(last) else "input"
        beyond = f"; the shortest {kind} that these get wrong has {first:,} tokens" if first else ""
        far = f"up to {entry.longest(last):,} tokens ({last}) and no further"
        return (
            f"{name} is right on every random input of {title} {far}, in {entry.right(last)} of {seeds} seeds{beyond}"
        )
    if all(record.verdict == "diverged" for record in entry.cell.records):
        return f"{name} diverges on {title} in {seeds} of {seeds} seeds"
    return (
        f"{name} does not learn {title} in {card.scale.steps:,} steps: {percent(entry.cell.accuracy(entry.bins[0]))} % "
        "of the sequences of training length are right, and in no seed all of them"
    )


def _wrong_word(entry: Entry) -> str:
    """The shortest wrong input that is known, or its length if it does not fit into a sentence."""
    word, length = entry.cell.wrong_word, entry.cell.first_failing_length
    if word and len(word) <= SHORTEST:
        return f"; the shortest wrong input is {word}"
    return f"; the shortest wrong input has {length:,} tokens" if length else ""


def _proved(entry: Entry) -> str:
    proofs = [record.rung for record in entry.cell.solved if record.rung.startswith(("proved", "exhaustive"))]
    return f" ({len(proofs)} {proofs[0]})" if proofs else ""


def _beside(card: Card, entry: Entry) -> str:
    """The references that solve the task in more seeds."""
    better = []
    for other in card.architectures:
        rival = card.entry(other, entry.question.task)
        if other != card.subject.name and rival and len(rival.cell.solved) > len(entry.cell.solved):
            better.append(f"{card.title(other)} {len(rival.cell.solved)} of {rival.seeds}")
    return f" (solved by {', '.join(better)})" if better else ""
