"""Small worlds, searched exhaustively on the real engine.

A world is a small random set-up: pools, policies, a list of requests. Every state that arrivals,
completions, cancellations, losses and victims stopping in every order can lead to is visited, and
in each one everything that must always hold is checked.
"""
