"""The waiters of a pool in their order, their bounds, and forecasts of their starts."""
