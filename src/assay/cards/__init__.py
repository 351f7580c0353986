"""Cards: what an architecture can do, on a fixed battery, beside reference architectures."""
