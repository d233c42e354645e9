"""The agent: one process on every node that carries out what the server decided for it.

`machine` decides and touches nothing; `runner` touches everything and decides nothing.
"""
