"""The agent: one process on every node that carries out the server's orders.

`machine` decides and touches nothing; `runner` touches everything and decides nothing.
"""
