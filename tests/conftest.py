"""One thread per test process: the models are tiny and tests go side by side."""

import torch

torch.set_num_threads(1)
