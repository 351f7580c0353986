"""Engines: where groups of runs are carried out. Another one (a cluster) is another implementation of `Engine`."""
