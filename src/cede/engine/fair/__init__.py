"""Fair shares: a pure computation over a tree of policies and requests.

It reads no clock and knows no pool: its input is amounts, weights and guarantees, its output parts
of the whole. Shares are fractions, so this is the one package of the engine that counts in floats.
"""
