"""What things are: frozen values, validation and arithmetic.

Nothing here does I/O, reads a clock or rolls dice, and nothing here decides. Everything else is
built from these values.
"""
