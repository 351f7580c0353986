"""The oracles once more, in the most obvious way: from lists of symbols to lists of answers, None for no question.

Written from the definitions alone; speed does not matter here, only that each function can be checked by eye.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from assay.tasks.phone_book import FIRST, LAST

Word = list[str]
Answers = list[str | None]
DEAD = "dead"


def prefixes(word: Word) -> Iterator[Word]:
    return (word[: t + 1] for t in range(len(word)))


def only_at_the_end(word: Word, answer: str) -> Answers:
    return [None] * (len(word) - 1) + [answer]


# -- regular languages -----------------------------------------------------------------------------------------


def parity(word: Word) -> Answers:
    return ["1" if prefix.count("1") % 2 == 0 else "0" for prefix in prefixes(word)]


def even_a(word: Word) -> Answers:
    return ["1" if len(prefix) % 2 == 0 else "0" for prefix in prefixes(word)]


def abab(word: Word) -> Answers:
    def answer(text: str) -> str:
        if not ("abab" * len(text)).startswith(text):
            return DEAD
        return "1" if re.fullmatch("(abab)*", text) else "0"

    return [answer("".join(prefix)) for prefix in prefixes(word)]


def flip_flop(word: Word) -> Answers:
    return ["1" if "".join(prefix).replace("-", "").endswith("s") else "0" for prefix in prefixes(word)]


def modular_arithmetic(word: Word, n: int) -> Answers:
    def answer(text: str) -> str | None:
        if re.fullmatch(r"\d([-+*]\d)*", text):
            return str(eval(text) % n)
        return None if re.fullmatch(r"(\d[-+*])*", text) else DEAD

    return [answer("".join(prefix)) for prefix in prefixes(word)]


def modular_arithmetic_brackets(word: Word, n: int = 5, operators: str = "+-") -> Answers:
    """Brackets without inner ones are replaced by their values, as <3>: a minus before that is no sign."""
    operand = r"(?:-?\d|<\d>)"
    text, shorter = "", "".join(word)
    while text != shorter:
        text = shorter
        shorter = re.sub(
            rf"\(({operand}(?:[{operators}]{operand})?)\)",
            lambda match: f"<{eval(re.sub('[<>]', '', match[1])) % n}>",
            text,
        )
    if not re.fullmatch(operand, text):
        return only_at_the_end(word, DEAD) if word else []
    return only_at_the_end(word, str(int(text.strip("<>")) % n))


def flip_flop_language(word: Word) -> Answers:
    def answer(text: str) -> str | None:
        instructions, bits = text[::2], text[1::2]
        if not text.startswith("w") or not set(instructions) <= set("wri") or not set(bits) <= set("01"):
            return DEAD
        memory = ""
        for i, instruction in enumerate(instructions):
            bit = bits[i : i + 1]
            if instruction == "r":
                if bit not in ("", memory):
                    return DEAD
                if not bit:
                    return memory
            elif instruction == "w":
                memory = bit
        return None

    return [answer("".join(prefix)) for prefix in prefixes(word)]


def even_pairs(word: Word) -> Answers:
    pairs = [sum(a != b for a, b in pairwise(prefix)) for prefix in prefixes(word)]
    return ["1" if count % 2 == 0 else "0" for count in pairs]


def cycle_navigation(word: Word, n: int = 5) -> Answers:
    return [str((prefix.count("+") - prefix.count("-")) % n) for prefix in prefixes(word)]


def majority(word: Word) -> Answers:
    return ["1" if prefix.count("1") > prefix.count("0") else "0" for prefix in prefixes(word)]


def tomita(word: Word, grammar: int = 3) -> Answers:
    def odd_runs(text: str) -> str:
        return "".join(symbol for symbol, run in groupby(text) if len(list(run)) % 2)

    def accepted(text: str) -> bool:
        zeros, ones = text.count("0"), text.count("1")
        return {
            1: "0" not in text,
            2: text == "10" * ones,
            3: "0" not in odd_runs(text).lstrip("0"),
            4: "000" not in text,
            5: zeros % 2 == ones % 2 == 0,
            6: (zeros - ones) % 3 == 0,
            7: text.count("10") <= 1,
        }[grammar]

    return ["1" if accepted("".join(prefix)) else "0" for prefix in prefixes(word)]


def dfa(word: Word, alphabet: str, table: Sequence[Sequence[int]], accept: Sequence[int]) -> Answers:
    def reachable(state: int) -> set[int]:
        found = {state}
        while (more := found.union(*(table[s] for s in found))) != found:
            found = more
        return found

    said: Answers = []
    state = 0
    for symbol in word:
        state = table[state][alphabet.index(symbol)]
        said.append(DEAD if not reachable(state) & set(accept) else "1" if state in accept else "0")
    return said


# A regular expression is a tree: ("letter", a), ("or", x, y), ("then", x, y), ("star", x), ("plus", x), ("maybe", x).
Tree = tuple[Any, ...]
NOTHING, EMPTY_WORD = ("nothing",), ("empty word",)


def pattern(tree: Tree) -> str:
    match tree:
        case ("letter", a):
            return str(a)
        case ("or", x, y):
            return f"({pattern(x)}|{pattern(y)})"
        case ("then", x, y):
            return pattern(x) + pattern(y)
        case (postfix, x):
            return f"({pattern(x)})" + {"star": "*", "plus": "+", "maybe": "?"}[postfix]
    raise AssertionError(tree)


def has_empty_word(tree: Tree) -> bool:
    match tree:
        case ("or", x, y):
            return has_empty_word(x) or has_empty_word(y)
        case ("then", x, y):
            return has_empty_word(x) and has_empty_word(y)
        case ("plus", x):
            return has_empty_word(x)
    return tree[0] in ("empty word", "star", "maybe")


def either(x: Tree, y: Tree) -> Tree:
    return y if x in (NOTHING, y) else x if y == NOTHING else ("or", x, y)


def then(x: Tree, y: Tree) -> Tree:
    return NOTHING if NOTHING in (x, y) else y if x == EMPTY_WORD else ("then", x, y)


def derivative(tree: Tree, symbol: str) -> Tree:
    """What may follow the symbol (Brzozowski 1964); it is NOTHING exactly when no word begins with the symbol."""
    match tree:
        case ("letter", a):
            return EMPTY_WORD if a == symbol else NOTHING
        case ("or", x, y):
            return either(derivative(x, symbol), derivative(y, symbol))
        case ("then", x, y):
            later = derivative(y, symbol) if has_empty_word(x) else NOTHING
            return either(then(derivative(x, symbol), y), later)
        case ("star" | "plus", x):
            return then(derivative(x, symbol), ("star", x))
        case ("maybe", x):
            return derivative(x, symbol)
    return NOTHING


def regex(word: Word, tree: Tree) -> Answers:
    said: Answers = []
    rest = tree
    for prefix in prefixes(word):
        rest = derivative(rest, prefix[-1])
        accepted = re.fullmatch(pattern(tree), "".join(prefix))
        said.append(DEAD if rest == NOTHING else "1" if accepted else "0")
    return said


# -- counters and brackets -------------------------------------------------------------------------------------


def equal_counts(word: Word, letters: str) -> Answers:
    """Every word of the language that could still be meant votes for what comes next."""

    def answer(text: str) -> str:
        language = ["".join(letter * n for letter in letters) for n in range(1, len(text) + 2)]
        following = {(w + "T")[len(text)] for w in language if w.startswith(text)}
        if following == {"a", "b"}:
            return chr(ord(letters[-1]) + 1)
        return following.pop() if following else DEAD

    return [answer("".join(prefix)) for prefix in prefixes(word)]


def dyck_rest(text: str) -> str:
    """What is left when matching brackets are struck out."""
    while "()" in text:
        text = text.replace("()", "")
    return text


def dyck_1(word: Word) -> Answers:
    rests = [dyck_rest("".join(prefix)) for prefix in prefixes(word)]
    return [DEAD if ")" in rest else "1" if rest else "0" for rest in rests]


def reset_dyck_1(word: Word) -> Answers:
    rests = [dyck_rest("".join(prefix).split("1")[-1]) for prefix in prefixes(word)]
    return [DEAD if ")" in rest else "1" if rest else "0" for rest in rests]


PAIRS = ("()", "[]", "{}", "<>")


def shuffle(word: Word, k: int) -> Answers:
    said: Answers = []
    depths = [0] * k
    dead = False
    for symbol in word:
        kind = next(i for i in range(k) if symbol in PAIRS[i])
        depths[kind] += 1 if symbol == PAIRS[kind][0] else -1
        dead = dead or depths[kind] < 0
        said.append(DEAD if dead else "".join("1" if depth else "0" for depth in depths))
    return said


def bounded_dyck(word: Word, depth: int) -> Answers:
    def accepted() -> bool:
        stack = []
        for symbol in word:
            opening = next(pair[0] for pair in PAIRS if symbol in pair)
            if symbol == opening:
                stack.append(symbol)
            elif not stack or stack.pop() != opening:
                return False
            if len(stack) > depth:
                return False
        return not stack

    return only_at_the_end(word, "1" if accepted() else "0") if word else []


# -- lookup, equality, copying ----------------------------------------------------------------------------------


def index_lookup(word: Word) -> Answers:
    if not word:
        return []
    *before, last = word
    index = int(last[1:]) if last.startswith("@") else None
    if index is None or index > len(before) or any(symbol.startswith("@") for symbol in before):
        return only_at_the_end(word, DEAD)
    return only_at_the_end(word, before[index - 1])


def halves(word: Word) -> tuple[Word, Word] | None:
    """x and y of x # y, None where the word is not of that form."""
    if word.count("#") != 1:
        return None
    x, y = word[: word.index("#")], word[word.index("#") + 1 :]
    return (x, y) if len(x) == len(y) else None


