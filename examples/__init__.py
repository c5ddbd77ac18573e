"""Programs that use anamorph."""
