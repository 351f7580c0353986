"""A CPU kernel gives the same bits whether this process compiled it or loaded it from disk."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from assay import ops

from .cases import CASES, installed

pytestmark = installed("cpu")

ROOT = Path(__file__).parents[2]


def digest(operator: str) -> str:
    """A hash of the outputs and gradients of an operator in float32, with the CPU kernel."""
    case = CASES[operator]
    parts = [[x.float() for x in part] for part in case.draw(20, batch=20, K=8, V=8, D=8)]
    tensors = case.gradients(parts, "cpu")
    return hashlib.sha256(b"".join(x.contiguous().numpy().tobytes() for x in tensors)).hexdigest()


def digest_in_new_process(operator: str, cache: Path) -> str:
    program = f"from tests.ops.test_kernel_cache import digest; print(digest({operator!r}))"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_the_first_process_on_a_machine_gives_the_bits_of_the_second(tmp_path: Path):
    cold = digest_in_new_process("elman", tmp_path)
    files = set(tmp_path.rglob("*.nb[ci]"))
    assert len(files) == 4  # an index and the machine code, forward and backward
    assert digest_in_new_process("elman", tmp_path) == cold
    assert set(tmp_path.rglob("*.nb[ci]")) == files


def test_a_kernel_needs_no_folder_that_can_be_written(tmp_path: Path):
    expected = digest("elman")
    (tmp_path / "file").touch()
    fallback = Path(ops.__file__).parent / "cpu" / "__pycache__"  # numba's choice; it would miss a change in lanes.py
    files = set(fallback.glob("*.nb[ci]"))
    assert digest_in_new_process("elman", tmp_path / "file") == expected
    assert set(fallback.glob("*.nb[ci]")) == files
