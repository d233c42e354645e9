"""All living entities, their changes, the undo log, and the timers."""
