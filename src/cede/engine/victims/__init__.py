"""Who may be stopped for whom, at which price, and who is chosen."""
