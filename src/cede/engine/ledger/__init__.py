"""What each pool and policy holds, and whether there is room for more."""
