"""Uniting stores: records, with their weights and certificates, are copied into one store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from assay.errors import BadInput
from assay.lab.weights import as_bytes, tensors_of
from assay.record import Record
from assay.store import Store, write_synced

CERTIFICATES = "certificates"


@dataclass
class Merge:
    """What became of the runs of other stores: the digests of those that were copied, were there, or differ."""

    copied: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)


def merge(store: Store, others: Sequence[Store]) -> Merge:
    """Copy into a store what it lacks of others.

    A finished run replaces a failed one. Of two equal results that with weights or more certificates is kept; of two
    that differ, that of the store.
    """
    outcome = Merge()
    for other in others:
        if other.path.resolve() == store.path.resolve():
            raise BadInput(f"{other.path} is the store to merge into; name it once")
        for record in other.records():
            entry = store.index().get(record.digest)
            mine = store.load(entry) if entry else None
            if mine and mine.finished and record.finished and mine.result != record.result:
                outcome.differing.append(record.digest)
            elif mine and _completeness(mine, store) >= _completeness(record, other):
                outcome.present.append(record.digest)
            else:
                _copy(record, other, store)
                outcome.copied.append(record.digest)
    return outcome


def _completeness(record: Record, store: Store) -> tuple[bool, int, int]:
    """Finished before failed, then by the number of states with weights, then by that of certificates."""
    return record.finished, sum(1 for _ in _kept_states(record, store)), len(record.certified)


def _kept_states(record: Record, store: Store) -> Iterator[str]:
    """The states of a run whose weights are in a store."""
    states = ("", *(state.name for state in record.states))
    return (state for state in states if store.weights_file(record.digest, state))


def _copy(record: Record, source: Store, target: Store) -> None:
    """Add a record to another store, after the files that belong to it."""
    for name in (entry.certificate for entry in record.certified if entry.certificate):
        file = (
            source.path.with_name(CERTIFICATES) / name if source.path.is_file() else source.path / CERTIFICATES / name
        )
        if file.is_file():
            write_synced(target.path / CERTIFICATES / name, file.read_bytes())
    copy = record.model_copy()
    copy.__dict__ |= {"weights": dict(_weights(record, source)), "origin": None}
    target.add(copy)


def _weights(record: Record, source: Store) -> Iterator[tuple[str, bytes]]:
    """The kept weights of a run by state."""
    for state in _kept_states(record, source):
        yield state, as_bytes(tensors_of(record, source.path, state))
