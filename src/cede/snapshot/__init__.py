"""Snapshots: a whole state as plain data, and back."""
