"""What a page is about: a study with its records, all records of a store, or the record of theory."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from assay.analysis.collection import Collection, collect
from assay.analysis.summary import StudySummary, summarize
from assay.errors import BadInput, suggestion
from assay.record import Record
from assay.store import Store
from assay.studies import RESULTS, STUDIES, Study, study_named

THEORY = "theory"
PageKind = Literal["study", "paper", "probes", "replication", "separations", "tracking", "collection", "theory"]
THEORY_PARTS = {"claims", "precision", "attention", "bits", "depth", "made"}


@dataclass(frozen=True)
class StudyRecords:
    """A study, its records, and the store or packed file that they are from."""

    study: Study
    source: Path
    records: list[Record]

    @property
    def kind(self) -> PageKind:
        if self.study.about_probes:
            return "probes"
        if self.study.replication:
            return "replication"
        if self.study.separations:
            return "separations"
        if self.study.tracking:
            return "tracking"
        return "paper" if self.study.comparisons else "study"

    @property
    def title(self) -> str:
        return self.study.title

    @property
    def missing(self) -> int:
        """The number of runs without a record."""
        return len({spec.digest for spec in self.study.runs}) - len(self.records)

    @cached_property
    def summary(self) -> StudySummary:
        return summarize(self.study)


@dataclass(frozen=True)
class TheoryRecord:
    """The record of theory, and for each claim in it a source and a statement."""

    source: Path
    record: dict[str, Any]
    statements: dict[str, tuple[str, str]]
    kind: PageKind = "theory"
    title: str = THEORY


Subject = StudyRecords | Collection | TheoryRecord


def read_subject(name: str, store: Path | None, default_store: Path, beside: Sequence[str] = ()) -> Subject:
    """The subject of a name: theory, a study by its name or the path of its file, or a store or packed file.

    `beside` names studies whose published records are put beside those of a store.
    """
    if is_store(name):
        if store:
            raise BadInput(f"{name} is itself a store; leave out --store")
        command = shlex.join(["assay", "report", name, *(part for study in beside for part in ("--with", study))])
        return collect(Path(name), command, beside)
    if beside:
        raise BadInput(f"--with is for a page of a store, not of {name}")
    if name == THEORY:
        return read_theory(store or RESULTS / "theory.json")
    if name not in STUDIES and Path(name).suffix != ".py":
        raise BadInput(f"there is no study, store or packed file '{name}'{suggestion(name, STUDIES)}")
    return read_study(study_named(name), store, default_store)


def is_store(name: str) -> bool:
    """Whether a name is the path of a store or packed file; a study of this name comes first."""
    path = Path(name)
    return name not in (*STUDIES, THEORY) and path.suffix != ".py" and path.exists()


def read_study(study: Study, store: Path | None, default_store: Path) -> StudyRecords:
    """The records of a study: from `store` if it is given, or else those that ship, or else from the default store."""
    digests = list(dict.fromkeys(spec.digest for spec in study.runs))
    shipped = RESULTS / f"{study.name}.jsonl.xz"
    source = store or (shipped if shipped.exists() else default_store)
    records = Store.open(source).select(digests) if store or source.exists() else []
    if not records:
        into = "" if source.is_file() else f" --store {source}"  # a packed file cannot be written to
        raise BadInput(f"{source} has no record of this study; make them with: assay study {study.name}{into}")
    return StudyRecords(study, source, records)


def read_theory(path: Path) -> TheoryRecord:
    from assay.theory.registry import CLAIMS

    record = read_theory_record(path)
    claims = {row["claim"]: CLAIMS.load(row["claim"])() for row in record["claims"]}
    statements = {name: (claim.source, claim.statement) for name, claim in claims.items()}
    return TheoryRecord(path, record, statements)


def read_theory_record(path: Path) -> dict[str, Any]:
    """The record that `assay measure-theory` writes; BadInput if the file is not one."""
    advice = "`assay measure-theory` makes one"
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise BadInput(f"cannot read the record of theory at {path}: {reason}; {advice}") from None
    if not isinstance(record, dict) or not set(record) >= THEORY_PARTS:
        raise BadInput(f"{path} is not a record of theory; {advice}")
    return record
