"""What can the reference architectures beside a card do, at GPU scale?

The same nine architectures with two layers of width 64, on the larger battery of `assay card --scale gpu`: eleven
tasks, three learning rates, ten seeds, at most 10,000 steps, training inputs of up to 50 tokens.
"""

from functools import partial

from assay.studies.card import REFERENCES, SCALES

GPU = SCALES["gpu"]
PIECES = {model: partial(lambda name: GPU.runs(GPU.named(name)), model) for model in REFERENCES}
