"""What happens to a request between its submission and its end."""
