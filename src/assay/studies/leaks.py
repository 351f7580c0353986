"""Which architectures remember a bit over long inputs, and what makes the others remember it?

A network that is right on every random test string can still forget: random strings hardly ever hold a long stretch
through which something must be kept. Thirteen recurrent architectures learn parity, the flip-flop, sums modulo 5,
products in S_3 and Dyck-(2,3), with ten seeds and three learning rates; each run that is right at the training lengths
is then probed with short patterns that repeat. Further pieces try what may cure a leak, on parity and the flip-flop:
more training, long runs of one symbol among the training strings, weight decay, noise on the state, and a state that is
rounded at every step. The seeds are not those of any other study.
"""

from assay.findings import Comparison
from assay.studies.leaks_runs import CURED, CURES, MODELS, PIECES, VARIANTS

__all__ = ["ABOUT_PROBES", "COMPARISONS", "PIECES", "VARIANTS"]

ABOUT_PROBES = True

SYMBOLS = "In the flip-flop, s sets the bit, r resets it and - keeps it; S_3 has the permutations of 0, 1, 2."
COMPARISONS = [
    Comparison("Which architectures remember?", SYMBOLS, MODELS),
    *(
        Comparison(
            f"What cures the {model}?",
            "The same model with one change of its training or of its state.",
            (model, *(f"{model}, {cure}" for cure in CURES)),
            ("parity", "flip-flop"),
        )
        for model in CURED
    ),
]
