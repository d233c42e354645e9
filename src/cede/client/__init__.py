"""The Python library: a client of the HTTP API, allocations, steps and a runner of commands.

It reaches the server by HTTP only and decides nothing. Import the names from `cede`.
"""
