"""A card in sentences with numbers."""

from __future__ import annotations

from assay.cards.results import Card, Entry

SHORTEST = 60  # letters of a word that a sentence can hold


def headline(card: Card) -> str:
    """How many tasks the subject solves, and how many each reference does."""
    name, tasks = card.subject.title, len(card.own)
    solved = card.solved_by(card.subject.name)
    first = (
        f"{name} solves {len(solved)} of {tasks} tasks, probes included, in at least one of {card.scale.seeds} seeds"
    )
    others = [other for other in card.architectures if other != card.subject.name]
    counts = [f"{card.title(other)} {_count(card, other)}" for other in others]
    return f"{first}. Of the references: {', '.join(counts)}." if counts else f"{first}."


def _count(card: Card, name: str) -> str:
    """The tasks that a reference solves, of how many if some have no records."""
    solved, tasks = len(card.solved_by(name)), len(card.tasks_of(name))
    return str(solved) if tasks == len(card.scale.questions) else f"{solved} of {tasks}"


def sentences(card: Card) -> list[str]:
    """One verdict for each task, and one for each task that is left out."""
    written = [sentence(card, entry) for entry in card.own]
    left_out = card.examination.left_out
    return [*written, *(f"{card.titles[task]} is left out: {reason}." for task, reason in left_out.items())]


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
        word = f"; the shortest wrong input is {entry.word}" if entry.word and len(entry.word) <= SHORTEST else ""
        return f"{text}, but probes refute {right - solved} of these{word}"
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
    share = 100 * (entry.cell.accuracy(entry.bins[0]) or 0.0)
    steps = card.scale.steps
    return (
        f"{name} does not learn {title} in {steps:,} steps: {share:.0f} % of the sequences of training length are right"
    )


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
