"""The devices that runs are trained on."""

from __future__ import annotations

import os

import torch

from assay.errors import BadInput, suggestion

NAMES = ("auto", "cpu", "cuda")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_device(name: str) -> torch.device:
    """The device with a name; `auto` is the GPU if there is one."""
    if name not in NAMES:
        nearest = "; did you mean 'cuda'?" if name.lower() in ("gpu", "nvidia") else suggestion(name, NAMES)
        raise BadInput(f"unknown device '{name}'{nearest}")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
