"""The computation and publication of fair shares."""
