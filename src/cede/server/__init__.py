"""The server: one writer thread that decides and commits, and an HTTP face in front of it."""
