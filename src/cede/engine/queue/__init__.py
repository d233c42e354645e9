"""The waiters of a pool in their order, what each may see, and when each would start."""
