"""Which holders may be stopped for which waiter, at which price, and the choice among them."""
