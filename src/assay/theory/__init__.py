"""Theorems that can be run. A claim is a class and a line in `registry.py`."""
