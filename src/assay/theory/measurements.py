"""Measures the record behind the page on theory: claims at their largest lengths, precision, attention and depth.

The record is a JSON object. Each part is a list of rows, and `made` says from which commit it is and how long it took.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

from assay.errors import BadInput, suggestion
from assay.models.attention import WEIGHTINGS
from assay.tasks.equality import EqualityRandom
from assay.theory import attention_variants, precision
from assay.theory.bounds.information import one_layer, two_way
from assay.theory.bounds.sizes import curves
from assay.theory.changes import changeable
from assay.theory.claim import Construction
from assay.theory.constructions.equality import EqualityOneLayer, EqualityTwoLayers, OneBitEach
from assay.theory.registry import CLAIMS, named_claim

PARTS = ("claims", "precision", "attention", "bits", "depth")
LOOKUPS = ("lookup-trace", "lookup-binary", "lookup-quadratic")
OTHERS = ("equality-two-layers", "dyck-two-layers", "parity-recurrent-delta", "counter-dyck-1", "dfa-srwm")
SHORT = 512  # up to this length each part of the numbers is also rounded alone
POWERS = (16, 32, 64, 128, 256, 512, 1024, 2048)
Rows = list[dict[str, Any]]
Track = Callable[[Iterable[Rows], str, int], Iterable[Rows]]  # shows progress: results, description, their number


class Job(NamedTuple):
    """One part of the record: a function, and the arguments of its calls."""

    function: Callable[..., Rows]
    arguments: list[tuple[Any, ...]]


def measure(
    record: dict[str, Any],
    parts: Sequence[str],
    claims: Sequence[str],
    processes: int,
    track: Track,
    save: Callable[[dict[str, Any]], None],
) -> None:
    """Measure parts of a record, and save it after each. With `claims`, only these are checked; others keep their rows.

    `record` holds the commit, the versions and the device, and the parts that stay as they are.
    """
    commit = record.pop("commit")
    record["variants"] = [*WEIGHTINGS]
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_set_up_worker) as pool:
        for name in parts:
            job = job_of(name, claims)
            begin, rows = time.perf_counter(), Rows()
            for result in track(pool.map(job.function, *zip(*job.arguments, strict=True)), name, len(job.arguments)):
                rows += result
            only_some = name == "claims" and bool(claims)
            if only_some:
                by_name = {row["claim"]: row for row in [*record.get("claims", ()), *rows]}
                rows = [by_name[claim] for claim in CLAIMS.entries if claim in by_name]
            record[name] = rows
            minutes = (time.perf_counter() - begin) / 60
            record["made"]["claims, some" if only_some else name] = {"commit": commit, "minutes": minutes}
            save(record)


def check_names(parts: Sequence[str], claims: Sequence[str]) -> None:
    """Raise BadInput if there is no such part or claim; a record holds the claims of the registry only."""
    for names, known, noun in ((parts, PARTS, "part of the record"), (claims, CLAIMS.entries, "claim")):
        for name in names:
            if name not in known:
                raise BadInput(f"unknown {noun} '{name}'{suggestion(name, known)}")


def job_of(part: str, claims: Sequence[str] = ()) -> Job:
    if part == "claims":
        return Job(check_at_largest, [(name,) for name in claims or CLAIMS.entries])
    if part == "precision":
        lengths = [
            *((name, n) for name in LOOKUPS for n in POWERS),
            *((name, n) for name in OTHERS for n in POWERS[:4]),
        ]
        return Job(least_formats, lengths)
    if part == "attention":
        constructions = changeable([named_claim(name) for name in CLAIMS.entries], "hard")
        return Job(attention_table, [(claim.name,) for claim in constructions])
    if part == "bits":
        return Job(bits_needed, [("index-lookup",), ("equality-random",), ("bounded-dyck",)])
    return Job(equality_widths, [(n,) for n in (*POWERS, 4096, 8192)])


def _set_up_worker() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a traceback


# -- the parts ---------------------------------------------------------------------------------------------------------


def check_at_largest(name: str) -> Rows:
    claim = named_claim(name)
    return [claim.check(claim.largest).plain()]


def least_formats(name: str, length: int) -> Rows:
    return precision.survey(_construction(name), length, None if length <= SHORT else ("all",))


def attention_table(name: str) -> Rows:
    claim = _construction(name)
    return attention_variants.table([claim], 256 if name in LOOKUPS else claim.length)


def bits_needed(task: str) -> Rows:
    return curves(task, (*POWERS, 4096, 8192))


def equality_widths(length: int, precision: int = 32) -> Rows:
    """The widths of explicit machines for equality, and lower bounds for one layer with numbers of `precision` bits:
    by the lean protocol, and with the published constant, 3 m (p + log2 N) H >= N / 2."""
    split = two_way(EqualityRandom(), length)
    assert split is not None
    bound = one_layer(split.bits, split.tokens, precision)
    widths = {
        "one layer, 1 symbol a number": _width(OneBitEach(), length),
        f"one layer, {EqualityOneLayer.packed} symbols a number": _width(EqualityOneLayer(), length),
        "two layers": _width(EqualityTwoLayers(), length),
        "bound for one layer": max(1, bound.lean),
        "bound for one layer, as published": bound.paper,
    }
    return [{"length": length, "which": which, "width": width} for which, width in widths.items()]


def _construction(name: str) -> Construction:
    claim = named_claim(name)
    assert isinstance(claim, Construction)
    return claim


def _width(claim: Construction, length: int) -> int:
    return claim.build(length).read_out.in_features
