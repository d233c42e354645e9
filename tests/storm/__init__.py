"""Servers, agents and clients amid kills, freezes and partitions, and a second set of books."""
