"""A small study of lengths and sizes, and made-up records in which every number is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.record import LengthScore, Point, ProbeScore, Probing, Record, Score, Verdict
from assay.spec import RunSpec
from assay.studies import Study, study_named
from assay.theory.bounds.information import best_accuracy

SOURCE = '''
"""Which sizes look up a symbol?"""

from assay.findings import Expectation, Finding, Separations
from assay.spec import run_spec

LENGTHS, WIDTHS = (8, 16, 32), (8, 16, 32)


def runs(model, task="index-lookup", lengths=LENGTHS, widths=WIDTHS, layers=1, seeds=5, **options):
    def one(n, width, lr, seed):
        odd = task != "bounded-dyck"
        named = {"alphabet": 16, "positions": n} if task == "index-lookup" else {}
        low, high = (4 + odd, n + odd)
        bins = [{"name": "Bin0", "low": low, "high": high}, {"name": "Bin1", "low": high, "high": high}]
        return run_spec(
            task, model, seed=seed, task_options=named, model_options={"width": width, "layers": layers, **options},
            training={"lengths": [low, high], "lr": lr, "steps": 100, "validation": bins[:1]}, testing={"bins": bins},
        )
    return [one(*at, lr, s) for at in ((n, w) for n in lengths for w in widths) for lr in (1e-3, 1e-2)
            for s in range(seeds)]


TASKS = ("index-lookup", "equality-random", "bounded-dyck")
ROUNDED = [run for bits in (0, 2) for run in runs("lstm", state={"numbers": f"fixed:0.{bits}"})]
VARIANTS = {
    "transformer, 1 layer": [run for task in TASKS for run in runs("transformer", task)],
    "transformer, 2 layers": [run for task in TASKS[1:] for run in runs("transformer", task, layers=2)],
    "lstm": runs("lstm") + runs("lstm", "bounded-dyck"),
    "lstm, rounded": ROUNDED,
}
PIECES = {name: list(runs) for name, runs in VARIANTS.items()}


def expect(outcome, variant, task="index-lookup", **at):
    return (Expectation(variant=variant, outcome=outcome, task=task, **at),)


FINDINGS = [
    Finding(name="lookup", says="Attention looks up, a state does not.", source="p. 1",
            quote="One layer does, <a state> does not.",
            expects=expect("learns", "transformer, 1 layer") + expect("fails", "lstm", length=32)),
    Finding(name="dyck", says="One layer fails on Dyck.", source="expected from theory",
            expects=expect("fails", "transformer, 1 layer", "bounded-dyck") + expect("learns", "lstm", "bounded-dyck")),
]
SEPARATIONS = Separations(
    "What separates?", "lookup", ("lstm", "lstm, rounded"), "transformer, 1 layer",
    growing=(("transformer, 1 layer", "index-lookup"), ("lstm", "index-lookup")),
    depths=(("transformer, 1 layer", "transformer, 2 layers"),), depth_tasks=("equality-random", "bounded-dyck"),
    questions={"lstm": "How wide must a state be?"},
)
'''


def load_study(folder: Path) -> Study:
    path = folder / "apart.py"
    path.write_text(SOURCE)
    return replace(study_named(str(path)), name="apart.py")


def place(spec: dict[str, Any]) -> tuple[str, str, int, int, int, str]:
    """What a reader of the record knows of a run."""
    model, task = spec["model"], spec["task"]["kind"]
    length = spec["training"]["lengths"][1] - (task != "bounded-dyck")
    numbers = (model.get("state") or {}).get("numbers", "")
    return model["name"], task, length, model["width"], len(model["mixers"]), numbers


def share(spec: dict[str, Any], seed: int) -> float:
    """The share of right answers that a run is given: attention needs a width of 8 or 16, a state one of N."""
    model, task, n, width, layers, numbers = place(spec)
    bits = width * 2 * (int(numbers[-1]) + 1 if numbers else 32)
    ceiling = best_accuracy(n, 16, bits) if task == "index-lookup" and model == "lstm" else 1.0
    is_solved = width >= {8: 8, 16: 16, 32: 16}[n] if model == "transformer" else width >= n and not numbers
    if task == "bounded-dyck":
        is_solved = model == "lstm" or layers == 2
    chosen = spec["training"]["lr"] == 1e-3
    right = 1.0 - 0.01 * (seed % 2) if is_solved else 0.5 + 0.02 * seed
    return min(right if chosen else 0.8 * right, ceiling)


def made_up(run: RunSpec) -> Record:
    spec = json.loads(json.dumps(run.plain()))
    right, longest = share(spec, run.seed), run.training.lengths[1]
    model, task, n, width, _, _ = place(spec)
    rows = (LengthScore(length=longest, rows=100, sequences=right, answers=right),)
    scores = [
        Score(bin=b.name, rows=100, shared=0, sequences=right, answers=right, favourite=0.1, lengths=rows)
        for b in run.testing.bins
    ]
    if task == "bounded-dyck":
        scores += [s.model_copy(update={"probe": "count-balanced", "sequences": right / 2}) for s in scores[:1]]
    is_refuted = right == 1 and run.seed == 4
    wrong = ProbeScore(
        name="extreme", rows=9, wrong=int(is_refuted), length=n if is_refuted else None, word="s1 @1" * is_refuted
    )
    verdict: Verdict = "censored" if right < 1 else "refuted" if is_refuted else "solved"
    return Record(
        digest=run.digest,
        spec=spec,
        verdict=verdict,
        stopped="solved" if right == 1 else "steps",
        scores=tuple(scores),
        probing=Probing(probes=1, scores=(wrong,), seconds=0.1) if right == 1 else None,
        curve=(Point(step=100, loss=1.0, sequences={"Bin0": right}, answers={}),),
        parameters=width * math.ceil(n / 2),
        state_floats=2 * width if model == "lstm" else 2 * width * longest,
        seconds={"train": 1.0},
        device="abacus",
    )
