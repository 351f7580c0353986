"""The recurrences as functions on tensors, and operators that have no state.

Inputs are [batch, heads, time, dim], weights [groups, heads, ...] with the batch a multiple of the groups; a state that
is left out is zero. Each returns (outputs, final state); operators without a state return outputs alone (those of
`fusions`, which the models use between the recurrences, have sequences [batch, time, ...]). With
`backend="auto"` the kernel of the tensors' device runs where there is one, then the parallel form in PyTorch, then the
plain step at every moment; `backend_for` says which. float32 and float64; bfloat16 inputs keep a float32 state.
"""

from __future__ import annotations

from assay.ops.attention import *  # noqa: F403
from assay.ops.dispatch import BACKENDS as BACKENDS
from assay.ops.dispatch import FUSIONS as FUSIONS
from assay.ops.dispatch import OPERATORS as OPERATORS
from assay.ops.dispatch import Backend as Backend
from assay.ops.dispatch import backend_for as backend_for
from assay.ops.dplr import *  # noqa: F403
from assay.ops.fast_weights import *  # noqa: F403
from assay.ops.fusions import *  # noqa: F403
from assay.ops.layers import *  # noqa: F403
from assay.ops.networks import *  # noqa: F403
from assay.ops.scans import *  # noqa: F403
