"""The server: one writer thread that decides and commits, and the HTTP API in front of it."""
