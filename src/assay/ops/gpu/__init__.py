"""The GPU kernels, in Triton: one file per operator, each a kernel as `kernel.py` describes it.

A program runs one or some rows and heads through all of time with the state in registers. Head sizes are padded to a
power of two and masked; nothing is added atomically, so the same inputs give the same bits. Launch settings come from
small tables: an autotuner would take a minute for every new shape.
"""
