"""Devices as scheduling sees them: pools of ResourceSlices, devices held by claims, and the search for free ones."""
