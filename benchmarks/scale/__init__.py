"""A server with as much in it as a large site has: what it costs to hold, to start and to ask."""
