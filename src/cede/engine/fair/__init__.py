"""Fair shares: a pure computation over a tree of policies and requests.

It reads no clock and knows no pool: amounts, weights and guarantees go in, parts of the whole come
out. Shares are fractions, so this is the one package of the engine that counts in floats.
"""
