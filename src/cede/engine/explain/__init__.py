"""Explanations: why a request waits, what would help it, and how a pool is shared."""
