"""A recount of everything from the definitions alone."""
