"""Checkpoints: members in training, on disk, from which an interrupted command continues.

A file holds all members of one population: parameters and Adam's averages as tensors, curves as the bytes of a JSON
text, and everything else as JSON in the header, which can be read alone. A member depends on nothing but itself, so any
slot of any population in any process can continue it. The files lie in the store's folder; one is deleted when every
member in it has a record or a later checkpoint.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from assay.lab.member_state import MemberState, SavedState
from assay.store import write_synced

INTERVAL = 30.0  # seconds between checkpoints
ABANDONED = 600.0  # seconds after which an unfinished write counts as abandoned
FOLDER = "checkpoints"
FORMAT = "3"


class Checkpoint(NamedTuple):
    """A member on disk: its progress as plain data (see `Member.plain`), and its state."""

    progress: dict[str, Any]
    state: MemberState


class Checkpoints:
    """The checkpoints of a store. Each instance writes one file of its own, again and again."""

    def __init__(self, store: Path, interval: float = INTERVAL) -> None:
        self.folder, self.interval = store / FOLDER, interval
        self.path = self.folder / f"{os.getpid()}-{secrets.token_hex(4)}.safetensors"
        self.written = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self.written >= self.interval

    def write(self, members: Iterable[tuple[dict[str, Any], MemberState]]) -> None:
        """Replace this instance's file: at every moment the old one or the new one is there, whole."""
        tensors: dict[str, torch.Tensor] = {}
        header = []
        for i, (progress, state) in enumerate(members):
            header.append({name: value for name, value in progress.items() if name != "curve"})
            curve = bytearray(json.dumps(progress["curve"]).encode())
            tensors[f"{i} curve"] = torch.frombuffer(curve, dtype=torch.uint8)
            tensors |= {f"{i} {name}": getattr(state, name).contiguous() for name in ("theta", "m", "v")}
            tensors |= {f"{i} buffer {name}": buffer.contiguous() for name, buffer in state.buffers.items()}
            for kind, saved in state.saved.items():
                prefix = f"{i} saved {kind}"
                tensors[f"{prefix} at"] = torch.tensor([saved.step, saved.score], dtype=torch.float64)
                tensors[f"{prefix} theta"] = saved.theta.contiguous()
                tensors |= {f"{prefix} buffer {name}": buffer.contiguous() for name, buffer in saved.buffers.items()}
        data = save(tensors, {"assay": FORMAT, "members": json.dumps(header)})
        self._replace(data, {member["digest"]: member["trained"] for member in header})
        self.written = time.monotonic()

    def _replace(self, data: bytes, steps: dict[str, int]) -> None:
        """Store the content of this instance's file, which holds members at so many steps."""
        write_synced(self.path, data)

    def delete(self) -> None:
        """Delete this instance's file: its members have ended."""
        self.path.unlink(missing_ok=True)

    def load(self, digest: str) -> Checkpoint | None:
        """The checkpoint of a member with the most steps, or None."""
        copies = [(header["trained"], path, i, header) for path, i, header in self._all() if header["digest"] == digest]
        for _, path, i, header in sorted(copies, key=lambda item: item[0], reverse=True):
            with suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
                keys = {key.partition(" ")[2]: key for key in file.keys() if key.partition(" ")[0] == str(i)}  # noqa: SIM118
                tensors = {name: file.get_tensor(key) for name, key in keys.items()}
                curve = json.loads(tensors["curve"].numpy().tobytes())
                rows, buffers = (tensors["theta"], tensors["m"], tensors["v"]), without_prefix("buffer ", tensors)
                state = MemberState(*rows, buffers, _saved_states(without_prefix("saved ", tensors)))
                return Checkpoint(header | {"curve": curve}, state)
        return None

    def progress(self, digest: str) -> int:
        """The steps after which a member can be continued; 0 without a checkpoint."""
        return max((header["trained"] for _, _, header in self._all() if header["digest"] == digest), default=0)

    def prune(self, finished: Iterable[str]) -> None:
        """Delete obsolete checkpoints and leftover temporary files."""
        done, paths = set(finished), list(self.folder.glob("*.safetensors"))  # not those that others write from now on
        needed = {path for digest, (_, path) in self.latest().items() if digest not in done}
        for path in paths:
            if path not in needed:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()

    def latest(self) -> dict[str, tuple[int, Path]]:
        """The most steps of each member, and the file with its checkpoint at that step."""
        latest: dict[str, tuple[int, Path]] = {}
        for path, _, header in self._all():
            latest[header["digest"]] = max(latest.get(header["digest"], (-1, path)), (header["trained"], path))
        return latest

    def _all(self) -> Iterator[tuple[Path, int, dict[str, Any]]]:
        for path in sorted(self.folder.glob("*.safetensors")):
            for i, header in enumerate(_headers(path)):
                yield path, i, header


def without_prefix(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors whose names have a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def _saved_states(tensors: dict[str, torch.Tensor]) -> dict[str, SavedState]:
    states = {}
    for kind in dict.fromkeys(name.partition(" ")[0] for name in tensors):
        parts = without_prefix(f"{kind} ", tensors)
        step, score = parts["at"].tolist()
        states[kind] = SavedState(int(step), score, parts["theta"], without_prefix("buffer ", parts))
    return states


def _headers(path: Path) -> list[dict[str, Any]]:
    """The members in a file, without their tensors; none if the file is gone or is not a checkpoint."""
    with suppress(OSError, SafetensorError, ValueError), safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if metadata.get("assay") == FORMAT:
            return [dict(header) for header in json.loads(metadata["members"])]
    return []
