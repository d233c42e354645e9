"""The life of a request between its submission and its end."""
