"""The holdings of each pool and policy, and whether there is room for more."""
