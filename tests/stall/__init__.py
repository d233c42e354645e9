"""Somebody who tries to stall a server, and what becomes of work on it meanwhile."""
