"""Fair shares as they are computed and published."""
