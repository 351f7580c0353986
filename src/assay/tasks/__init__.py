"""The registry of tasks. A task is a class in a file of this package and one line here."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.registry import Entry, Registry

if TYPE_CHECKING:
    from assay.tasks.task import Task

IRIE, SEPARATIONS, FIELD = "Irie 2023", "Bhattamishra 2024", "state tracking"

TASKS = Registry(
    "task",
    "assay.tasks",
    {
        "parity": Entry("regular:Parity", "is the number of 1s even?", IRIE),
        "even-a": Entry("regular:EvenAs", "(aa)*: is the prefix in the language?", IRIE),
        "abab": Entry("regular:Abab", "(abab)*: is the prefix in the language?", IRIE),
        "an-bn": Entry("counter:AnBn", "a^n b^n: which symbols may follow?", IRIE),
        "an-bn-cn": Entry("counter:AnBnCn", "a^n b^n c^n: which symbols may follow?", IRIE),
        "an-bn-cn-dn": Entry("counter:AnBnCnDn", "a^n b^n c^n d^n: which symbols may follow?", IRIE),
        "shuffle": Entry("dyck:Shuffle", "interleaved Dyck-1 words: which bracket types are open?", IRIE),
        "dyck-1": Entry("dyck:Dyck1", "is a bracket open?", IRIE),
        "reset-dyck-1": Entry("dyck:ResetDyck1", "is a bracket open since the last reset?", IRIE),
        "bounded-dyck": Entry("dyck:BoundedDyck", "Dyck-(k,D): well nested, at most D deep?", SEPARATIONS),
        "index-lookup": Entry("index_lookup:IndexLookup", "which symbol stands at this index?", SEPARATIONS),
        "equality-random": Entry("equality:EqualityRandom", "x # y: equal, or another string?", SEPARATIONS),
        "equality-one": Entry("equality:EqualityOne", "x # y: equal, or one symbol changed?", SEPARATIONS),
        "equality-ncp": Entry("equality:EqualityNcp", "x # x: predict the next symbol (copying)", SEPARATIONS),
        "disjointness": Entry("equality:Disjointness", "x # y: do two sets meet?", SEPARATIONS),
        "nearest-neighbour": Entry("neighbour:NearestNeighbour", "which label has the nearest point?", SEPARATIONS),
        "recall": Entry("recall:Recall", "the value bound to one key", SEPARATIONS),
        "multi-query-recall": Entry("recall:MultiQueryRecall", "MQAR: the value bound to every key", SEPARATIONS),
        "phone-book": Entry("phone_book:PhoneBook", "a number in a book of names, digit by digit", SEPARATIONS),
        "cyclic": Entry("groups:Cyclic", "Z_n: the sum modulo n", FIELD),
        "s3": Entry("groups:S3", "S_3: the product of permutations", FIELD),
        "s5": Entry("groups:S5", "S_5: the product of permutations", FIELD),
        "a5": Entry("groups:A5", "A_5: the product of even permutations", FIELD),
        "group": Entry("groups:Group", "any group, from its multiplication table", FIELD),
        "modular-arithmetic": Entry("regular:ModularArithmetic", "the value of an expression modulo n", FIELD),
        "flip-flop": Entry("regular:FlipFlop", "one bit: set, reset, keep", FIELD),
        "dfa": Entry("automaton:Dfa", "any finite automaton, from its table", FIELD),
        "regex": Entry("automaton:Regex", "any regular expression", FIELD),
    },
)


def task_class(name: str) -> type[Task]:
    """The class of a task by its name, or of a user's task as `module:Class`."""
    from assay.tasks.task import Task

    loaded: type[Task] = TASKS.load_class(name, Task)
    return loaded


def named_task(name: str, /, **options: Any) -> Task:
    """A task by name (or `module:Class`), with its options as JSON holds them."""
    return _shared(task_class(name)(**options))


def example_task(name: str) -> Task:
    """A task by name, with default options and with example values for required ones."""
    loaded = task_class(name)
    return loaded(**loaded.example)


def read_task(data: Any) -> Any:
    """A task from its plain data; other values are returned unchanged."""
    return _shared(task_class(str(data.get("kind")))(**data)) if isinstance(data, dict) else data


@lru_cache(maxsize=256)
def _shared(task: Task) -> Task:
    """The first of several equal tasks, so that the runs of a study share the tables which a task computes."""
    return task
