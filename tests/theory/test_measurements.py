"""The record of theory: its parts, and what measuring a part again keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from assay.errors import BadInput
from assay.theory import measurements
from assay.theory.bounds.memories import DyckBits
from assay.theory.measurements import PARTS, Job, Rows, check_names, equality_widths, job_of, measure
from assay.theory.registry import CLAIMS


class Serial:
    """Runs in this process, in place of the pool of processes."""

    def __init__(self, *_: object, **__: object) -> None: ...
    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *_: object) -> None: ...
    def map(self, function: Any, *arguments: Iterable[Any]) -> Iterator[Any]:
        return map(function, *arguments)


def row(name: str) -> Rows:
    return [{"claim": name, "holds": True, "margin": 2.0}]


def measured(record: dict[str, Any], parts: Iterable[str], claims: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The records that were saved, in order."""
    saved: list[dict[str, Any]] = []
    measure(
        record | {"commit": "new"},
        list(parts),
        list(claims),
        processes=1,
        track=lambda rows, name, total: rows,
        save=lambda data: saved.append(json.loads(json.dumps(data))),
    )
    return saved


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "ProcessPoolExecutor", Serial)
    monkeypatch.setattr(measurements, "job_of", lambda part, claims: Job(row, [(name,) for name in claims or [part]]))


@pytest.mark.usefixtures("_small")
def test_each_part_is_saved_when_it_is_done():
    saved = measured({"made": {}}, PARTS)
    assert [set(data) & set(PARTS) for data in saved] == [set(PARTS[: i + 1]) for i in range(len(PARTS))]
    assert set(saved[-1]["made"]) == set(PARTS)
    assert {made["commit"] for made in saved[-1]["made"].values()} == {"new"}
    assert "softmax" in saved[-1]["variants"]


@pytest.mark.usefixtures("_small")
def test_measuring_again_keeps_the_other_parts_and_claims():
    before = {
        "made": {"claims": {"commit": "old", "minutes": 1.0}},
        "bits": [{"task": "old"}],
        "claims": [{"claim": name, "holds": True, "margin": 1.0} for name in ("lookup-trace", "parity-lstm")],
    }
    (after,) = measured(before, ["claims"], ["parity-lstm", "lookup-random"])
    assert after["bits"] == [{"task": "old"}]
    margins = {line["claim"]: line["margin"] for line in after["claims"]}
    assert margins == {"lookup-random": 2.0, "lookup-trace": 1.0, "parity-lstm": 2.0}
    assert [*margins] == [name for name in CLAIMS.entries if name in margins], "in the registry's order"
    assert {part: made["commit"] for part, made in after["made"].items()} == {"claims": "old", "claims, some": "new"}


def test_the_jobs_name_what_they_measure():
    assert [name for (name,) in job_of("claims").arguments] == [*CLAIMS.entries]
    assert job_of("claims", ["parity-lstm"]).arguments == [("parity-lstm",)]
    assert ("lookup-trace", 2048) in job_of("precision").arguments
    assert {("lookup-trace",), ("k-dnf",)} <= set(job_of("attention").arguments)
    assert ("parity-lstm",) not in job_of("attention").arguments


def test_claims_are_checked_at_their_largest_length(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(DyckBits, "largest", 20)
    (claim,) = measurements.check_at_largest("dyck-bits")
    assert claim["holds"]
    assert claim["length"] == 20


@pytest.mark.parametrize(
    ("parts", "claims", "message"), [(["claim"], [], "did you mean 'claims'"), ([], ["parity-ltsm"], "'parity-lstm'")]
)
def test_unknown_names(parts: list[str], claims: list[str], message: str):
    with pytest.raises(BadInput, match=message):
        check_names(parts, claims)


def test_widths_for_equality():
    found = {(line["which"], line["length"]): line["width"] for n in (16, 512) for line in equality_widths(n)}
    one, packed, two, lean, paper = dict.fromkeys(which for which, _ in found)
    assert found[one, 512] == 260
    assert found[packed, 512] == 20
    assert found[two, 512] < found[one, 512]
    assert found[two, 16] > found[one, 16]
    assert max(found[lean, 512], found[paper, 512]) <= found[packed, 512]
    assert found[paper, 512] == 3  # 256 / (3 (32 + log2 513)), rounded up
