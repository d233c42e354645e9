"""Why somebody waits, what would help, and who has what."""
