"""Everything that is alive, how it changes, how it is put back, and when it is due."""
