"""Simulated containers: their output, commands and ports, and client access."""
