"""Probing stored runs: with probes that did not exist when they were trained, or that have changed since."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from assay.lab.evaluate import first_failing_length, probed_verdict
from assay.lab.probing import probe
from assay.lab.weights import load_model
from assay.record import Record
from assay.spec import RunSpec
from assay.store import Store
from assay.tasks.probes import VERSION

PROBED = ("solved", "refuted", "partly solved")  # verdicts of runs that are right at the training lengths


def probed_runs(store: Store, records: Iterable[Record], again: bool = False) -> tuple[list[Record], list[Record]]:
    """The runs that are to be probed, and those that cannot be, because their weights were not kept."""
    pending = [
        record
        for record in records
        if record.verdict in PROBED and (again or record.probing is None or record.probing.probes != VERSION)
    ]
    with_weights = [record for record in pending if store.weights_file(record.digest)]
    return with_weights, [record for record in pending if record not in with_weights]


def probe_again(record: Record, device: torch.device) -> Record:
    """The record with the scores of the current probes, and the verdict that follows."""
    probing = probe(load_model(record).to(device), RunSpec(**record.spec), device)
    verdict = probed_verdict("solved" if record.verdict == "refuted" else record.verdict, probing)
    failing = first_failing_length(record.scores, probing)
    return record.model_copy(update={"probing": probing, "verdict": verdict, "first_failing_length": failing})
