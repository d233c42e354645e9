"""The values that everything else is built from: frozen, validated, with their arithmetic.

Nothing here does I/O, reads a clock, draws random numbers or decides.
"""
