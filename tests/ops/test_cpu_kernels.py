"""What is particular to the CPU's kernels: they are compiled once on a machine, and they survive a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .cases import installed

pytestmark = installed("cpu")

RUN = """
import torch
from assay import ops
torch.set_num_threads(2)
x = torch.ones(40, 2, 3, 4)
h, _ = ops.elman(x, torch.ones(1, 2, 4, 4), backend="cpu")
"""
COUNT = """
from assay.ops.cpu.elman import _forward
(hits,), (misses,) = _forward.stats.cache_hits.values() or [0], _forward.stats.cache_misses.values() or [0]
print(hits, misses)
"""
FORK = """
import os, sys
child = os.fork()
again, _ = ops.elman(x, torch.ones(1, 2, 4, 4), backend="cpu")
assert torch.equal(again, h)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def python(program: str, cache: Path) -> str:
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_kernel_is_compiled_once_on_a_machine(tmp_path: Path):
    assert python(RUN + COUNT, tmp_path) == "0 1"
    assert python(RUN + COUNT, tmp_path) == "1 0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_threads_of_its_own(tmp_path: Path):
    python(RUN + FORK, tmp_path)
