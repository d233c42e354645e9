"""Operators' edits of pools, policies, tenants and nodes."""
