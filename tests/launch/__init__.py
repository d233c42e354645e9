"""Work is started as it was asked, and stopped for certain: real processes, real signals."""
