"""Explicit weights, in the classes that are trained."""
