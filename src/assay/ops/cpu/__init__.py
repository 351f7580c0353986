"""The CPU kernels, in numba: one file per operator, each a kernel as `kernel.py` describes it.

Where an operator multiplies matrices, sixteen rows of a batch lie side by side in memory (the last axis, LANES): every
operation is the same arithmetic on sixteen numbers and uses vector instructions, at any head size.
"""
