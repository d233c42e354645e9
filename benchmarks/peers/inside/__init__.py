"""Programs that run in the environment of the peers, build/peers, which has no cede."""
