"""The machines of a pool: what is free on them, whose they are, and where tasks would sit."""
