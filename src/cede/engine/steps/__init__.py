"""The steps of a pass, one module each."""
