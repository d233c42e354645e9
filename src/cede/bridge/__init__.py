"""Bridges: one process that stands for many nodes of a cluster that somebody else runs."""
