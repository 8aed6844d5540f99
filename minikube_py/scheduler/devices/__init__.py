"""Devices as scheduling sees them: pools of ResourceSlices, what claims hold of them, and the search for more."""
