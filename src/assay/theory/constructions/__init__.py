"""Explicit weights that solve tasks, in the same classes that are trained."""
