"""The registry of tasks. A task is a class in a file of this package and one line here."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.registry import Entry, Registry

if TYPE_CHECKING:
    from assay.tasks.task import Task

IRIE, SEPARATIONS, FIELD = "Irie 2023", "Bhattamishra 2024", "state tracking"
CHOMSKY, LIU, BHATTAMISHRA = "Delétang 2023", "Liu 2023", "Bhattamishra 2020"
LENGTHS, GU, ARORA, MAD = "Zhou 2024", "Gu 2023", "Arora 2023", "Poli 2024"

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
        "bounded-dyck": Entry("bounded_dyck:BoundedDyck", "Dyck-(k,D): well nested, at most D deep?", SEPARATIONS),
        "index-lookup": Entry("index_lookup:IndexLookup", "which symbol stands at this index?", SEPARATIONS),
        "equality-random": Entry("equality:EqualityRandom", "x # y: equal, or another string?", SEPARATIONS),
        "equality-one": Entry("equality:EqualityOne", "x # y: equal, or one symbol changed?", SEPARATIONS),
        "equality-ncp": Entry("equality:EqualityNcp", "x # x: predict the next symbol (copying)", SEPARATIONS),
        "disjointness": Entry("equality:Disjointness", "x # y: do two sets meet?", SEPARATIONS),
        "copy": Entry("copying:Copy", "x # x over few symbols: predict the next symbol", LENGTHS),
        "unique-copy": Entry("copying:UniqueCopy", "x # x without a repeated symbol: predict the next one", LENGTHS),
        "missing-duplicate": Entry(
            "copying:MissingDuplicate", "which symbol is missing in a string and its copy?", CHOMSKY
        ),
        "reverse": Entry("transductions:Reverse", "the string backwards", CHOMSKY),
        "odds-first": Entry("transductions:OddsFirst", "every other symbol, then the others", CHOMSKY),
        "bucket-sort": Entry("transductions:BucketSort", "the symbols, sorted", CHOMSKY),
        "stack-manipulation": Entry("computations:StackManipulation", "a stack after pushes and pops", CHOMSKY),
        "binary-addition": Entry("computations:BinaryAddition", "the sum of two binary numbers", CHOMSKY),
        "selective-copying": Entry("transductions:SelectiveCopying", "the symbols without the dots between them", GU),
        "nearest-neighbour": Entry("neighbour:NearestNeighbour", "which label has the nearest point?", SEPARATIONS),
        "recall": Entry("recall:Recall", "the value bound to one key", SEPARATIONS),
        "multi-query-recall": Entry("recall:MultiQueryRecall", "MQAR: the value bound to every key", SEPARATIONS),
        "forgetting-recall": Entry(
            "recall_variants:ForgettingRecall", "MQAR: the last value bound to every key", ARORA
        ),
        "compositional-recall": Entry("recall_variants:CompositionalRecall", "MQAR with keys of two tokens", ARORA),
        "noisy-recall": Entry("recall_variants:NoisyRecall", "the value bound to one key, among noise", MAD),
        "fuzzy-recall": Entry("fuzzy_recall:FuzzyRecall", "recall with keys and values of several tokens", MAD),
        "k-hop": Entry("recall_variants:KHop", "k hops, each to the symbol after the last equal one", "Sanford 2024"),
        "phone-book": Entry("phone_book:PhoneBook", "a number in a book of names, digit by digit", SEPARATIONS),
        "cyclic": Entry("groups:Cyclic", "Z_n: the sum modulo n", FIELD),
        "s3": Entry("groups:S3", "S_3: the product of permutations", FIELD),
        "s5": Entry("groups:S5", "S_5: the product of permutations", FIELD),
        "a5": Entry("groups:A5", "A_5: the product of even permutations", FIELD),
        "s4": Entry("groups:S4", "S_4: the product of permutations", FIELD),
        "a4-z5": Entry("groups:A4Z5", "A_4 x Z_5: the product in a solvable group of 60 elements", FIELD),
        "dihedral": Entry("groups:Dihedral", "D_n: the product of rotations and reflections", FIELD),
        "group": Entry("groups:Group", "any group, from its multiplication table", FIELD),
        "modular-arithmetic": Entry("regular:ModularArithmetic", "the value of an expression modulo n", FIELD),
        "modular-arithmetic-brackets": Entry(
            "expressions:BracketArithmetic", "the value modulo n of an expression with brackets", CHOMSKY
        ),
        "flip-flop": Entry("regular:FlipFlop", "one bit: set, reset, keep", FIELD),
        "flip-flop-language": Entry(
            "state_tracking:FlipFlopLanguage", "flip-flop language modelling: the bit that was written last", LIU
        ),
        "even-pairs": Entry("state_tracking:EvenPairs", "are the first and the last symbol equal?", CHOMSKY),
        "cycle-navigation": Entry("state_tracking:CycleNavigation", "the position on a cycle after steps", CHOMSKY),
        "tomita": Entry(
            "state_tracking:Tomita", "the languages of Tomita: is the prefix in the language?", BHATTAMISHRA
        ),
        "majority": Entry("state_tracking:Majority", "were there more 1s than 0s?", FIELD),
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
