"""The weights of a run: its tested state as safetensors, named by the run's digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from assay.errors import BadInput, suggestion
from assay.lab.stacking import build_module
from assay.record import OtherState, Record, Verdict
from assay.spec import RunSpec
from assay.store import Store, weights_name, write_synced

Kept = Literal["all", "solved", "none"]
RIGHT_ON_RANDOM = ("solved", "refuted")  # the verdicts of runs that are right on every random test input
METADATA = {"assay": "weights 1"}  # one entry: safetensors writes several in any order


def parse_kept(name: str) -> Kept:
    if name not in get_args(Kept):
        raise BadInput(f"--weights {name} is not valid{suggestion(name, get_args(Kept))}")
    return name  # type: ignore[return-value]


def is_kept(kept: Kept, verdict: Verdict) -> bool:
    """Whether the weights of a run with this verdict are kept; a run that diverged or failed has none."""
    tested = verdict not in ("diverged", "failed")
    return tested and (kept == "all" or (kept == "solved" and verdict in RIGHT_ON_RANDOM))


def is_state_kept(kept: Kept, state: OtherState) -> bool:
    """Whether the weights of a further state are kept: also those that the published rule would report as solved."""
    return is_kept(kept, state.verdict) or (kept == "solved" and state.first_perfect is not None)


def serialize(module: nn.Module) -> bytes:
    """The parameters and buffers of a module; what its constructor derives from the seed is built again."""
    tensors = {name: x.detach().cpu().contiguous().clone() for name, x in module.state_dict().items()}
    return as_bytes(tensors)


def as_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Tensors by name as a safetensors file; equal tensors give equal bytes."""
    return save(tensors, METADATA)


def load_model(record: Record, store: Path | str | None = None, state: str = "") -> nn.Module:
    """The model of a run as it was tested, or in a further state, on the CPU and in evaluation mode.

    The weights are read from `store`, by default from the store that the record came from.
    """
    module = build_module(RunSpec(**record.spec), torch.device("cpu"))
    load_tensors(module, tensors_of(record, store, state), record.model)
    return module.eval()


def load_tensors(module: nn.Module, tensors: dict[str, Tensor], model: str) -> None:
    """Give a module its weights; BadInput says what does not fit the model."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        difference = str(error).splitlines()[-1].strip()  # the lines before say that there are differences
        raise BadInput(f"the weights are not those of {model}: {difference}") from None


def tensors_of(record: Record, store: Path | str | None = None, state: str = "") -> dict[str, Tensor]:
    """The weights of a run by name, in its tested state or a further one."""
    if state in record.weights:
        return load(record.weights[state])
    where, name = Path(store) if store else record.origin, weights_name(record.digest, state)
    path = Store.open(where).weights_file(record.digest, state) if where else None
    tensors = _read(path, f"{name}/" if path and path.stem != name else "") if path else {}
    if not tensors:
        of = f"{record.model} on {record.task}, seed {record.seed}" + (f", {state} state" if state else "")
        raise BadInput(f"there are no weights of {of} ({record.digest}); run it with --weights all --again")
    if record.weights_hash(state) not in ("", hashlib.sha256(as_bytes(tensors)).hexdigest()):
        raise BadInput(f"the weights in {path} are not those of the run {record.digest}; run it with --again")
    return tensors


def _read(path: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    try:
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a dict)
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise BadInput(f"cannot read the weights in {path}: {str(error).splitlines()[0]}") from None


def pack_weights(records: Iterable[Record], path: Path, only: Mapping[str, str] | None = None) -> int:
    """Write the weights of records that have some into one file, with the same bytes for the same weights.

    With `only`, these are one state each of the runs that it names by their digests.
    """
    tensors, count = dict[str, Tensor](), 0
    for record in sorted(records, key=lambda record: record.digest):
        states = ["", *(state.name for state in record.states)]
        if only is not None:
            states = [only[record.digest]] if record.digest in only else []
        kept = [s for s in states if record.origin and Store.open(record.origin).weights_file(record.digest, s)]
        for state in kept:
            prefix = weights_name(record.digest, state)
            tensors |= {f"{prefix}/{name}": x for name, x in tensors_of(record, state=state).items()}
        count += bool(kept)
    write_synced(path, as_bytes(tensors), parents=True)
    return count
