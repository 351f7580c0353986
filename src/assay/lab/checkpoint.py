"""Members on their way, on disk, so that whoever is interrupted goes on where it was.

A file holds all members of one population: their parameters and Adam's averages as tensors, their curves as the bytes
of a JSON text, and what else is known of them as JSON in its header, which can be read alone. Since a member depends on
nothing but itself, it can be taken up in any slot of any population, by any process. The files lie in the store; one is
deleted when every member in it has a record, or is further on in another.
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

from assay.lab.saved import Best, Saved
from assay.record import write_synced

EVERY = 30.0  # seconds between checkpoints
ABANDONED = 600.0  # seconds after which a file that is being written no longer is
FOLDER = "checkpoints"
FORMAT = "2"


class Resumed(NamedTuple):
    """A member as it was saved: how far it is, what was seen of it, and what it has learned."""

    facts: dict[str, Any]
    saved: Saved


class Checkpoints:
    """The checkpoints of a store; a population writes its own one again and again."""

    def __init__(self, store: Path, every: float = EVERY) -> None:
        self.folder, self.every = store / FOLDER, every
        self.path = self.folder / f"{os.getpid()}-{secrets.token_hex(4)}.safetensors"
        self.last = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last >= self.every

    def write(self, members: Iterable[tuple[dict[str, Any], Saved]]) -> None:
        """Replace this process's file: at every moment the old one or the new one is there, whole."""
        tensors: dict[str, torch.Tensor] = {}
        known = []
        for i, (facts, saved) in enumerate(members):
            known.append({name: value for name, value in facts.items() if name != "curve"})
            curve = bytearray(json.dumps(facts["curve"]).encode())
            tensors[f"{i} curve"] = torch.frombuffer(curve, dtype=torch.uint8)
            tensors |= {f"{i} {name}": getattr(saved, name).contiguous() for name in ("theta", "m", "v")}
            tensors |= {f"{i} buffer {name}": buffer.contiguous() for name, buffer in saved.buffers.items()}
            if best := saved.best:
                tensors[f"{i} best at"] = torch.tensor([best.step, best.score], dtype=torch.float64)
                tensors[f"{i} best theta"] = best.theta.contiguous()
                tensors |= {f"{i} best buffer {name}": buffer.contiguous() for name, buffer in best.buffers.items()}
        write_synced(self.path, save(tensors, {"assay": FORMAT, "members": json.dumps(known)}))
        self.last = time.monotonic()

    def forget(self) -> None:
        """Delete this process's file: its members have ended."""
        self.path.unlink(missing_ok=True)

    def resumed(self, digest: str) -> Resumed | None:
        """A member where it was furthest on, or None."""
        held = [(facts["step"], path, i, facts) for path, i, facts in self._all() if facts["digest"] == digest]
        for _, path, i, facts in sorted(held, key=lambda one: one[0], reverse=True):
            with suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
                mine = {name.partition(" ")[2]: name for name in file.keys() if name.partition(" ")[0] == str(i)}  # noqa: SIM118
                read = {name: file.get_tensor(where) for name, where in mine.items()}
                facts["curve"] = json.loads(read["curve"].numpy().tobytes())
                learned = read["theta"], read["m"], read["v"], _with("buffer ", read)
                return Resumed(facts, Saved(*learned, _best(_with("best ", read))))
        return None

    def prune(self, finished: Iterable[str]) -> None:
        """Delete the files that nobody would resume from, and what is left of writes that were killed."""
        done = set(finished)
        best: dict[str, tuple[int, Path]] = {}
        for path, _, facts in self._all():
            if facts["digest"] not in done:
                best[facts["digest"]] = max(best.get(facts["digest"], (-1, path)), (facts["step"], path))
        wanted = {path for _, path in best.values()}
        for path in self.folder.glob("*.safetensors"):
            if path not in wanted:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()

    def _all(self) -> Iterator[tuple[Path, int, dict[str, Any]]]:
        for path in sorted(self.folder.glob("*.safetensors")):
            for i, facts in enumerate(_members(path)):
                yield path, i, facts


def _with(prefix: str, read: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What is so named, without the prefix."""
    return {name.removeprefix(prefix): x for name, x in read.items() if name.startswith(prefix)}


def _best(read: dict[str, torch.Tensor]) -> Best | None:
    if not read:
        return None
    step, score = read["at"].tolist()
    return Best(int(step), score, read["theta"], _with("buffer ", read))


def _members(path: Path) -> list[dict[str, Any]]:
    """Who is in a file; nobody, where it has gone or is not one of ours."""
    with suppress(OSError, SafetensorError, ValueError), safe_open(path, "pt") as file:
        said = file.metadata() or {}
        if said.get("assay") == FORMAT:
            return [dict(facts) for facts in json.loads(said["members"])]
    return []
