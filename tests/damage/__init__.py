"""Damaged files: whatever changes an answer is detected, a lost commit above all."""
