"""A whole state as plain data, and back."""
