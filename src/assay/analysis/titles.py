"""The names that pages use: languages and architectures as papers write them. Code names are for the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TASKS = {  # by a task's kind; in braces, its options
    "even-a": "(aa)*",
    "abab": "(abab)*",
    "an-bn": "a^n b^n",
    "an-bn-cn": "a^n b^n c^n",
    "an-bn-cn-dn": "a^n b^n c^n d^n",
    "shuffle": "Shuffle-{k}",
    "dyck-1": "Dyck-1",
    "reset-dyck-1": "reset Dyck-1",
    "bounded-dyck": "Dyck-({k}, {depth})",
    "index-lookup": "index lookup",
    "nearest-neighbour": "nearest neighbour",
    "multi-query-recall": "multi-query recall",
    "phone-book": "phone book",
    "equality-random": "string equality",
    "equality-one": "equality but for one symbol",
    "equality-ncp": "copying",
    "cyclic": "Z_{n}",
    "s3": "S_3",
    "s4": "S_4",
    "s5": "S_5",
    "a5": "A_5",
    "a4-z5": "A_4 x Z_5",
    "dihedral": "D_{n}",
    "modular-arithmetic": "arithmetic modulo {n}",
    "modular-arithmetic-brackets": "arithmetic modulo {n} with brackets",
    "flip-flop-language": "flip-flop language",
    "even-pairs": "even pairs",
    "cycle-navigation": "cycle navigation",
    "tomita": "Tomita {grammar}",
    "unique-copy": "unique copy",
    "missing-duplicate": "missing duplicate",
    "odds-first": "odds first",
    "bucket-sort": "bucket sort",
    "stack-manipulation": "stack manipulation",
    "binary-addition": "binary addition",
    "selective-copying": "selective copying",
    "forgetting-recall": "forgetting recall",
    "compositional-recall": "compositional recall",
    "noisy-recall": "noisy recall",
    "fuzzy-recall": "fuzzy recall",
    "k-hop": "{k}-hop induction",
}
MODELS = {
    "transformer": "the Transformer",
    "linear-transformer": "the linear Transformer",
    "delta-net": "DeltaNet",
    "delta-net-signed": "signed DeltaNet",
    "delta-product": "DeltaProduct",
    "recurrent-delta": "recurrent delta",
    "srwm": "SRWM",
    "lstm": "the LSTM",
    "e-lstm": "the e-LSTM",
    "elman": "the Elman network",
    "gru": "the GRU",
    "retnet": "RetNet",
    "dss": "DSS",
    "mamba": "Mamba",
    "gated-delta-net": "Gated DeltaNet",
    "gated-delta-product": "Gated DeltaProduct",
    "kda": "Kimi Delta Attention",
    "gated-delta-net-2": "Gated DeltaNet-2",
    "rwkv-7": "RWKV-7",
    "mamba-2": "Mamba-2",
    "gla": "GLA",
    "hgrn-2": "HGRN-2",
    "mlstm": "the mLSTM",
    "mamba-3": "Mamba-3",
    "slstm": "the sLSTM",
    "pd-ssm": "PD-SSM",
    "m2rnn": "the M2RNN",
    "forgetting-transformer": "the forgetting Transformer",
    "stick-breaking": "stick-breaking attention",
    "path": "PaTH",
    "xlstm": "the xLSTM",  # a variant of studies
}


def task_title(task: Mapping[str, Any]) -> str:
    """The name of a task, from its plain data.

    >>> task_title({"kind": "shuffle", "version": 1, "k": 2})
    'Shuffle-2'
    """
    kind = str(task.get("kind", "?"))
    try:
        return TASKS[kind].format_map(task) if kind in TASKS else kind
    except KeyError:  # a record of another version may lack an option
        return kind


def task_titles(tasks: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The name of each kind of task; the kind itself where tasks of a kind have different names."""
    titles: dict[str, str] = {}
    for task in tasks:
        kind, title = str(task.get("kind", "?")), task_title(task)
        titles[kind] = title if titles.get(kind, title) == title else kind
    return titles


def row_title(variant: str) -> str:
    """A variant at the head of a row.

    >>> row_title("transformer"), row_title("delta-net, one layer")
    ('Transformer', 'DeltaNet (one layer)')
    """
    return variant_title(variant).removeprefix("the ")


def variant_title(variant: str) -> str:
    """A variant in a sentence.

    >>> variant_title("delta-net, one layer"), variant_title("feedback alone")
    ('DeltaNet (one layer)', 'feedback alone')
    """
    model, comma, change = variant.partition(", ")
    title = MODELS.get(model, model)
    return f"{title} ({change})" if comma else title
