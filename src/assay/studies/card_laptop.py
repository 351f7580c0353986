"""What can the reference architectures beside a card do, at laptop scale?

Nine architectures, each with its mixer in the same small skeleton (two layers of width 32), on the battery of
`assay card`: eight tasks, two learning rates, three seeds, at most 800 steps. A card shows these records beside those
of the architecture that it is about.
"""

from assay.studies.card import reference_runs

PIECES = reference_runs("laptop")
