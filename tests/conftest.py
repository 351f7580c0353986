"""One thread per test process: the models are tiny and tests go side by side.

Without a GPU, Triton interprets its kernels; it reads this as it is imported. Shapes written with jaxtyping are checked
at every call (`shapes.py`).
"""

import gc
import os
import sys
from collections.abc import Iterator

import pytest
import torch
from jaxtyping import install_import_hook

from . import shapes

torch.set_num_threads(1)
if torch.cuda.is_available():
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the tests that ask for the same bits
else:
    os.environ.setdefault("TRITON_INTERPRET", "1")
PACKAGES = ("lab", "models", "rng", "tasks", "theory")  # operators check shapes themselves
shapes.check_what_states_shapes()
install_import_hook([f"assay.{name}" for name in PACKAGES], f"{shapes.__name__}.check_shapes")


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """The libraries and the tests have millions of objects that are no garbage: no collection looks at them again."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _no_modules_of_other_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget what a file of tests has imported from temporary folders: others have modules of the same name."""
    yield
    base = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(base):
            del sys.modules[name]


def pytest_unconfigure() -> None:
    gc.unfreeze()  # Triton complains of what is left behind at the end


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what could not be tested here, also where skips are not listed."""
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if report.when == "setup"]
    for reason in sorted({reason.removeprefix("Skipped: ") for reason in reasons if "NOT TESTED" in reason}):
        terminalreporter.write_line(reason, red=True, bold=True)
