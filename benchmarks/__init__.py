"""What cede costs, as ratios taken in one run, with the figures beside them.

A ratio against another size, a bare loop or a route without its commit says the same on a laptop
and on a server; an absolute figure does not. `python -m benchmarks` prints both and fails when a
bound is missed.
"""
