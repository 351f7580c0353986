"""Records, the stored outcomes of runs."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, WrapSerializer

from assay.description import Description

Verdict = Literal["solved", "refuted", "partly solved", "collapsed", "diverged", "censored", "failed"]
Outcome = Literal["proved", "refuted", "conditional", "open"]
Item = TypeVar("Item")
# A tuple; in a record that was read from a packed file, a sequence that is parsed when it is first needed.
Rows = Annotated[Sequence[Item], AfterValidator(tuple), WrapSerializer(lambda rows, as_given: as_given(tuple(rows)))]


class Part(BaseModel):
    """A part of a record. Kind and version are fields: a study has a million parts, which no Python code need touch."""

    model_config = Description.model_config

    def plain(self) -> dict[str, Any]:
        """This part as JSON data."""
        return self.model_dump(mode="json")


class LengthScore(Part):
    """The shares of right sequences and right answers among the rows of one length."""

    kind: Literal["length-score"] = "length-score"
    version: Literal[1] = 1
    length: int
    rows: int
    sequences: float
    answers: float


class Score(Part):
    """The accuracy in one test bin: the shares of sequences without a mistake, and of right answers.

    `probe` names another distribution of the task's inputs. `shared` counts rows that training may have shown: their
    length has too few strings to be split, or they are in the published training set. `favourite` is the share of the
    most common answer of the model.
    """

    kind: Literal["score"] = "score"
    version: Literal[1] = 1
    bin: str
    probe: str = ""
    rows: int
    shared: int
    sequences: float
    answers: float
    favourite: float
    lengths: Rows[LengthScore]


class Point(Part):
    """One check during training: the mean loss since the previous check, and validation accuracies by bin."""

    kind: Literal["point"] = "point"
    version: Literal[1] = 1
    step: int
    loss: float
    sequences: dict[str, float]
    answers: dict[str, float]


class ProbeScore(Part):
    """How many inputs of one probe are wrong, and the shortest wrong one as a readable word."""

    kind: Literal["probe-score"] = "probe-score"
    version: Literal[1] = 1
    name: str
    rows: int
    wrong: int
    length: int | None = None  # of the shortest wrong input
    word: str = ""  # empty for real-valued inputs


class Probing(Part):
    """The probes that a run was tested with, after the test bins; `probes` is their version."""

    kind: Literal["probing"] = "probing"
    version: Literal[1] = 1
    probes: int
    scores: tuple[ProbeScore, ...]
    seconds: float

    @property
    def shortest_wrong(self) -> ProbeScore | None:
        """The probe with the shortest wrong input."""
        wrong = [score for score in self.scores if score.length is not None]
        return min(wrong, key=lambda score: score.length or 0, default=None)


class OtherState(Part):
    """The test of a further state of a run (`testing.states`); its scores have no table by length.

    `other_scores` are those with the task's other strings, as in the record of the run itself.

    `first_perfect` is the step at which the watched state was first right on every sequence of the first two test bins.
    """

    kind: Literal["other-state"] = "other-state"
    version: Literal[1] = 1
    name: str
    step: int
    verdict: Verdict
    scores: tuple[Score, ...]
    first_failing_length: int | None = None
    first_perfect: int | None = None
    probing: Probing | None = None
    other_scores: tuple[Score, ...] = ()
    weights_sha256: str = ""  # of its weights, if they were kept

    def score(self, bin_: str) -> Score | None:
        return next((score for score in self.scores if score.bin == bin_), None)


class Certified(Part):
    """One result of `assay certify` on a run: what is known about every input, or about every input up to a length.

    `numbers` is the format to which the carried state is rounded; the result is then about the rounded machine. The
    certificate is a file beside the records.
    """

    kind: Literal["certified"] = "certified"
    version: Literal[1] = 1
    method: str
    outcome: Outcome
    numbers: str = "float32"
    length: int | None = None  # up to which every input is right (None: every length), or of the wrong word
    states: int | None = None  # pairs of model state and task state that were visited
    word: str = ""  # the shortest wrong word, if refuted
    detail: str = ""  # one sentence
    certificate: str = ""  # a file name

    @property
    def rounded(self) -> bool:
        """Whether the result is about the machine with a rounded state, not about the model itself."""
        return self.numbers != "float32"

    @property
    def refutes(self) -> bool:
        """Whether the model itself is wrong on the word."""
        return self.outcome == "refuted" and not self.rounded


def wrong_inputs(probing: Probing | None, certified: Iterable[Certified]) -> list[tuple[int, str]]:
    """The lengths and the readable forms of the wrong inputs that probes and `assay certify` have found."""
    probe = probing.shortest_wrong if probing else None
    words = [(probe.length or 0, probe.word)] if probe else []
    return words + [(result.length or 0, result.word) for result in certified if result.refutes]


# Fields of a record that may differ between two records of the same run on the same kind of machine.
CIRCUMSTANCES = {"seconds", "started", "ended", "commit", "versions", "device", "backend", "population", "traceback"}
CIRCUMSTANCES |= {"certified"}


class Record(Description):
    """The outcome of one run. The spec is plain data: a record can be read without the code of task and model."""

    kind: ClassVar[str] = "record"
    added: ClassVar[tuple[str, ...]] = (
        "ended",
        "tested_at",
        "probing",
        "certified",
        "traceback",
        "weights_sha256",
        "other_scores",
        "states",
    )
    digest: str
    spec: dict[str, Any]
    verdict: Verdict
    first_failing_length: int | None = None
    stopped: Literal["solved", "steps", "diverged", "error"]
    steps: int = 0
    solved_at: int | None = None
    tested_at: int | None = None  # the step of the tested state, with training.keep = "best"
    scores: tuple[Score, ...] = ()
    probing: Probing | None = None  # None: not probed
    states: tuple[OtherState, ...] = ()  # further states that were tested
    certified: tuple[Certified, ...] = ()
    weights_sha256: str = ""  # of the weights that were kept, so that others are never taken for them
    curve: Rows[Point] = ()
    other_scores: tuple[Score, ...] = ()  # of the first two bins with the task's other strings; for information only
    error: str | None = None
    traceback: str = ""  # of the error
    seconds: dict[str, float] = Field(default_factory=dict)
    parameters: int = 0
    state_floats: int | None = None  # unknown for a user's own module
    state_bits: int | None = None
    commit: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    device: str = ""
    backend: dict[str, str] = Field(default_factory=dict)
    population: dict[str, Any] = Field(default_factory=dict)  # how it was trained: slots, CUDA graphs, fallbacks
    started: str = ""
    ended: str = ""

    @cached_property
    def weights(self) -> Mapping[str, bytes]:
        """The weights that are kept, until the record is stored: those of the tested state under the empty name.

        They are not part of the record's data.
        """
        return {}

    @cached_property
    def origin(self) -> Path | None:
        """The store from which the record was read."""
        return None

    def with_weights(self, weights: Mapping[str, bytes]) -> Record:
        """The same record, with the weights that are to be stored beside it, by state as in `weights`."""
        hashes = {state: hashlib.sha256(data).hexdigest() for state, data in weights.items()}
        states = (s.model_copy(update={"weights_sha256": hashes.get(s.name, "")}) for s in self.states)
        copy = self.model_copy(update={"weights_sha256": hashes.get("", ""), "states": tuple(states)})
        copy.__dict__["weights"] = weights
        return copy

    def weights_hash(self, state: str = "") -> str:
        """The SHA-256 of the weights that were kept of a state, by default of the tested one; empty without any."""
        if not state:
            return self.weights_sha256
        other = self.state(state)
        return other.weights_sha256 if other else ""

    def plain(self) -> dict[str, Any]:
        return super(Record, self.whole()).plain()

    def whole(self) -> Record:
        """This record, after all of its parts were read; BadInput if one of them is damaged."""
        for part in (self.curve, *(score.lengths for score in self.scores)):
            len(part)
        return self

    @property
    def rung(self) -> str:
        """How much of the verdict `solved` was checked: random, probed, exhaustive to n or proved; else empty.

        A proof of the machine with a rounded state names the format. `assay certify` may refute what the tests did not.
        """
        if self.verdict != "solved":
            return ""
        if any(result.refutes for result in self.certified):
            return "refuted"
        proofs = [result for result in self.certified if result.outcome == "proved"]
        if formats := [result.numbers for result in proofs if result.length is None]:
            return "proved" if "float32" in formats else f"proved ({formats[0]})"
        if lengths := [result.length for result in proofs if result.length]:
            return f"exhaustive to {max(lengths)}"
        return "probed" if self.probing and any(score.rows for score in self.probing.scores) else "random"

    @property
    def wrong_word(self) -> str:
        """The shortest wrong input whose symbols are known, in readable form; empty if there is none.

        A wrong input of the test bins may be shorter (`first_failing_length`), but only its length is recorded.
        """
        return self.shortest_wrong[1]

    @property
    def shortest_wrong(self) -> tuple[int, str]:
        """The length and the readable form of the shortest wrong input whose symbols are known; (0, "") without one."""
        return min(wrong_inputs(self.probing, self.certified), default=(0, ""))

    @property
    def task(self) -> str:
        return str(self.spec.get("task", {}).get("kind", "?"))

    @property
    def model(self) -> str:
        return str(self.spec.get("model", {}).get("name", "?"))

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    @property
    def rate(self) -> float:
        return float(self.spec["training"]["lr"])

    @cached_property
    def bins(self) -> list[str]:
        """The names of the test bins, from short to long."""
        bins: list[dict[str, Any]] = self.spec["testing"]["bins"]
        return [str(bin_["name"]) for bin_ in sorted(bins, key=lambda bin_: int(bin_["high"]))]

    @property
    def tested(self) -> Point | None:
        """The check of the state that was tested."""
        last = next(reversed(self.curve), None)
        if self.tested_at is None:
            return last
        return next((point for point in self.curve if point.step == self.tested_at), last)

    @property
    def finished(self) -> bool:
        """Whether the run has a result; a failed run is tried again."""
        return self.verdict != "failed"

    @property
    def result(self) -> str:
        """What came of the run as JSON text, without when, where and how fast, and what was examined later."""
        data = {name: value for name, value in self.plain().items() if name not in CIRCUMSTANCES}
        for part in (data, *data.get("states", ())):
            part.pop("weights_sha256", None)
            if part.get("probing"):
                del part["probing"]["seconds"]
        return json.dumps(data, sort_keys=True)

    def __repr__(self) -> str:
        """The outcome in a line: all fields would be thousands of numbers."""
        wrong = f", wrong on {self.wrong_word}" if self.wrong_word else ""
        why = f", {self.error}" if self.error else wrong
        return f"<{self.task} {self.model} seed {self.seed}: {self.verdict}{why} ({self.digest})>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """The outcome as a table, for notebooks."""
        rows = {"task": self.task, "model": self.model, "seed": self.seed, "verdict": self.verdict}
        rows |= {"rung": self.rung, "error": self.error, "shortest wrong input": self.wrong_word}
        rows |= {f"{score.bin}, right sequences": f"{score.sequences:.1%}" for score in self.scores if not score.probe}
        rows |= {"steps": self.steps, "parameters": self.parameters}
        cells = (
            f"<th>{html.escape(k)}</th><td>{html.escape(str(v))}</td>" for k, v in rows.items() if v not in ("", None)
        )
        return f"<table>{''.join(f'<tr>{cell}</tr>' for cell in cells)}</table>"

    def state(self, name: str) -> OtherState | None:
        """The test of a further state."""
        return next((state for state in self.states if state.name == name), None)

    def score(self, bin_: str, probe: str = "") -> Score | None:
        # A page asks a hundred thousand times: a plain loop takes half the time of a generator.
        for score in self.scores:
            if score.bin == bin_ and score.probe == probe:
                return score
        return None
