"""What scripts/protocol writes. Edit checkpoint.proto instead."""
