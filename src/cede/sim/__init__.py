"""The real engine with its own clock: plans and what-ifs, offline."""
