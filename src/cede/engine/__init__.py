"""Pure decisions over values of `cede.model`.

Nothing here does I/O, reads a clock or rolls dice: the instant is an argument, and the same state
and instant give the same plan under any hash seed (law 1).
"""
