"""The order of holders and waiters, what shares cover, and the price of stopping."""