def equality(word: Word) -> Answers:
    both = halves(word)
    return only_at_the_end(word, "1" if both and both[0] == both[1] else "0") if word else []


def disjointness(word: Word) -> Answers:
    both = halves(word)
    disjoint = both is not None and all((a, b) != ("1", "1") for a, b in zip(*both, strict=True))
    return only_at_the_end(word, "1" if disjoint else "0") if word else []


def equality_ncp(word: Word) -> Answers:
    if "#" not in word:
        return [None] * len(word)
    middle = word.index("#")
    x = word[:middle]
    said: Answers = [None] * middle
    for t in range(middle, len(word)):
        copied = word[middle + 1 : t + 1]
        if len(copied) >= len(x):
            said.append(None)
        else:
            said.append(x[len(copied)] if x[: len(copied)] == copied else DEAD)
    return said


copy = unique_copy = equality_ncp


def missing_duplicate(word: Word) -> Answers:
    if not word:
        return []
    x, y = word[: len(word) // 2], word[len(word) // 2 :]
    found = {
        a: [*x, *y] for a in {*x, *y} - {"_"} if [b if b != "_" else a for b in x] == [b if b != "_" else a for b in y]
    }
    return only_at_the_end(word, next(iter(found)) if len(found) == 1 and word.count("_") == 1 else DEAD)


# -- from string to string -------------------------------------------------------------------------------------


def transduction(
    word: Word, result: Callable[[Word], Word], proper: Callable[[Word], bool] = lambda _: True
) -> Answers:
    """The answers at the blanks behind a string; `proper` says whether a string before the blanks is well formed."""
    said: Answers = []
    for prefix in prefixes(word):
        x, blanks = prefix, [s for s in prefix if s == "_"]
        if blanks:
            x = prefix[: prefix.index("_")]
        if prefix != x + blanks or not proper(prefix):
            said.append(DEAD)
        else:
            said.append(result(x)[len(blanks) - 1] if 0 < len(blanks) <= len(result(x)) else None)
    return said


def reverse(word: Word) -> Answers:
    return transduction(word, lambda x: x[::-1])


def odds_first(word: Word) -> Answers:
    return transduction(word, lambda x: x[::2] + x[1::2])


def bucket_sort(word: Word) -> Answers:
    return transduction(word, sorted)


def selective_copying(word: Word) -> Answers:
    return transduction(word, lambda x: [symbol for symbol in x if symbol != "."])


def stack_manipulation(word: Word) -> Answers:
    def result(x: Word) -> Word:
        stack: Word = []
        for symbol in x:
            if symbol == "-":
                del stack[-1:]
            else:
                stack.append({"a": "0", "b": "1"}.get(symbol, symbol))
        return [*stack[::-1], "T"]

    return transduction(word, result, lambda prefix: bool(re.fullmatch("[01]*[ab-]*_*", "".join(prefix))))


def binary_addition(word: Word) -> Answers:
    def result(x: Word) -> Word:
        total = sum(int(number[::-1], 2) for number in "".join(x).split("+"))
        return [*f"{total:b}"[::-1], "T"]

    return transduction(
        word, result, lambda prefix: bool(re.fullmatch(r"[01]*|[01]+\+[01]*|[01]+\+[01]+_*", "".join(prefix)))
    )


# -- recall ----------------------------------------------------------------------------------------------------


def bindings(word: Word) -> Answers:
    bound: dict[str, str] = {}
    said: Answers = []
    for t, symbol in enumerate(word):
        said.append(bound.get(symbol))
        if t > 0 and word[t - 1].startswith("k") and symbol.startswith("v"):
            bound.setdefault(word[t - 1], symbol)
    return said


def forgetting_recall(word: Word) -> Answers:
    bound: dict[str, str] = {}
    said: Answers = []
    for t, symbol in enumerate(word):
        said.append(bound.get(symbol))
        if t > 0 and word[t - 1].startswith("k") and symbol.startswith("v"):
            bound[word[t - 1]] = symbol
    return said


def compositional_recall(word: Word) -> Answers:
    bound: dict[tuple[str, str], str] = {}
    said: Answers = []
    for a, b, c in zip(["", "", *word], ["", *word], word, strict=False):
        said.append(bound.get((b, c)))
        if (a[:1], b[:1], c[:1]) == ("a", "b", "v"):
            bound.setdefault((a, b), c)
    return said


def noisy_recall(word: Word) -> Answers:
    answers = iter(bindings([symbol for symbol in word if symbol[0] != "x"]))
    return [None if symbol[0] == "x" else next(answers) for symbol in word]


def fuzzy_recall(word: Word, longest_key: int = 3) -> Answers:
    def answer(prefix: Word) -> str | None:
        runs = [(kind, tuple(run)) for kind, run in groupby(prefix, key=lambda symbol: symbol[0])]
        bound: dict[tuple[str, ...], tuple[str, ...]] = {}
        for (kind, key), (other, value) in pairwise(runs[:-1]):
            if kind == "k" and other == "v" and len(key) <= longest_key:
                bound.setdefault(key, value)
        (_, before), (kind, read) = [("", ()), *runs][-2:]
        if kind == "k":
            return bound[read][0] if read in bound else None
        value = bound.get(before, ())
        return value[len(read)] if kind == "v" and value[: len(read)] == read and len(value) > len(read) else None

    return [answer(prefix) for prefix in prefixes(word)]


def k_hop(word: Word, k: int = 2) -> Answers:
    def behind(place: int | None) -> int | None:
        earlier = [] if place is None else [j for j in range(place) if word[j] == word[place]]
        return earlier[-1] + 1 if earlier else None

    said: Answers = []
    for t in range(len(word)):
        place: int | None = t
        for _ in range(k):
            place = behind(place)
        said.append("none" if place is None else word[place])
    return said


def phone_book(word: Word, digits: int) -> Answers:
    if ">" not in word:
        return [None] * len(word)
    ask = word.index(">")
    query, book = word[max(0, ask - 2) : ask], word[: max(0, ask - 2)]
    entry, number = digits + 3, None
    for i in range(len(book) - entry + 1):
        *name_and_number, end = book[i : i + entry]
        found = name_and_number[2:]
        if name_and_number[:2] == query and all(digit.isdigit() for digit in found) and end == ";":
            number = found
            break
    is_name = len(query) == 2 and query[0] in FIRST and query[1] in LAST
    said: Answers = [None] * ask
    for t in range(ask, len(word)):
        given = word[ask + 1 : t + 1]
        if len(given) >= digits:
            said.append(None)
        elif number is None or not is_name or given != number[: len(given)]:
            said.append(DEAD)
        else:
            said.append(number[len(given)])
    return said


def nearest_neighbour(items: list[list[float]], dimension: int) -> str:
    """The answer to x_1 y_1 ... x_k, each item being [x | y = 0 | y = 1]."""
    query = items[-1][:dimension]
    pairs = list(zip(items[:-1:2], items[1::2], strict=True))
    if not pairs:
        return "0"
    nearness = [sum(a * b for a, b in zip(point[:dimension], query, strict=True)) for point, _ in pairs]
    label = pairs[nearness.index(max(nearness))][1][dimension:]
    return str(label.index(1.0))


# -- groups ----------------------------------------------------------------------------------------------------


def cyclic(word: Word, n: int) -> Answers:
    return [str(sum(map(int, prefix)) % n) for prefix in prefixes(word)]


def permutations(word: Word) -> Answers:
    """Where things that begin as 0, 1, 2, ... are sent by one permutation after the other."""
    said: Answers = []
    for prefix in prefixes(word):
        images = sorted(prefix[0])
        for permutation in prefix:
            images = [permutation[int(image)] for image in images]
        said.append("".join(images))
    return said


s4 = a4_z5 = permutations


def dihedral(word: Word, n: int = 5) -> Answers:
    """Where the corners 0 and 1 of the polygon are sent, which determines the symmetry."""

    def image(corner: int, symbol: str) -> int:
        k = int(symbol[1:])
        return (corner + k if symbol[0] == "r" else k - corner) % n

    said: Answers = []
    zero, one = 0, 1
    for symbol in word:
        zero, one = image(zero, symbol), image(one, symbol)
        said.append(f"r{zero}" if one == (zero + 1) % n else f"s{zero}")
    return said


def group(word: Word, table: Sequence[Sequence[int]]) -> Answers:
    said: Answers = []
    product = 0
    for symbol in word:
        product = table[product][int(symbol)]
        said.append(str(product))
    return said
