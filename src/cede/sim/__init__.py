"""The real engine under a clock of its own: plans and what-ifs, offline."""
