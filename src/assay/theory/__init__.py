"""Theorems that run. A claim is one file's class and one line in `registry.py`."""
