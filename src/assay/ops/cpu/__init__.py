"""The CPU kernels, in numba: one file per rule, each a kernel as `fused.py` describes it.

Where a rule multiplies matrices, sixteen rows of a batch lie side by side in memory (the last axis, LANES), so that
every operation is the same arithmetic on sixteen numbers: all of it uses vector instructions, at any head size.
"""
