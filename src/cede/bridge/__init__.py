"""Bridges: one process that stands for many nodes of a foreign cluster."""
