"""The whole system in one process, on virtual time and by one seed.

The server's app, writer, engine and store are the real ones, and so is each agent's machine; the
network, the disk, the clocks, the supervisors and the work are simulated. A seed draws the load and
the faults, and gives the same run each time, event by event.
"""
