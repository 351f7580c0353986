"""One step of each model of `quick`, to compile the CPU kernels before `make demo` needs them."""

from assay.studies.quick import RUNS as QUICK

ONE_STEP = {"steps": 1, "validate_every": 1}
FIRST = {run.model.name: run for run in reversed(QUICK)}
RUNS = [run.model_copy(update={"training": run.training.model_copy(update=ONE_STEP)}) for run in FIRST.values()]
