"""One thread per test process: the models are tiny and tests go side by side.

Without a GPU, Triton interprets its kernels; it reads this as it is imported.
"""

import os

import torch

torch.set_num_threads(1)
if torch.cuda.is_available():
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the tests that ask for the same bits
else:
    os.environ.setdefault("TRITON_INTERPRET", "1")
