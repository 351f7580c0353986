"""Lower bounds on the bits that machines need."""
